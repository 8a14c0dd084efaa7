// Neighbours among the values of a floating-point type, c10's 16-bit ones included.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace tegula::inner {

// Rounded to T, over f32 if T has 16 bits; whole numbers are cut off.
template <class T>
T from_double(double value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<T>(value);
  } else {
    return static_cast<T>(static_cast<float>(value));
  }
}

// The next smaller value; of a finite one.
template <class T>
T next_below(T value) {
  using Bits = std::conditional_t<sizeof(T) == 2, std::uint16_t,
                                  std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>;
  if (value == T(0)) return -std::numeric_limits<T>::denorm_min();
  const auto bits = std::bit_cast<Bits>(value);
  return std::bit_cast<T>(static_cast<Bits>(value > T(0) ? bits - 1 : bits + 1));
}

template <class T>
T next_above(T value) {
  return -next_below(-value);
}

// The greatest value of T that is at most x, the least that is at least x; x within T's range.
template <class T>
T round_down(long double x) {
  T value = from_double<T>(static_cast<double>(x));
  while (static_cast<long double>(value) > x) value = next_below(value);
  while (static_cast<long double>(next_above(value)) <= x) value = next_above(value);
  return value;
}

template <class T>
T round_up(long double x) {
  return -round_down<T>(-x);
}

}  // namespace tegula::inner
