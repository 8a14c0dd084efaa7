#include "tegula/comm/group_messages.h"

#include <ATen/ATen.h>

#include "tegula/base/error.h"
#include "tegula/base/sentence.h"
#include "tegula/bridge/torch_types.h"

namespace tegula::inner::comm {
namespace {

// Does what comes before a message. If this rank cannot begin it, its peer shall not wait for it.
template <class Begin>
auto or_refused_message(GroupState& group, Kind kind, int peer, Begin begin) {
  try {
    return begin();
  } catch (...) {
    group.engine().refuse_message(kind, peer, sentence_of(std::current_exception()));
    throw;
  }
}

PreparedCall ready_message(GroupState& group, Kind kind, const at::Tensor& tensor, int peer,
                           int tag) {
  const Party party = party_of(group);
  return or_refused_message(group, kind, peer,
                            [&] { return prepare_message(party, kind, tensor, peer, tag); });
}

std::int64_t bytes_of(const at::Tensor& tensor) {
  return static_cast<std::int64_t>(tensor.nbytes());
}

Call shaped_call(GroupState& group, Kind kind, int peer, int tag) {
  const Party party = party_of(group);
  return or_refused_message(group, kind, peer,
                            [&] { return shaped_message_call(party, kind, peer, tag); });
}

at::Tensor room_for(const TensorMeta& meta, Buffers& buffers) {
  try {
    return buffers.empty(meta.shape(), scalar_type_of(meta.dtype()));
  } catch (const std::exception&) {
    throw CommError("there is no room for the message that came")
        .fact("message", to_string(meta))
        .fact("because", sentence_of(std::current_exception()))
        .hint("send less at a time");
  }
}

}  // namespace

void message_now(GroupState& group, Kind kind, const at::Tensor& tensor, int peer, int tag) {
  const PreparedCall prepared = ready_message(group, kind, tensor, peer, tag);
  const std::shared_ptr<LogLine> line = noted(group, prepared.call, bytes_of(prepared.input));
  const LogTime time(line);
  const Profiled event([&] { return profiled_name(group, prepared.call); });
  const Flight flight(group, prepared.call);
  const std::unique_ptr<LetGo> let_go = let_go_while_waiting();
  group.engine().message_now({prepared.call, peer, prepared.from[0], prepared.input});
  if (kind == Kind::Recv && !prepared.input.is_same(tensor)) tensor.copy_(prepared.input);
}

std::shared_ptr<PendingState> message_async(GroupState& group, Kind kind, const at::Tensor& tensor,
                                            int peer, int tag) {
  const PreparedCall prepared = ready_message(group, kind, tensor, peer, tag);
  auto pending = std::make_shared<PendingState>();
  pending->line = noted(group, prepared.call, bytes_of(prepared.input));
  const Profiled event([&] { return pending->name = profiled_name(group, prepared.call); });
  const bool copies_back = kind == Kind::Recv && !prepared.input.is_same(tensor);
  Engine::OnEnd on_end =
      [pending, input = prepared.input, tensor, kind, copies_back,
       flight = std::make_shared<const Flight>(group, prepared.call)](std::exception_ptr error) {
        try {
          if (error) std::rethrow_exception(error);
          if (copies_back) tensor.copy_(input);
          pending->end(kind == Kind::Recv ? tensor : at::Tensor());
        } catch (...) {
          pending->fail(std::current_exception());
        }
      };
  or_refused_message(group, kind, peer, [&] {
    group.engine().message_async({prepared.call, peer, prepared.from[0], prepared.input},
                                 std::move(on_end));
  });
  return pending;
}

ShapedMessage shaped_send(GroupState& group, const at::Tensor& tensor, int to, int tag) {
  const Call call = shaped_call(group, Kind::Send, to, tag);
  const PreparedCall prepared = ready_message(group, Kind::Send, tensor, to, tag);
  ShapedMessage sent;
  *sent.tensor = prepared.input;
  sent.message = {call, to, prepared.from[0], prepared.input};
  sent.message.head = std::make_shared<TensorHead>(head_of(meta_of(prepared.input)));
  sent.line = noted(group, call, bytes_of(prepared.input));
  return sent;
}

ShapedMessage shaped_recv(GroupState& group, int from, int tag) {
  ShapedMessage awaited;
  const Call call = shaped_call(group, Kind::Recv, from, tag);
  awaited.message = {call, from, {}};
  awaited.line = noted(group, call, 0);
  awaited.message.place_for = [tensor = awaited.tensor, line = awaited.line,
                               buffers = group.buffers](std::span<const std::byte> head) {
    const TensorMeta meta = meta_in(head);
    *tensor = room_for(meta, *buffers);
    if (line) line->received = static_cast<std::int64_t>(tensor->nbytes());
    return *tensor;
  };
  return awaited;
}

at::Tensor run_message(GroupState& group, const ShapedMessage& shaped) {
  const LogTime time(shaped.line);
  const Profiled event([&] { return profiled_name(group, shaped.message.call); });
  const Flight flight(group, shaped.message.call);
  const std::unique_ptr<LetGo> let_go = let_go_while_waiting();
  group.engine().message_now(shaped.message);
  return *shaped.tensor;
}

std::shared_ptr<PendingState> start_message(GroupState& group, const ShapedMessage& shaped) {
  auto pending = std::make_shared<PendingState>();
  pending->line = shaped.line;
  const Profiled event([&] { return pending->name = profiled_name(group, shaped.message.call); });
  const Kind kind = shaped.message.call.kind();
  Engine::OnEnd on_end = [pending, kind, tensor = shaped.tensor,
                          flight = std::make_shared<const Flight>(group, shaped.message.call)](
                             std::exception_ptr error) {
    if (error) return pending->fail(std::move(error));
    pending->end(kind == Kind::Recv ? *tensor : at::Tensor());
  };
  or_refused_message(group, kind, shaped.message.peer,
                     [&] { group.engine().message_async(shaped.message, std::move(on_end)); });
  return pending;
}

}  // namespace tegula::inner::comm
