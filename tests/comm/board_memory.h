// How much memory a board for processes takes.
#pragma once

#include <sys/stat.h>

#include <cstdint>

#include "tegula/comm/shm/board.h"

namespace tegula::inner::shm {

inline std::int64_t memory_of(const Board& board) {
  struct stat file{};
  fstat(board.descriptor(), &file);
  return file.st_blocks * 512;
}

}  // namespace tegula::inner::shm
