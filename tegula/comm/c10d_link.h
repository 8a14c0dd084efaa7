// Work on a c10d::Backend: started, waited for, and ended with the group's fault if it fails. The
// calls of a group that go over one backend (c10d_engine.h) share one link.
//
// An error of the backend, or abort(), becomes the fault: a CommError that everything started later
// throws at once. What the network may still touch after an error is parked.
#pragma once

#include <chrono>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tegula/comm/c10d_engine.h"

namespace tegula::inner::comm {

// Any thread.
class C10dLink {
 public:
  using Work = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;

  C10dLink(c10::intrusive_ptr<c10d::Backend> backend, C10dOptions options)
      : backend_(std::move(backend)), options_(std::move(options)) {}

  const c10::intrusive_ptr<c10d::Backend>& backend() const { return backend_; }
  const std::string& engine() const { return options_.engine; }
  const std::string& group() const { return options_.group; }
  int world_rank(std::size_t member) const { return options_.ranks[member]; }
  int size() const { return backend_->getSize(); }
  int index() const { return backend_->getRank(); }

  void set_timeout(std::chrono::milliseconds timeout);
  template <class Options>
  Options with_timeout(Options options) {
    const std::lock_guard<std::mutex> lock(mutex_);
    options.timeout = options_.timeout;
    return options;
  }

  // Messages under way end with the error, collectives cannot be made to.
  void abort(const CommError& error);

  // What start() gives. `memory` is what the work reads and writes, as far as it is known here.
  template <class Start>
  Work started(const Call& call, const Tensors& memory, Start start) {
    throw_if_broken();
    Work work;
    try {
      work = start();
    } catch (...) {
      fail(call, nullptr, memory);
    }
    note_started(work);
    return work;
  }
  void finish(const Call& call, const Work& work, const Tensors& memory);

  // Whether a collective has failed half done since this was last asked: what it was given may be
  // written yet.
  bool take_is_touched_still() { return std::exchange(is_touched_still_, false); }

 private:
  void throw_if_broken();
  void note_started(const Work& work);
  void forget(const Work& work);
  std::chrono::milliseconds longest_wait(const Call& call);
  [[noreturn]] void fail(const Call& call, const Work& work, const Tensors& memory);

  c10::intrusive_ptr<c10d::Backend> backend_;
  std::mutex mutex_;
  C10dOptions options_;
  std::optional<CommError> fault_;
  std::set<Work> under_way_;
  bool is_touched_still_ = false;  // of the thread that runs collectives
};

}  // namespace tegula::inner::comm
