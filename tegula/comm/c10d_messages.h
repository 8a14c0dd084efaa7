// The messages of a group over a c10d::Backend, beside its collectives. One waits for what was
// posted before it between the same two ranks in the same direction, and for nothing else.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "tegula/comm/c10d_link.h"

namespace tegula::inner::comm {

// Any thread.
class C10dMessages {
 public:
  explicit C10dMessages(C10dLink& link) : link_(link) {}

  void run(const Message& message);
  void start(const Message& message, Engine::OnEnd on_end);
  // Nothing is queued or running.
  bool is_idle();

 private:
  C10dLink::Work started(const Message& message, int first_tag = 0);
  void finish(const Message& message, const C10dLink::Work& work);
  void move_with_shape(Message message);
  Worker& queue_of(const Message& message);

  C10dLink& link_;
  std::mutex mutex_;
  std::map<std::pair<int, Kind>, std::unique_ptr<Worker>> queues_;  // by peer and direction
};

}  // namespace tegula::inner::comm
