#include "tegula/comm/group_call.h"

#include "tegula/comm/comm_log.h"

namespace tegula::inner::comm {

Party party_of(GroupState& group) {
  group.home.check();
  return {static_cast<int>(group.ranks.size()), group.index, *group.buffers, group.engine()};
}

std::shared_ptr<LogLine> noted(const GroupState& group, const Call& call, std::int64_t bytes) {
  if (!group.log_book->is_open()) return nullptr;
  CommEntry entry;
  entry.kind = call.kind();
  entry.axis = group.axis;
  entry.ranks = static_cast<int>(group.ranks.size());
  entry.bytes = bytes;
  entry.tensors = call.tensors();
  if (call.has_op()) entry.reduction = call.op();
  entry.op = CommLabel::current();
  return group.log_book->write(std::move(entry));
}

std::string profiled_name(const GroupState& group, const Call& call) {
  return "tegula::" + call.text() + " over " + group.axis;
}

Flight::Flight(const GroupState& group, const Call& call) : ring_(group.flights) {
  if (ring_) number_ = ring_->begin(call, group.axis, CommLabel::current());
}

Flight::~Flight() {
  if (ring_) ring_->end(number_);
}

}  // namespace tegula::inner::comm
