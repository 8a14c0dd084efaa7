// The board: what the ranks of one world on one host share before and beneath any group. It is one
// nameless block of shared memory that holds
//
//   - who is there: a rank joins, and leaves or dies; the others can tell,
//   - a small table of keys and values, by which groups find each other,
//   - areas: regions of memory that groups allocate for themselves,
//   - the world's fault: once raised, every group of this world throws it,
//   - the errors that each rank has thrown in its ops (thrown_errors.h),
//   - the last calls of each rank (flight_ring.h).
//
// After an error the ranks may begin a new epoch: all meet, and nothing of the old one, its fault
// and its groups, counts any more.
//
// For processes the block is a memfd (mode 0600). It never has a name in a file system, so nothing
// can be left behind, nor collide, nor be guessed; the kernel frees it with the last process. A
// full /dev/shm does not matter to it. For threads the block is ordinary memory.
//
// Every function may be called by any thread. Those that look at keys or allocate hold the board
// for a moment; CommError if a rank that holds it does not go on (it was stopped) before the
// timeout.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "tegula/base/process.h"
#include "tegula/comm/shm/fault.h"
#include "tegula/comm/shm/flight_ring.h"
#include "tegula/comm/shm/thrown_errors.h"

namespace tegula::inner::shm {

struct BoardHeader;

// A region of the board's memory. `place` means the same to all ranks.
struct Area {
  std::uint64_t place = 0;
  std::byte* memory = nullptr;
  std::size_t bytes = 0;
};

enum class Presence { NotYet, Here, Left, Dead };

class Board {
 public:
  // Ranks are threads of this process and share the one object.
  static std::shared_ptr<Board> for_threads(int ranks);
  // A new block for ranks that are processes. CommError if the kernel gives no memory.
  static std::shared_ptr<Board> create(int ranks);
  // The block that another process created, by a descriptor from it (meeting.h), which the board
  // owns from now on.
  static std::shared_ptr<Board> adopt(int descriptor, int ranks);

  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  // How long a rank waits for another that holds the board; five minutes unless set.
  void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }

  int ranks() const { return ranks_; }
  bool is_for_threads() const { return descriptor_ < 0; }
  int descriptor() const { return descriptor_; }

  // The calling process (or thread) is `rank` from now on, until leave() or its death.
  // UsageError if another one is that rank already.
  void join(int rank);
  // A forked child cannot leave for its parent: nothing happens.
  void leave(int rank);
  // The process's rank; -1 before join() and for threads.
  int joined_as() const { return joined_as_; }
  // Of another rank than the caller. Costs a system call for processes.
  Presence presence(int rank) const;
  // How many processors the ranks that have joined may run on together.
  int processors() const;

  void set(const std::string& key, const std::string& value);
  std::optional<std::string> get(const std::string& key);
  // Sets the key if it holds `expected`, or is not set and `expected` is empty; returns what it
  // holds now, and `expected` if it is not set still.
  std::string compare_set(const std::string& key, const std::string& expected,
                          const std::string& value);
  std::int64_t add(const std::string& key, std::int64_t amount);
  bool remove(const std::string& key);
  std::int64_t key_count();
  // Sleeps until some key changed, at most `longest`; `seen` is an earlier version().
  std::uint32_t version() const;
  void wait_for_change(std::uint32_t seen, std::chrono::milliseconds longest) const;

  // Zeroed memory that lives as long as the board. CommError if there is not enough.
  Area allocate(std::size_t bytes) { return allocate(bytes, bytes); }
  // The same, of which only the first `reserved` bytes take memory. What follows may be touched
  // after reserve() alone.
  Area allocate(std::size_t bytes, std::size_t reserved);
  // By any rank, as often as wanted. CommError if there is not enough memory.
  void reserve(const Area& area, std::size_t begin, std::size_t bytes) const;
  // The area that another rank allocated.
  Area map(std::uint64_t place, std::size_t bytes) const;
  // Ends this rank's view of the area.
  void unmap(const Area& area) const;
  // As unmap(), and the memory goes back to the kernel whoever else has it mapped; a forked child
  // takes nothing from its parent.
  void free(const Area& area) const;

  // Of an epoch; the first is 0.
  Fault& fault(std::uint32_t epoch);

  // --- errors of ops ---
  // `rank` has thrown on this lane, in an op in which the ranks `among` take part.
  void note_error(int rank, const std::vector<int>& among, std::uint64_t lane,
                  const std::string& text);
  // What `rank` threw last; empty: nothing in this epoch.
  std::string last_error(int rank) const;
  // What `other` threw last if it has thrown more often than `me` on this lane, in what both take
  // part in.
  std::optional<std::string> error_ahead(int other, int me, std::uint64_t lane) const;

  // --- the flight recorder ---
  FlightRing& flights(int rank);
  // The last calls of all ranks of this host, for people to read.
  std::string flight_report() const;

  // --- epochs ---
  // `rank` has nothing to do with the epoch before any more and waits until all are that far. The
  // errors that it threw are forgotten, and the epoch has no fault. CommError if a rank is gone or
  // does not come within the timeout; the epoch has not begun then, and the call may be repeated.
  void begin_epoch(int rank, std::uint32_t epoch, std::chrono::milliseconds timeout);

 private:
  Board(int ranks, int descriptor);
  void map_header();
  void format();

  class Lock;
  void catch_up();  // brings index_ up to date; under the lock
  std::optional<std::string> find(const std::string& key);
  enum class Change : std::uint32_t { Removed = 0, Set = 1 };
  void append(const std::string& key, const std::string& value, Change change);

  HomeProcess home_;
  int ranks_;
  int descriptor_;  // -1: threads
  std::size_t header_bytes_;
  int joined_as_ = -1;
  BoardHeader* header_ = nullptr;

  std::atomic<std::chrono::milliseconds> timeout_{std::chrono::minutes(5)};
  std::mutex errors_mutex_;          // held while a rank of this process notes an error
  std::vector<Area> private_areas_;  // of threads; freed with the board
  std::mutex index_mutex_;
  std::uint64_t indexed_ = 0;  // bytes of the log that index_ knows
  std::unordered_map<std::string, std::string> index_;
};

}  // namespace tegula::inner::shm
