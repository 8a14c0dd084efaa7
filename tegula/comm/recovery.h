// What the layers above comm have to do with errors of one rank (world.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tegula/comm/world.h"

namespace tegula::inner::comm {

// This rank has thrown in an op in which these ranks of the world, mine among them, take part.
// Those who wait for it and have not thrown as often learn of it.
void note_error(const World& world, const std::vector<std::int64_t>& ranks,
                const std::string& text);

// What is to be done when a world has recovered. All ranks do it, in the same order; it may
// communicate. To be said while the library is loaded.
void on_recovery(void (*action)(const World& world));

}  // namespace tegula::inner::comm
