#include "tegula/comm/c10d_link.h"

#include <stdexcept>
#include <utility>

#include "tegula/base/sentence.h"

namespace tegula::inner::comm {
namespace {

void give_up(const C10dLink::Work& work) {
  try {
    work->abort();
  } catch (const std::exception&) {
  }
}

}  // namespace

void C10dLink::set_timeout(std::chrono::milliseconds timeout) {
  const std::lock_guard<std::mutex> lock(mutex_);
  options_.timeout = timeout;
}

void C10dLink::abort(const CommError& error) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!fault_) fault_ = error;
  for (const Work& work : under_way_) give_up(work);
}

void C10dLink::throw_if_broken() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (fault_) throw *fault_;
}

void C10dLink::note_started(const Work& work) {
  const std::lock_guard<std::mutex> lock(mutex_);
  under_way_.insert(work);
  if (fault_) give_up(work);
}

void C10dLink::finish(const Call& call, const Work& work, const Tensors& memory) {
  try {
    if (!work->wait(longest_wait(call))) throw std::runtime_error("the call was given up");
  } catch (...) {
    forget(work);
    fail(call, work, memory);
  }
  forget(work);
}

// Before libtorch 2.8 gloo's collectives know the timeout that the group was made with, not the
// call's. So the wait ends a little after the call should have, whatever the work does.
std::chrono::milliseconds C10dLink::longest_wait(const Call& call) {
  const bool is_message = call.kind() == Kind::Send || call.kind() == Kind::Recv;
  if (is_message || options_.engine != "gloo") return kNoTimeout;
  constexpr std::chrono::milliseconds kGrace{500};
  const std::lock_guard<std::mutex> lock(mutex_);
  return options_.timeout + kGrace;
}

void C10dLink::forget(const Work& work) {
  const std::lock_guard<std::mutex> lock(mutex_);
  under_way_.erase(work);
}

void C10dLink::fail(const Call& call, const Work& work, const Tensors& memory) {
  if (!work || !work->isCompleted()) {
    park(memory, work);
    if (call.kind() != Kind::Send && call.kind() != Kind::Recv) {
      is_touched_still_ = true;
      if (work) static_cast<void>(new auto(backend_));  // its end would wait for the work
    }
  }
  const std::string why = sentence_of(std::current_exception());
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!fault_ && options_.why_failed) fault_ = options_.why_failed();
  if (!fault_) {
    fault_ =
        CommError("the " + options_.engine + " engine failed: " + why)
            .fact("group", options_.group)
            .fact("call", call.to_string())
            .hint("a rank may have died, be late, or have made another call; look at the others");
  }
  throw *fault_;
}

void park(const std::vector<at::Tensor>& memory, c10::intrusive_ptr<c10d::Work> work) {
  static std::mutex mutex;
  static auto* const parked = new std::vector<std::pair<C10dLink::Tensors, C10dLink::Work>>();
  const std::lock_guard<std::mutex> lock(mutex);
  parked->emplace_back(memory, std::move(work));
}

}  // namespace tegula::inner::comm
