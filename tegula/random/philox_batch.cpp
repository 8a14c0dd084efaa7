// The idea: each round is a loop of fixed length over independent elements, an array for each word.
// Compilers turn it into vector code that takes half the time of one element after the other.
#include "tegula/random/philox_batch.h"

namespace tegula::inner {

inline void PhiloxBatch::put(std::int64_t i, const PhiloxCounter& words) {
  word0_[i] = words[0];
  word1_[i] = words[1];
  word2_[i] = words[2];
  word3_[i] = words[3];
}

PhiloxBatch::PhiloxBatch(const Draw& draw, std::uint64_t index, std::uint64_t step) {
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

}  // namespace tegula::inner
