// A stretch of time that torch's profiler shows under a name of ours.
//
//   const Profiled event([&] { return "tegula::redistribute " + to_string(plan); });
//
// The name is made only while a profiler, or another observer of libtorch's functions, looks at
// this thread; else it costs a look at that thread's list of observers.
#pragma once

#include <ATen/record_function.h>

#include <optional>
#include <string>
#include <utility>

namespace tegula::inner {

class Profiled {
 public:
  template <class Name>
  explicit Profiled(Name name) {
    auto observers = at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION);
    if (!observers) return;
    event_.emplace(std::move(*observers));
    event_->before(std::string(name()));
  }
  Profiled(const Profiled&) = delete;
  Profiled& operator=(const Profiled&) = delete;

 private:
  std::optional<at::RecordFunction> event_;
};

}  // namespace tegula::inner
