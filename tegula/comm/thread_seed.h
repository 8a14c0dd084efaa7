// What ranks that are threads of one process have instead of a generator each.
#pragma once

#include <cstdint>
#include <optional>

namespace tegula::inner::comm {

// A part of the world (World::part): the seed word of this rank's draws, which begins as the seed
// that torch's default generator has when run_ranks is called. None where the rank has a process,
// and so a generator, of its own.
struct ThreadSeed {
  std::optional<std::uint64_t> word;
};

}  // namespace tegula::inner::comm
