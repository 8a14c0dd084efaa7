// Messages from one rank of a group to another, beside its collectives. Messages of a pair arrive
// in the order they were sent; a recv that does not fit the message that comes (shape, dtype, tag)
// is the group's fault. A send of at most two envelopes completes without the receiver.
//
// One thread at a time; it may be another one than the one that runs the group's collectives.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <utility>
#include <vector>

#include "tegula/comm/message.h"
#include "tegula/comm/shm/channel.h"

namespace tegula::inner::shm {

// One send or recv under way.
struct PendingMessage {
  comm::Message message;
  // Called once, by whom take_ended() gives it to; null on success. Does not throw.
  std::function<void(std::exception_ptr)> on_end;

  std::int64_t moved = 0;  // bytes, those of the head included
  bool has_begun = false;
  std::chrono::steady_clock::time_point posted{};
};

// One that has ended, and with which error.
struct EndedMessage {
  std::function<void(std::exception_ptr)> on_end;
  std::exception_ptr error;
};

class Messages {
 public:
  explicit Messages(Channel& channel);

  // Takes the message on; it moves in progress().
  void post(PendingMessage pending);
  bool is_idle() const { return pending_.empty(); }
  // Moves what can be moved now. True if anything did.
  bool progress();
  // Sleeps a little until something may be moved again; touches no message, so that others may be
  // posted meanwhile. True once in a while: time to check_peers().
  bool nap(Backoff& backoff);
  // Throws if the group is broken, or if the peer of some message is gone or too late.
  void check_peers();
  // Makes a nap() of another thread end.
  void wake() { channel_.ring(channel_.index()); }
  void fail_all(const std::exception_ptr& error);
  // What ended since it was last asked for. Nobody has been told yet: who is may post again.
  std::vector<EndedMessage> take_ended() { return std::exchange(ended_, {}); }

 private:
  bool advance(PendingMessage& pending);
  bool send_part(PendingMessage& pending);
  bool receive_part(PendingMessage& pending);
  void make_room(PendingMessage& pending, const Envelope& envelope);
  void reserve_envelopes(int peer, Kind kind);

  Channel& channel_;
  std::list<PendingMessage> pending_;
  std::vector<EndedMessage> ended_;
  std::vector<std::uint64_t> sent_parts_, received_parts_;        // per peer
  std::vector<std::uint64_t> sent_messages_, received_messages_;  // per peer
  std::atomic<std::uint32_t> bell_seen_ = 0;
};

}  // namespace tegula::inner::shm
