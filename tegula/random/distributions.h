// What random numbers are drawn from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

namespace tegula::inner {

// The first five are for f16, bf16, f32 and f64, the others for whole numbers and bool too. What
// the element type cannot hold is rounded. Parameters are those that libtorch allows.

// In [from, to) of the element type: rounding reaches neither below `from` nor up to `to`. 24
// random bits (f64: 53). `from` itself if they are equal.
struct Uniform {
  double from = 0;
  double to = 1;
};
struct Normal {
  double mean = 0;
  double std = 1;
};
struct LogNormal {
  double mean = 1;
  double std = 2;
};
// Neither 0 nor infinite.
struct Exponential {
  double lambda = 1;
};
struct Cauchy {
  double median = 0;
  double sigma = 1;
};
// Tosses up to the first success: 1, 2, 3, ...; the greatest value of the type stands for more.
struct Geometric {
  double p = 0.5;
};
// 1 with probability p, else 0.
struct Bernoulli {
  double p = 0.5;
};
// Whole numbers in [low, high). Without `high`, up to the greatest value of a whole-number type,
// or up to 2^(digits of the mantissa) of a float: Integers{} is what random_() draws. No value is
// preferred by more than a part in 2^64, but for rounding in floats.
struct Integers {
  std::int64_t low = 0;
  std::optional<std::int64_t> high = {};
};

using Distribution =
    std::variant<Uniform, Normal, LogNormal, Exponential, Cauchy, Geometric, Bernoulli, Integers>;

// "Uniform(0, 1)"
std::string to_string(const Distribution& distribution);

}  // namespace tegula::inner
