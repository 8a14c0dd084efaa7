// The embedded engine, for ranks on one host: it owns the group's shared memory, the thread of its
// asynchronous collectives and the queue of its messages.
#pragma once

#include <memory>

#include "tegula/comm/engine.h"
#include "tegula/comm/shm/channel.h"
#include "tegula/comm/shm/message_queue.h"

namespace tegula::inner::shm {

class ShmEngine final : public comm::Engine, public std::enable_shared_from_this<ShmEngine> {
 public:
  // Collective over the members; what can go wrong is said in channel.h.
  ShmEngine(std::shared_ptr<Board> board, ChannelOptions options);
  // Calls that are pending end with an error, on all members.
  ~ShmEngine() override;
  ShmEngine(const ShmEngine&) = delete;
  ShmEngine& operator=(const ShmEngine&) = delete;

  // The process that made it.
  const HomeProcess& home() const { return home_; }
  // For calls on the channel itself: on the worker's thread, or under its lock.
  Channel& channel() { return channel_; }
  // body(channel). Whatever it throws breaks the group: the others shall not wait for this rank.
  template <class Body>
  void run(const Body& body) {
    try {
      body(channel_);
    } catch (...) {
      channel_.break_by_current_error();
      throw;
    }
  }

  std::string_view name() const override { return "shm"; }
  // A new adapter each time, which keeps the engine alive.
  c10::intrusive_ptr<c10d::Backend> backend() override;
  comm::Worker& worker() override { return worker_; }
  void queue(comm::Worker::Task task) override;
  void set_timeout(std::chrono::milliseconds timeout) override { channel_.set_timeout(timeout); }
  void abort(const CommError& error) override { channel_.abort(error); }
  void refuse(comm::Kind kind, const std::string& why) override;
  void refuse_message(comm::Kind kind, int peer, const std::string& why) override;

  void all_reduce(const Call& call, const std::byte* from, std::byte* to,
                  std::int64_t count) override;
  void all_gather(const Call& call, const comm::Region& from,
                  std::span<const comm::Region> to) override;
  void reduce_scatter(const Call& call, std::span<const comm::Region> from,
                      const comm::Region& to) override;
  void all_reduce_coalesced(const Call& call, TensorList tensors) override;
  void all_gather_coalesced(const Call& call, TensorList tensors) override;
  void reduce_scatter_coalesced(const Call& call, TensorList tensors) override;
  void exchange(const Call& call, std::span<const comm::Region> from,
                std::span<const comm::Region> to) override;
  void broadcast(const Call& call, const comm::Region& region) override;
  void barrier(const Call& call) override;
  void message_now(const comm::Message& message) override { messages_.run(message); }
  void message_async(const comm::Message& message, OnEnd on_end) override;

 private:
  HomeProcess home_;
  Channel channel_;
  MessageQueue messages_;
  comm::Worker worker_;
};

}  // namespace tegula::inner::shm
