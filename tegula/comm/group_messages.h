// The messages of a group's members, plain ones and those that carry their shape: made ready, and
// carried by the engine now or async. What is said in group.h holds; a message that this rank
// cannot begin is announced to its peer where the engine can.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "tegula/comm/group_call.h"
#include "tegula/comm/message.h"

namespace tegula::inner::comm {

void message_now(GroupState& group, Kind kind, const at::Tensor& tensor, int peer, int tag);
std::shared_ptr<PendingState> message_async(GroupState& group, Kind kind, const at::Tensor& tensor,
                                            int peer, int tag);

// A send that carries its shape, or a recv of one. `tensor` is what is sent, or what came.
struct ShapedMessage {
  Message message;
  std::shared_ptr<at::Tensor> tensor = std::make_shared<at::Tensor>();
  std::shared_ptr<LogLine> line;
};

ShapedMessage shaped_send(GroupState& group, const at::Tensor& tensor, int to, int tag);
ShapedMessage shaped_recv(GroupState& group, int from, int tag);
// What came; of a send what was sent.
at::Tensor run_message(GroupState& group, const ShapedMessage& shaped);
std::shared_ptr<PendingState> start_message(GroupState& group, const ShapedMessage& shaped);

}  // namespace tegula::inner::comm
