#include "tegula/comm/shm/engine.h"

#include <utility>

#include "tegula/comm/shm/backend.h"
#include "tegula/comm/shm/coalesced.h"
#include "tegula/comm/shm/collectives.h"

namespace tegula::inner::shm {

ShmEngine::ShmEngine(std::shared_ptr<Board> board, ChannelOptions options)
    : channel_(std::move(board), std::move(options)), messages_(channel_) {}

ShmEngine::~ShmEngine() {
  if (worker_.is_idle() && messages_.is_idle()) return;
  channel_.abort(channel_
                     .error_about("rank " + channel_.world_rank(channel_.index()) +
                                  " ended the group while calls were pending")
                     .hint("wait for asynchronous calls before the world goes"));
}

c10::intrusive_ptr<c10d::Backend> ShmEngine::backend() {
  return c10::make_intrusive<Backend>(shared_from_this());
}

void ShmEngine::refuse(comm::Kind kind, const std::string& why) {
  const std::string text = std::string(name_of(kind)) + ", refused: " + why;
  worker_.run_in_turn([this, text]() -> comm::Worker::Announcement {
    channel_.refuse(text);
    return {};
  });
}

void ShmEngine::refuse_message(comm::Kind kind, int peer, const std::string& why) {
  channel_.refuse_message(peer, std::string(name_of(kind)) + ", refused: " + why);
}

void ShmEngine::queue(comm::Worker::Task task) {
  channel_.note_queued();
  try {
    worker_.queue([this, task = std::move(task)] {
      comm::Worker::Announcement announce = task();
      channel_.note_carried_out();
      return announce;
    });
  } catch (...) {
    channel_.note_carried_out();
    throw;
  }
}

void ShmEngine::message_async(const comm::Message& message, OnEnd on_end) {
  if (message.call.kind() != comm::Kind::Send) return messages_.start(message, std::move(on_end));
  channel_.note_queued();
  try {
    messages_.start(message, [this, on_end = std::move(on_end)](std::exception_ptr error) {
      channel_.note_carried_out();
      on_end(std::move(error));
    });
  } catch (...) {
    channel_.note_carried_out();
    throw;
  }
}

void ShmEngine::all_reduce(const Call& call, const std::byte* from, std::byte* to,
                           std::int64_t count) {
  run([&](Channel& channel) { shm::all_reduce(channel, call, from, to, count); });
}

void ShmEngine::all_gather(const Call& call, const Region& from, std::span<const Region> to) {
  run([&](Channel& channel) { shm::all_gather(channel, call, from, to); });
}

void ShmEngine::reduce_scatter(const Call& call, std::span<const Region> from, const Region& to) {
  run([&](Channel& channel) { shm::reduce_scatter(channel, call, from, to); });
}

void ShmEngine::all_reduce_coalesced(const Call& call, TensorList tensors) {
  run([&](Channel& channel) { shm::all_reduce_coalesced(channel, call, tensors); });
}

void ShmEngine::all_gather_coalesced(const Call& call, TensorList tensors) {
  run([&](Channel& channel) { shm::all_gather_coalesced(channel, call, tensors); });
}

void ShmEngine::reduce_scatter_coalesced(const Call& call, TensorList tensors) {
  run([&](Channel& channel) { shm::reduce_scatter_coalesced(channel, call, tensors); });
}

void ShmEngine::exchange(const Call& call, std::span<const Region> from,
                         std::span<const Region> to) {
  run([&](Channel& channel) { shm::exchange(channel, call, from, to); });
}

void ShmEngine::broadcast(const Call& call, const Region& region) {
  run([&](Channel& channel) { shm::broadcast(channel, call, region); });
}

void ShmEngine::barrier(const Call& call) {
  run([&](Channel& channel) { shm::barrier(channel, call); });
}

}  // namespace tegula::inner::shm
