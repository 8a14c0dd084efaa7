// A message that carries its shape is two, the second of the size that the first one tells: the
// head and the tensor, one after the other for each peer and direction.
#include "tegula/comm/c10d_messages.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "tegula/comm/packed_regions.h"

namespace tegula::inner::comm {
namespace {

// Messages that carry their shape have tags of their own, from here on.
constexpr int kShapedTags = 1 << 20;

template <class Body>
Worker::Task announced(Engine::OnEnd on_end, Body body) {
  return [on_end = std::move(on_end), body]() -> Worker::Announcement {
    std::exception_ptr error;
    try {
      body();
    } catch (...) {
      error = std::current_exception();
    }
    return [on_end, error] { on_end(error); };
  };
}

}  // namespace

void C10dMessages::run(const Message& message) {
  if (!message.carries_shape()) return finish(message, started(message));
  const std::unique_lock<std::mutex> lock = queue_of(message).lock_when_idle();
  move_with_shape(message);
}

void C10dMessages::start(const Message& message, Engine::OnEnd on_end) {
  Worker& queue = queue_of(message);
  if (message.carries_shape()) {
    return queue.queue(announced(std::move(on_end), [this, message] { move_with_shape(message); }));
  }
  queue.start();
  queue.queue(announced(std::move(on_end),
                        [this, message, work = started(message)] { finish(message, work); }));
}

bool C10dMessages::is_idle() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::all_of(queues_.begin(), queues_.end(),
                     [](const auto& queue) { return queue.second->is_idle(); });
}

C10dLink::Work C10dMessages::started(const Message& message, int first_tag) {
  return link_.started(message.call, {message.memory}, [&] {
    C10dLink::Tensors tensors{bytes_at(message.region.base, message.region.bytes())};
    const int tag = first_tag + message.call.tag();
    return message.call.kind() == Kind::Send ? link_.backend()->send(tensors, message.peer, tag)
                                             : link_.backend()->recv(tensors, message.peer, tag);
  });
}

void C10dMessages::finish(const Message& message, const C10dLink::Work& work) {
  link_.finish(message.call, work, {message.memory});
}

void C10dMessages::move_with_shape(Message message) {
  const at::Tensor head = at::zeros({sizeof(TensorHead)}, at::kByte);
  if (message.head) std::memcpy(head.data_ptr(), &*message.head, sizeof(TensorHead));
  const auto move = [&](const Region& region, const at::Tensor& memory) {
    const Message part{message.call, message.peer, region, memory};
    finish(part, started(part, kShapedTags));
  };
  move(whole_of(head), head);
  if (message.place_for) {
    try {
      message.memory = message.place_for({memory_of(head), sizeof(TensorHead)});
      message.region = whole_of(message.memory);
    } catch (const CommError& error) {
      link_.abort(error);
      throw;
    }
  }
  if (message.region.bytes() > 0) move(message.region, message.memory);
}

Worker& C10dMessages::queue_of(const Message& message) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::unique_ptr<Worker>& queue = queues_[{message.peer, message.call.kind()}];
  if (!queue) queue = std::make_unique<Worker>();
  return *queue;
}

}  // namespace tegula::inner::comm
