// What every call on a group has: the party that makes it, a line in the logs that stand, a place
// in the flight recorder, a name in torch's profiler and, if it does not end at once, a state that
// is waited for.
#pragma once

#include <ATen/core/Tensor.h>

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tegula/bridge/profiled.h"
#include "tegula/comm/group_state.h"
#include "tegula/comm/log_book.h"
#include "tegula/comm/prepared_call.h"
#include "tegula/comm/waiting.h"

namespace tegula::inner::comm {

struct PendingState {
  std::mutex mutex;
  std::condition_variable ended;
  bool is_done = false;
  std::exception_ptr error;
  std::vector<at::Tensor> results;
  std::shared_ptr<LogLine> line;  // null: no log stood when the call was started
  std::string name;               // empty: no profiler was on then

  void end(std::vector<at::Tensor> values) {
    finish([&] { results = std::move(values); });
  }
  void end(at::Tensor value) { end(std::vector<at::Tensor>{std::move(value)}); }
  void fail(std::exception_ptr cause) {
    finish([&] { error = std::move(cause); });
  }

  const std::vector<at::Tensor>& wait() {
    const LogTime time(line);
    const Profiled event([this] { return (name.empty() ? "tegula::call" : name) + ", waiting"; });
    const std::unique_ptr<LetGo> let_go = let_go_while_waiting();
    std::unique_lock<std::mutex> lock(mutex);
    ended.wait(lock, [this] { return is_done; });
    if (error) std::rethrow_exception(error);
    return results;
  }
  bool has_ended() {
    const std::lock_guard<std::mutex> lock(mutex);
    return is_done;
  }

 private:
  template <class Set>
  void finish(Set set) {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      set();
      is_done = true;
    }
    ended.notify_all();
  }
};

// UsageError in a child that the rank forked.
Party party_of(GroupState& group);

// Null if no log stands.
std::shared_ptr<LogLine> noted(const GroupState& group, const Call& call, std::int64_t bytes);

// "tegula::all_reduce(f32[8, 16], sum) over tp"
std::string profiled_name(const GroupState& group, const Call& call);

// A call in the flight recorder: begun, and ended when this goes.
class Flight {
 public:
  Flight(const GroupState& group, const Call& call);
  ~Flight();
  Flight(const Flight&) = delete;
  Flight& operator=(const Flight&) = delete;

 private:
  std::shared_ptr<shm::FlightRing> ring_;
  std::uint64_t number_ = 0;
};

}  // namespace tegula::inner::comm
