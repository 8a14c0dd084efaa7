// How often memory was asked for.
#pragma once

#include <cstdint>
#include <optional>

namespace tegula::bench {

// Calls of malloc and its kin by this thread so far, operator new's among them. Empty in a build
// that cannot count them (sanitizers bring an allocator of their own).
std::optional<std::int64_t> allocations_of_this_thread();

}  // namespace tegula::bench
