// Philox4x32-10: random bits as a pure function of a counter and a key (J. K. Salmon, M. A. Moraes,
// R. O. Dror, D. E. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011). For one key,
// different counters give different blocks. It passes the usual batteries of tests; it is no
// cipher.
#pragma once

#include <array>
#include <cstdint>

namespace tegula::inner {

using PhiloxCounter = std::array<std::uint32_t, 4>;
using PhiloxKey = std::array<std::uint32_t, 2>;
using PhiloxBlock = std::array<std::uint32_t, 4>;

// One of the ten rounds, and the key of the next.
constexpr PhiloxCounter philox_round(const PhiloxCounter& counter, const PhiloxKey& key) {
  const std::uint64_t even = std::uint64_t{0xD2511F53} * counter[0];
  const std::uint64_t odd = std::uint64_t{0xCD9E8D57} * counter[2];
  return {static_cast<std::uint32_t>(odd >> 32) ^ counter[1] ^ key[0],
          static_cast<std::uint32_t>(odd),
          static_cast<std::uint32_t>(even >> 32) ^ counter[3] ^ key[1],
          static_cast<std::uint32_t>(even)};
}
constexpr PhiloxKey next_philox_key(const PhiloxKey& key) {
  return {key[0] + 0x9E3779B9, key[1] + 0xBB67AE85};  // the golden ratio, sqrt(3) - 1
}
constexpr int kPhiloxRounds = 10;

constexpr PhiloxBlock philox4x32(PhiloxCounter counter, PhiloxKey key) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    counter = philox_round(counter, key);
    key = next_philox_key(key);
  }
  return counter;
}

constexpr PhiloxKey philox_key(std::uint64_t seed) {
  return {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
}
constexpr PhiloxCounter philox_counter(std::uint64_t low, std::uint64_t high) {
  return {static_cast<std::uint32_t>(low), static_cast<std::uint32_t>(low >> 32),
          static_cast<std::uint32_t>(high), static_cast<std::uint32_t>(high >> 32)};
}

// A block as two words.
struct RandomBits {
  std::uint64_t first = 0;
  std::uint64_t second = 0;
  bool operator==(const RandomBits&) const = default;
};

// The block of a seed (the key) and of a pair of numbers (the counter).
constexpr RandomBits random_bits(std::uint64_t seed, std::uint64_t low, std::uint64_t high) {
  const PhiloxBlock block = philox4x32(philox_counter(low, high), philox_key(seed));
  return {block[0] | std::uint64_t{block[1]} << 32, block[2] | std::uint64_t{block[3]} << 32};
}

}  // namespace tegula::inner
