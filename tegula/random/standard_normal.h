// The standard normal distribution from the bits of one block, by Box and Muller's transform: a
// radius sqrt(-2 log u) times the sine of an angle in (-pi/2, pi/2).
//
// In f32, logarithm and sine are polynomials without branches, so that compilers turn a loop over
// elements into vector code and every machine computes the same bits. Both types use the leading
// bits of the same words: their values differ by the rounding of f32 only.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "tegula/base/philox.h"

namespace tegula::inner {

// Up to 9.4 standard deviations.
inline double standard_normal_f64(const RandomBits& bits) {
  const auto radius = static_cast<double>(static_cast<std::int64_t>(bits.first >> 1));
  const auto angle = static_cast<double>(static_cast<std::int64_t>(bits.second));
  return std::sqrt(-2 * std::log((radius + 0.5) * 0x1p-63)) *
         std::sin((angle + 0.5) * (std::numbers::pi * 0x1p-64));
}

// log((n + 1/2) / 2^31), relative error below 2e-7. With u = m 2^e and m in [sqrt(1/2), sqrt(2)) it
// is e log 2 + log(1 + f), f = m - 1; close to 1, f is counted from there and keeps its precision.
inline float log_of_fraction(std::int32_t n) {
  const auto u = std::bit_cast<std::int32_t>((static_cast<float>(n) + 0.5F) * 0x1p-31F);
  const std::int32_t e = (u - std::bit_cast<std::int32_t>(0.70710678F)) >> 23;
  const float m = std::bit_cast<float>(u - e * (1 << 23));
  const float below_one = (static_cast<float>(0x7fffffff - n) + 0.5F) * -0x1p-31F;
  const float f = e == 0 ? below_one : m - 1;
  // (log(1 + f) - f + f^2 / 2) / f^3: Chebyshev's approximation of degree 7
  float rest = -0.08101559F;
  rest = rest * f + 0.12712307F;
  rest = rest * f - 0.12972239F;
  rest = rest * f + 0.14202173F;
  rest = rest * f - 0.16642247F;
  rest = rest * f + 0.20001468F;
  rest = rest * f - 0.25000298F;
  rest = rest * f + 0.33333328F;
  const float square = f * f;
  const float log_m = f + (rest * f * square - 0.5F * square);
  return static_cast<float>(e) * std::numbers::ln2_v<float> + log_m;
}

// sin(pi a) for a in [-1/2, 1/2], relative error below 2e-7.
inline float sine_of_half_turns(float a) {
  const float square = a * a;
  float ratio = 0.07765766F;  // sin(pi a) / a: Chebyshev's approximation of degree 4 in a^2
  ratio = ratio * square - 0.5982913F;
  ratio = ratio * square + 2.5500774F;
  ratio = ratio * square - 5.1677103F;
  ratio = ratio * square + 3.1415927F;
  return a * ratio;
}

// Up to 6.6 standard deviations.
inline float standard_normal_f32(const RandomBits& bits) {
  const float log = log_of_fraction(static_cast<std::int32_t>(bits.first >> 33));
  const auto angle = static_cast<float>(static_cast<std::int32_t>(bits.second >> 32));
  return std::sqrt(-2 * log) * sine_of_half_turns((angle + 0.5F) * 0x1p-32F);
}

}  // namespace tegula::inner
