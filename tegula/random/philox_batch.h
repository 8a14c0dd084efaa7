// The random bits of many elements at once.
#pragma once

#include <cstdint>

#include "tegula/base/philox.h"
#include "tegula/random/random.h"

namespace tegula::inner {

// Law: PhiloxBatch(draw, index, step)[i] == random_bits(draw.seed, index + i * step, draw.number).
class PhiloxBatch {
 public:
  static constexpr std::int64_t kSize = 64;

  PhiloxBatch(const Draw& draw, std::uint64_t index, std::uint64_t step);

  RandomBits operator[](std::int64_t i) const {
    return {word0_[i] | std::uint64_t{word1_[i]} << 32, word2_[i] | std::uint64_t{word3_[i]} << 32};
  }

 private:
  void put(std::int64_t i, const PhiloxCounter& words);

  std::uint32_t word0_[kSize];
  std::uint32_t word1_[kSize];
  std::uint32_t word2_[kSize];
  std::uint32_t word3_[kSize];
};

}  // namespace tegula::inner
