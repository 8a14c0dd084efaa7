// What carries a group's calls. One implementation per engine; tegula::Group stands on this
// interface alone. Tensors come as pieces of CPU memory and results' places are given.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "tegula/base/error.h"
#include "tegula/comm/call.h"
#include "tegula/comm/piece.h"
#include "tegula/comm/worker.h"

namespace tegula::comm {

// Collectives are called in the same order by all members, and by one thread of a member at a time:
// on worker(), or under its lock. What they promise is said in shm/collectives.h. Messages may be
// sent and received at any time by any thread.
class Engine {
 public:
  virtual ~Engine() = default;

  virtual std::string_view name() const = 0;
  // Null if the engine is none of c10d's.
  virtual c10::intrusive_ptr<c10d::Backend> backend() const = 0;
  virtual Worker& worker() = 0;
  virtual void set_timeout(std::chrono::milliseconds timeout) = 0;
  // Ends pending and later calls with this error: of all members if the engine can, else of this
  // one.
  virtual void abort(const CommError& error) = 0;

  // This rank's call was wrong in itself and is not made; it counts as one. Engines that can tell
  // the others that wait for it do.
  virtual void refuse(Kind, const UsageError&) {}

  virtual void all_reduce(const Call& call, const std::byte* from, std::byte* to,
                          std::int64_t count) = 0;
  virtual void all_gather(const Call& call, const Piece& from, std::span<const Piece> to) = 0;
  virtual void reduce_scatter(const Call& call, std::span<const Piece> from, const Piece& to) = 0;
  virtual void exchange(const Call& call, std::span<const Piece> from,
                        std::span<const Piece> to) = 0;
  virtual void broadcast(const Call& call, const Piece& piece) = 0;
  virtual void barrier(const Call& call) = 0;

  using OnEnd = std::function<void(std::exception_ptr)>;
  // The call's kind is Send or Recv.
  virtual void message_now(const Call& call, const Piece& piece, int peer) = 0;
  virtual void message_later(const Call& call, const Piece& piece, int peer, OnEnd on_end) = 0;
};

}  // namespace tegula::comm
