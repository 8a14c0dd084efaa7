// Bytes that nobody can guess.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tegula::inner {

// From the kernel. UsageError if it has none to give.
std::string random_bytes(std::size_t count);
// {0x0f, 0xa0} -> "0fa0"
std::string in_hex(std::string_view bytes);

}  // namespace tegula::inner
