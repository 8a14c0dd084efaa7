// What carries a group's calls. One implementation per engine; tegula::Group stands on this
// interface alone. Tensors come as regions of memory, and the places of results are given.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tegula/base/error.h"
#include "tegula/comm/call.h"
#include "tegula/comm/message.h"
#include "tegula/comm/region.h"
#include "tegula/comm/worker.h"

namespace tegula::inner::comm {

// What the ranks of this host know of a failure of their world; nothing: there is none.
using WhyTheWorldFailed = std::function<std::optional<CommError>()>;

// A collective is called by all members, in the same order, and by one thread of a member at a
// time: on worker(), or under its lock. It returns when this member's results are complete and its
// regions may be changed again; other members may not be that far yet. Reductions run in the order
// of the ranks, so that all members, and all engines, come to the same bits.
//
// If something goes wrong, a CommError is thrown: by all members if the engine can tell them (shm),
// else by those who notice; each later call throws it again at once. Outputs are undefined then.
//
// Messages may be sent and received at any time by any thread.
class Engine {
 public:
  virtual ~Engine() = default;

  virtual std::string_view name() const = 0;
  // Null if the engine is none of c10d's.
  virtual c10::intrusive_ptr<c10d::Backend> backend() = 0;
  // Whether it takes tensors of this device.
  virtual bool can_move(c10::DeviceType device) const { return device == c10::DeviceType::CPU; }
  virtual Worker& worker() = 0;
  // Has the worker carry out a call, after those before it.
  virtual void queue(Worker::Task task) { worker().queue(std::move(task)); }
  virtual void set_timeout(std::chrono::milliseconds timeout) = 0;
  // Ends pending and later calls with this error: of all members if the engine can, else of this
  // one.
  virtual void abort(const CommError& error) = 0;

  // This rank does not make its call, which was wrong in itself or met an error before it began; it
  // counts as one. Engines that can tell the others that wait for it do.
  virtual void refuse(Kind, const std::string& /*why*/) {}
  // The same of a message to or from `peer`, which may be a rank that there is not: any member may
  // then be the one that waits.
  virtual void refuse_message(Kind, int /*peer*/, const std::string& /*why*/) {}
  // After a collective threw: the memory of its regions. An engine whose network may still write
  // there keeps it until the process ends.
  virtual void keep_after_failure(const std::vector<at::Tensor>& /*memory*/) {}

  // Compares what the members agree on beside the coming collective. Engines whose calls carry a
  // fingerprint compare it there.
  virtual void compare_agreed(const Call&) {}

  // The reduction of all members' elements. `from` may be `to`.
  virtual void all_reduce(const Call& call, const std::byte* from, std::byte* to,
                          std::int64_t count) = 0;
  // `to[r]` receives what rank r has in `from`. Each rank must know all sizes.
  virtual void all_gather(const Call& call, const Region& from, std::span<const Region> to) = 0;
  // `to`, which is contiguous, receives the reduction of everyone's `from[my index]`.
  virtual void reduce_scatter(const Call& call, std::span<const Region> from, const Region& to) = 0;
  // The same on the tensors of a list, whose results have the bits of single calls. The call is
  // one: it is compared, fails and counts as a whole. The list may be empty.
  using TensorList = std::span<const TensorRegions>;
  virtual void all_reduce_coalesced(const Call& call, TensorList tensors) = 0;
  virtual void all_gather_coalesced(const Call& call, TensorList tensors) = 0;
  virtual void reduce_scatter_coalesced(const Call& call, TensorList tensors) = 0;
  // `to[r]` receives what rank r has in `from[my index]`: all-to-all, and with empty regions
  // scatter, gather and permute.
  virtual void exchange(const Call& call, std::span<const Region> from,
                        std::span<const Region> to) = 0;
  // All regions become the one of `call.root()`.
  virtual void broadcast(const Call& call, const Region& region) = 0;
  virtual void barrier(const Call& call) = 0;

  using OnEnd = std::function<void(std::exception_ptr)>;  // does not throw
  // Messages of a pair of ranks arrive in the order of the sends. One that carries its shape meets
  // only a recv that expects such.
  virtual void message_now(const Message& message) = 0;
  virtual void message_async(const Message& message, OnEnd on_end) = 0;
};

}  // namespace tegula::inner::comm
