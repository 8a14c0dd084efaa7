// The random bits of many elements at once.
#pragma once

#include <cstdint>

#include "tegula/base/philox.h"
#include "tegula/dispatch/random.h"

namespace tegula {

// Law: PhiloxBatch(draw, index, step)[i] == random_bits(draw.seed, index + i * step, draw.number).
// Each round is a loop of fixed length over independent elements, which compilers turn into vector
// code: about half the time of one element after the other.
class PhiloxBatch {
 public:
  static constexpr std::int64_t kSize = 64;

  PhiloxBatch(const Draw& draw, std::uint64_t index, std::uint64_t step) {
    for (std::int64_t i = 0; i < kSize; ++i) {
      put(i, philox_counter(index + static_cast<std::uint64_t>(i) * step, draw.number));
    }
    PhiloxKey key = philox_key(draw.seed);
    for (int round = 0; round < kPhiloxRounds; ++round) {
      for (std::int64_t i = 0; i < kSize; ++i) {
        put(i, philox_round({word0_[i], word1_[i], word2_[i], word3_[i]}, key));
      }
      key = next_philox_key(key);
    }
  }

  RandomBits operator[](std::int64_t i) const {
    return {word0_[i] | std::uint64_t{word1_[i]} << 32, word2_[i] | std::uint64_t{word3_[i]} << 32};
  }

 private:
  void put(std::int64_t i, const PhiloxCounter& words) {
    word0_[i] = words[0];
    word1_[i] = words[1];
    word2_[i] = words[2];
    word3_[i] = words[3];
  }

  std::uint32_t word0_[kSize];
  std::uint32_t word1_[kSize];
  std::uint32_t word2_[kSize];
  std::uint32_t word3_[kSize];
};

}  // namespace tegula
