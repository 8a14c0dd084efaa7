// Combines hashes of parts into one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tegula::inner {

// Finalizer of MurmurHash3: every input bit reaches every output bit.
inline std::uint64_t mix_bits(std::uint64_t bits) {
  bits ^= bits >> 33;
  bits *= 0xff51afd7ed558ccdULL;
  bits ^= bits >> 33;
  bits *= 0xc4ceb9fe1a85ec53ULL;
  return bits ^ (bits >> 33);
}

// Order matters: Hasher().add(1).add(2) differs from Hasher().add(2).add(1).
class Hasher {
 public:
  Hasher& add(std::uint64_t value) {
    state_ = mix_bits(state_ * 0x9e3779b97f4a7c15ULL + value + 1);
    return *this;
  }
  Hasher& add(std::string_view text) {
    add(text.size());
    for (char c : text) add(static_cast<unsigned char>(c));
    return *this;
  }
  template <class Range>
  Hasher& add_all(const Range& values) {
    add(values.size());
    for (const auto& value : values) add(static_cast<std::uint64_t>(value));
    return *this;
  }
  std::size_t result() const { return static_cast<std::size_t>(state_); }

 private:
  std::uint64_t state_ = 0x7465'6775'6c61ULL;
};

}  // namespace tegula::inner
