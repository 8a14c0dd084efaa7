// Samplers: from the 128 random bits of an element to its value. sampler_for<T>(distribution)
// checks the parameters once and gives a function of the bits that costs as little as it can.
//
// Uniform and Normal are computed in f32 (f64 for f64), from the leading bits that every type uses:
// the same draw gives about the same values in all of them. The others are computed in f64.
#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <type_traits>

#include "tegula/base/error.h"
#include "tegula/base/philox.h"
#include "tegula/random/distributions.h"
#include "tegula/random/rounding.h"
#include "tegula/random/standard_normal.h"

namespace tegula::inner {

template <class D>
constexpr bool kIsContinuous =
    std::is_same_v<D, Uniform> || std::is_same_v<D, Normal> || std::is_same_v<D, LogNormal> ||
    std::is_same_v<D, Exponential> || std::is_same_v<D, Cauchy>;

// The type that Uniform and Normal are computed in.
template <class T>
using Compute = std::conditional_t<std::is_same_v<T, double>, double, float>;

inline void require(bool holds, const Distribution& distribution, const char* wanted) {
  if (holds) return;
  throw UsageError("the parameters of a distribution make no sense")
      .fact("values", to_string(distribution))
      .hint(wanted);
}

// In [0, 1), as many bits as the type has.
template <class C>
C unit(std::uint64_t bits) {
  if constexpr (std::is_same_v<C, double>) {
    return static_cast<double>(static_cast<std::int64_t>(bits >> 11)) * 0x1p-53;
  } else {
    return static_cast<float>(static_cast<std::int32_t>(bits >> 40)) * 0x1p-24F;
  }
}

// In (0, 1), symmetric around the middle; neither end is reached.
inline double open_unit(std::uint64_t bits) {
  return (static_cast<double>(static_cast<std::int64_t>(bits >> 12)) + 0.5) * 0x1p-52;
}

template <class C>
C standard_normal(const RandomBits& bits) {
  if constexpr (std::is_same_v<C, double>) {
    return standard_normal_f64(bits);
  } else {
    return standard_normal_f32(bits);
  }
}

template <class T>
auto sampler_for(const Uniform& uniform) {
  using C = Compute<T>;
  const auto greatest = static_cast<double>(std::numeric_limits<T>::max());
  const auto [from, to] = uniform;
  require(-greatest <= from && from <= to && to <= greatest && to - from <= greatest, uniform,
          "from <= to, and both and to - from within the element type's range");
  C last = round_down<T>(to);
  if (last == to) last = next_below(static_cast<T>(last));
  C first = round_up<T>(from);
  if (first > last) first = last = static_cast<C>(static_cast<T>(static_cast<C>(from)));
  return [begin = static_cast<C>(from), length = static_cast<C>(to - from), first,
          last](const RandomBits& bits) {
    return static_cast<T>(std::clamp(unit<C>(bits.first) * length + begin, first, last));
  };
}

template <class T>
auto sampler_for(const Normal& normal) {
  using C = Compute<T>;
  require(normal.std >= 0, normal, "std is at least 0");
  return [mean = static_cast<C>(normal.mean),
          std = static_cast<C>(normal.std)](const RandomBits& bits) {
    return static_cast<T>(standard_normal<C>(bits) * std + mean);
  };
}

template <class T>
auto sampler_for(const LogNormal& normal) {
  require(normal.std > 0, normal, "std is above 0");
  return [normal](const RandomBits& bits) {
    return from_double<T>(std::exp(standard_normal<double>(bits) * normal.std + normal.mean));
  };
}

template <class T>
auto sampler_for(const Exponential& exponential) {
  require(exponential.lambda > 0, exponential, "lambda is above 0");
  const auto least = static_cast<double>(std::numeric_limits<T>::denorm_min());
  const auto greatest = static_cast<double>(std::numeric_limits<T>::max());
  return [scale = -1 / exponential.lambda, least, greatest](const RandomBits& bits) {
    return from_double<T>(std::clamp(std::log(open_unit(bits.first)) * scale, least, greatest));
  };
}

template <class T>
auto sampler_for(const Cauchy& cauchy) {
  require(cauchy.sigma > 0, cauchy, "sigma is above 0");
  return [cauchy](const RandomBits& bits) {
    const double angle = std::numbers::pi * (open_unit(bits.first) - 0.5);
    return from_double<T>(cauchy.median + cauchy.sigma * std::tan(angle));
  };
}

template <class T>
auto sampler_for(const Geometric& geometric) {
  require(0 < geometric.p && geometric.p < 1, geometric, "p is above 0 and below 1");
  return [scale = 1 / std::log1p(-geometric.p)](const RandomBits& bits) {
    const double tosses = std::ceil(std::log(open_unit(bits.first)) * scale);
    if (tosses >= static_cast<double>(std::numeric_limits<T>::max())) {
      return std::numeric_limits<T>::max();
    }
    return from_double<T>(std::max(tosses, 1.0));
  };
}

template <class T>
auto sampler_for(const Bernoulli& bernoulli) {
  require(0 <= bernoulli.p && bernoulli.p <= 1, bernoulli, "p is in [0, 1]");
  return [p = bernoulli.p](const RandomBits& bits) {
    return static_cast<T>(unit<double>(bits.first) < p ? 1 : 0);
  };
}

// The upper half of a * b.
inline std::uint64_t multiply_high(std::uint64_t a, std::uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>(static_cast<Wide>(a) * b >> 64);
}

// A whole number below `count`, or of 64 bits if that is 0: (128-bit fraction) * count, cut off.
inline std::uint64_t whole_below(std::uint64_t count, const RandomBits& bits) {
  if (count == 0) return bits.first;
  const std::uint64_t low = bits.first * count;
  const std::uint64_t carry = low + multiply_high(bits.second, count) < low ? 1 : 0;
  return multiply_high(bits.first, count) + carry;
}

// The greatest number that Integers without `high` draws.
template <class T>
std::int64_t last_integer([[maybe_unused]] std::int64_t low) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  if constexpr (std::is_integral_v<T>) {
    return static_cast<std::int64_t>(
        std::min<std::uint64_t>(std::numeric_limits<T>::max(), std::uint64_t{kMost}));
  } else {
    // all of 64 bits if it begins there, as libtorch has it
    const bool is_full = low == std::numeric_limits<std::int64_t>::min();
    return is_full ? kMost : std::int64_t{1} << std::numeric_limits<T>::digits;
  }
}

template <class T>
auto sampler_for(const Integers& integers) {
  const std::int64_t low = integers.low;
  require(!integers.high || low < *integers.high, integers, "low is below high");
  const std::int64_t last = integers.high ? *integers.high - 1 : last_integer<T>(low);
  // An x87 or quad long double holds every number of 64 bits.
  require(static_cast<long double>(std::numeric_limits<T>::lowest()) <= low &&
              last <= static_cast<long double>(std::numeric_limits<T>::max()) && low <= last,
          integers, "low and high - 1 are values of the element type");
  const std::uint64_t count =
      static_cast<std::uint64_t>(last) - static_cast<std::uint64_t>(low) + 1;
  const auto draw = [count, low](const RandomBits& bits) {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(low) + whole_below(count, bits));
  };
  if constexpr (std::is_integral_v<T>) {
    return [draw](const RandomBits& bits) { return static_cast<T>(draw(bits)); };
  } else {
    const auto first_value = static_cast<double>(round_up<T>(low));
    const auto last_value = static_cast<double>(round_down<T>(last));
    require(first_value <= last_value, integers,
            "the element type has a value between low and high");
    return [draw, first_value, last_value](const RandomBits& bits) {
      return from_double<T>(std::clamp(static_cast<double>(draw(bits)), first_value, last_value));
    };
  }
}

}  // namespace tegula::inner
