// Memory of one rank that the other ranks of its host can map: large results live there, so that
// peers write into them without a stop on the way.
//
// A block's place on the board is never used again. Whoever is late, after a failure, writes into
// a block that has no other use: nothing can be corrupted.
//
// Every function may be called by any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>

#include "tegula/comm/shm/board.h"

namespace tegula::inner::shm {

// Results of at least this many bytes are in blocks (comm/buffers.cpp), and peers write into them
// (offer.h).
inline constexpr std::int64_t kWorthOffering = 1 << 20;

// A byte of a block, as all ranks can find it.
struct Spot {
  std::uint64_t block = 0;  // its place on the board
  std::uint64_t bytes = 0;  // of the whole block
  std::uint64_t offset = 0;
};

class Blocks {
 public:
  explicit Blocks(std::shared_ptr<Board> board) : board_(std::move(board)) {}
  ~Blocks();
  Blocks(const Blocks&) = delete;
  Blocks& operator=(const Blocks&) = delete;

  // A new block of this rank. CommError if there is not enough memory.
  std::byte* allocate(std::size_t bytes);
  // Gives the block's memory back to the kernel. False if the memory is none of mine.
  bool free(std::byte* memory);

  // Where `memory` is for the others; nothing if it is not in a block of mine.
  std::optional<Spot> spot_of(const std::byte* memory) const;
  // The block shall not serve again: a peer may still write into it.
  void retire(const std::byte* memory);
  bool is_retired(const std::byte* memory) const;

  // Another rank's block in this process, mapped as long as the handle lives. CommError if it
  // cannot be mapped.
  std::shared_ptr<const Area> map(const Spot& spot);

 private:
  using Owned = std::map<const std::byte*, Area>;
  Owned::const_iterator find(const std::byte* memory) const;

  std::shared_ptr<Board> board_;
  mutable std::mutex mutex_;
  Owned owned_;
  std::set<const std::byte*> retired_;
  std::map<std::uint64_t, std::shared_ptr<const Area>> mapped_;  // of others, by place
};

}  // namespace tegula::inner::shm
