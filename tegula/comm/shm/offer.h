// Results into which peers write directly. In a call every member offers its places before a
// meeting; if all of them are in blocks, everybody writes what it has for the others to where they
// want it, and all meet again when that is done.
//
// If a call fails in between, my places are retired: a peer may write still.
#pragma once

#include <c10/util/SmallVector.h>

#include <memory>
#include <span>

#include "tegula/comm/region.h"
#include "tegula/comm/shm/blocks.h"
#include "tegula/comm/shm/channel.h"

namespace tegula::inner::shm {

class Offer {
 public:
  // Before the meeting. `to[r]` is where I want what rank r has for me.
  Offer(Channel& channel, std::span<const comm::Region> to);
  ~Offer();
  Offer(const Offer&) = delete;
  Offer& operator=(const Offer&) = delete;

  // After the meeting, in the same round: whether all places of all members are in blocks. All
  // members come to the same answer. If not, nobody writes and the offer is void.
  bool is_mutual();
  // After the meeting, if all members know that nobody writes.
  void withdraw() { is_open_ = false; }
  // `places()[r]` is where rank r wants what I have for it, mine included.
  std::span<const comm::Region> places() const { return {places_.data(), places_.size()}; }
  // Meets: everybody's places are written.
  void close();

 private:
  Channel& channel_;
  std::span<const comm::Region> to_;
  c10::SmallVector<comm::Region, 4> places_;
  c10::SmallVector<std::shared_ptr<const Area>, 4> areas_;
  bool is_open_ = false;  // a place of mine may be written by peers
};

}  // namespace tegula::inner::shm
