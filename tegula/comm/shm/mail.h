// Messages from one rank of a group to another, beside its collectives. Messages of a pair arrive
// in the order they were sent; a recv that does not fit the message that comes (shape, dtype, tag)
// is the group's fault. A send of at most two envelopes completes without the receiver.
//
// One thread at a time; it may be another one than the one that runs the group's collectives.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "tegula/comm/piece.h"
#include "tegula/comm/shm/channel.h"

namespace tegula::shm {

using comm::Piece;

// One send or recv under way.
struct Letter {
  Call call;  // its kind says which
  int peer = 0;
  Piece piece;
  // Called once, on the thread that finished it; null on success.
  std::function<void(std::exception_ptr)> on_end;

  std::int64_t moved = 0;
  bool has_begun = false;
  std::chrono::steady_clock::time_point posted;
};

class Mail {
 public:
  explicit Mail(Channel& channel);

  // Takes the letter on; it moves in progress() and wait().
  void post(Letter letter);
  bool is_idle() const { return letters_.empty(); }
  // Moves what can be moved now. True if anything did.
  bool progress();
  // Sleeps a little until something may be moved again; touches no letters, so that others may be
  // posted meanwhile. True once in a while: time to look().
  bool nap(Patience& patience);
  // Throws if the group is broken, or if the peer of some letter is gone or too late.
  void look();
  // Makes a nap() of another thread end.
  void wake() { channel_.ring(channel_.index()); }
  void fail_all(const std::exception_ptr& error);

 private:
  bool advance(Letter& letter);
  bool send_part(Letter& letter);
  bool receive_part(Letter& letter);
  bool is_complete(const Letter& letter) const;

  Channel& channel_;
  std::list<Letter> letters_;
  std::vector<std::uint64_t> sent_parts_, received_parts_;        // per peer
  std::vector<std::uint64_t> sent_messages_, received_messages_;  // per peer
  std::atomic<std::uint32_t> bell_seen_ = 0;
};

}  // namespace tegula::shm
