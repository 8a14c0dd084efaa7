// CRC-32C (Castagnoli), by which a chunk of a file is told from one that was damaged.
//
// Law: the checksum of a chunk follows from those of its pieces, wherever each was computed:
//
//   crc32c(a + b) == whole_crc32c(shifted(raw_crc32c(a), b.size()) ^ raw_crc32c(b), size of a + b)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tegula::inner {

// As RFC 3720 has it. About as fast as memory where the processor has an instruction for it.
std::uint32_t crc32c(std::span<const std::byte> bytes);

// The remainder alone, from which checksums are composed. Zeros in front do not change it. `before`
// is the remainder of the bytes in front of these.
std::uint32_t raw_crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0);
// That of the same bytes with `count` zeros behind them. O(log count).
std::uint32_t shifted(std::uint32_t raw, std::uint64_t count);
// The checksum of `size` bytes with this remainder.
std::uint32_t whole_crc32c(std::uint32_t raw, std::uint64_t size);

}  // namespace tegula::inner
