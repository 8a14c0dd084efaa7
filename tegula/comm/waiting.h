// What a thread lets go of while it waits for other ranks.
//
// Ranks may be threads of one process that share a lock, an interpreter's say: a rank that kept it
// while it waits for another would wait for ever. Whoever has such a lock says here how it is let
// go.
#pragma once

#include <memory>

namespace tegula::inner::comm {

// A lock that was let go of; it is taken again when this goes.
class LetGo {
 public:
  LetGo() = default;
  virtual ~LetGo() = default;
  LetGo(const LetGo&) = delete;
  LetGo& operator=(const LetGo&) = delete;
};

// Null if this thread does not hold the lock.
using LetGoOfLock = std::unique_ptr<LetGo> (*)();

// Of the process; to be said before its ranks wait for each other.
void set_lock_of_threads(LetGoOfLock let_go);

// To be kept while this thread waits. Costs a look at one pointer where no lock was named.
std::unique_ptr<LetGo> let_go_while_waiting();

}  // namespace tegula::inner::comm
