// The idea: bytes are a polynomial over one bit; its remainder by the generator is linear, so
// pieces are shifted to their places and added. Bits are reversed: the first of a byte is the
// highest power.
#include "tegula/files/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tegula::inner {
namespace {

constexpr std::uint32_t kGenerator = 0x82f63b78;  // reversed, without its highest power

using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

// tables[k][b]: the remainder of byte b with k zeros behind it.
constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1) ^ ((rest & 1) != 0 ? kGenerator : 0);
    tables[0][byte] = rest;
  }
  for (std::size_t k = 1; k < tables.size(); ++k) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 0xff];
    }
  }
  return tables;
}
constexpr Tables kTables = make_tables();

std::uint32_t by_tables(std::uint32_t rest, const std::byte* at, std::size_t size) {
  const auto byte_of = [](std::uint64_t word, int k) { return (word >> (8 * k)) & 0xff; };
  for (; size >= 8; at += 8, size -= 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, 8);
    word ^= rest;
    rest = 0;
    for (int k = 0; k < 8; ++k) rest ^= kTables[static_cast<std::size_t>(7 - k)][byte_of(word, k)];
  }
  for (; size > 0; ++at, --size) {
    rest = (rest >> 8) ^ kTables[0][(rest ^ static_cast<std::uint32_t>(*at)) & 0xff];
  }
  return rest;
}

// The product of two polynomials, by the generator's remainder.
constexpr std::uint32_t product(std::uint32_t a, std::uint32_t b) {
  std::uint32_t sum = 0;
  for (std::uint32_t bit = std::uint32_t{1} << 31; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) sum ^= b;
    b = (b >> 1) ^ ((b & 1) != 0 ? kGenerator : 0);
  }
  return sum;
}

// powers[k]: x to the 8 * 2^k.
constexpr std::array<std::uint32_t, 64> make_powers() {
  std::array<std::uint32_t, 64> powers{};
  powers[0] = std::uint32_t{1} << (31 - 8);
  for (std::size_t k = 1; k < powers.size(); ++k) powers[k] = product(powers[k - 1], powers[k - 1]);
  return powers;
}
constexpr std::array<std::uint32_t, 64> kPowers = make_powers();

#if defined(__x86_64__)

// The instruction takes three cycles and can be begun in each: three streams side by side.
constexpr std::size_t kStream = 8192;
constexpr std::uint32_t kOneStream = kPowers[13];  // x to the 8 * kStream
constexpr std::uint32_t kTwoStreams = product(kOneStream, kOneStream);

__attribute__((target("sse4.2"))) std::uint64_t next_word(std::uint64_t rest, const std::byte* at) {
  std::uint64_t word = 0;
  std::memcpy(&word, at, 8);
  return _mm_crc32_u64(rest, word);
}

__attribute__((target("sse4.2"))) std::uint32_t by_instruction(std::uint32_t rest,
                                                               const std::byte* at,
                                                               std::size_t size) {
  std::uint64_t wide = rest;
  for (; size >= 3 * kStream; at += 3 * kStream, size -= 3 * kStream) {
    std::uint64_t second = 0, third = 0;
    for (const std::byte* end = at + kStream; at < end; at += 8) {
      wide = next_word(wide, at);
      second = next_word(second, at + kStream);
      third = next_word(third, at + 2 * kStream);
    }
    at -= kStream;
    wide = product(kTwoStreams, static_cast<std::uint32_t>(wide)) ^
           product(kOneStream, static_cast<std::uint32_t>(second)) ^ third;
  }
  for (; size >= 8; at += 8, size -= 8) wide = next_word(wide, at);
  rest = static_cast<std::uint32_t>(wide);
  for (; size > 0; ++at, --size) rest = _mm_crc32_u8(rest, static_cast<std::uint8_t>(*at));
  return rest;
}

bool has_instruction() { return __builtin_cpu_supports("sse4.2") != 0; }

#else

std::uint32_t by_instruction(std::uint32_t rest, const std::byte* at, std::size_t size) {
  return by_tables(rest, at, size);
}
bool has_instruction() { return false; }

#endif

}  // namespace

std::uint32_t raw_crc32c(std::span<const std::byte> bytes, std::uint32_t before) {
  static const bool by_processor = has_instruction();
  return by_processor ? by_instruction(before, bytes.data(), bytes.size())
                      : by_tables(before, bytes.data(), bytes.size());
}

std::uint32_t shifted(std::uint32_t raw, std::uint64_t count) {
  for (std::size_t k = 0; count != 0; ++k, count >>= 1) {
    if ((count & 1) != 0) raw = product(kPowers[k], raw);
  }
  return raw;
}

std::uint32_t whole_crc32c(std::uint32_t raw, std::uint64_t size) {
  return ~(raw ^ shifted(0xffffffff, size));
}

std::uint32_t crc32c(std::span<const std::byte> bytes) {
  return whole_crc32c(raw_crc32c(bytes), bytes.size());
}

}  // namespace tegula::inner
