// Each distribution is the one that its name says. Seeds are fixed, so no test is a matter of luck;
// tolerances are those that a correct sampler misses with a probability below 1e-5: 5 standard
// deviations of an estimate, 2.5 / sqrt(n) for Kolmogorov and Smirnov's distance.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numbers>
#include <set>
#include <vector>

#include "tegula/random/random_fill.h"
#include "tegula/random/rounding.h"

namespace tegula::inner {
namespace distributions_test {

constexpr std::int64_t kCount = 1 << 18;
constexpr Draw kDraw{.seed = 99, .number = 3};
const std::vector<at::ScalarType> kFloats = {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble};

at::Tensor sample(const Distribution& distribution, at::ScalarType type, const Draw& draw = kDraw) {
  at::Tensor values = at::empty({kCount}, type);
  fill_random(values, distribution, draw);
  return values;
}

std::vector<double> sorted(const at::Tensor& values) {
  const at::Tensor x = std::get<0>(values.to(at::kDouble).sort());
  return {x.const_data_ptr<double>(), x.const_data_ptr<double>() + x.numel()};
}

// The greatest distance between the distribution of the samples and the one that is wanted.
double distance(const at::Tensor& values, const std::function<double(double)>& cdf) {
  const std::vector<double> x = sorted(values);
  const auto n = static_cast<double>(x.size());
  double greatest = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double wanted = cdf(x[i]);
    const auto below = static_cast<double>(i);
    greatest = std::max({greatest, (below + 1) / n - wanted, wanted - below / n});
  }
  return greatest;
}

void expect_distribution(const Distribution& distribution,
                         const std::function<double(double)>& cdf) {
  for (at::ScalarType type : {at::kFloat, at::kDouble}) {
    EXPECT_LT(distance(sample(distribution, type), cdf), 2.5 / std::sqrt(kCount))
        << to_string(distribution) << " " << type;
  }
}

double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }

// In every floating type; `kurtosis` is the fourth moment over the variance squared.
void expect_moments(const Distribution& distribution, double mean, double variance,
                    double kurtosis) {
  for (at::ScalarType type : kFloats) {
    const double rounding = type == at::kBFloat16 ? 0x1p-8 : type == at::kHalf ? 0x1p-11 : 0x1p-24;
    const at::Tensor values = sample(distribution, type).to(at::kDouble);
    const double n = static_cast<double>(kCount);
    EXPECT_NEAR(values.mean().item<double>(), mean,
                5 * std::sqrt(variance / n) + rounding * (std::abs(mean) + std::sqrt(variance)))
        << to_string(distribution) << " " << type;
    EXPECT_NEAR(values.var().item<double>(), variance,
                variance * (5 * std::sqrt((kurtosis - 1) / n) + 4 * rounding))
        << to_string(distribution) << " " << type;
  }
}

TEST(Distributions, Uniform) {
  expect_distribution(Uniform{-2, 5}, [](double x) { return (x + 2) / 7; });
  expect_moments(Uniform{}, 0.5, 1.0 / 12, 1.8);
}

TEST(Distributions, Normal) {
  expect_distribution(Normal{3, 2}, [](double x) { return normal_cdf((x - 3) / 2); });
  expect_moments(Normal{}, 0, 1, 3);
  expect_moments(Normal{0.5, 2}, 0.5, 4, 3);
  EXPECT_TRUE((sample(Normal{1.5, 0}, at::kFloat) == 1.5).all().item<bool>());
}

TEST(Distributions, LogNormal) {
  expect_distribution(LogNormal{0.5, 0.25},
                      [](double x) { return normal_cdf((std::log(x) - 0.5) / 0.25); });
}

TEST(Distributions, Exponential) {
  expect_distribution(Exponential{3}, [](double x) { return -std::expm1(-3 * x); });
  expect_moments(Exponential{2}, 0.5, 0.25, 9);
}

TEST(Distributions, Cauchy) {
  expect_distribution(Cauchy{1, 2},
                      [](double x) { return 0.5 + std::atan((x - 1) / 2) / std::numbers::pi; });
}

TEST(Distributions, Geometric) {
  for (at::ScalarType type : {at::kLong, at::kFloat, at::kByte}) {
    const at::Tensor values = sample(Geometric{0.3}, type);
    EXPECT_EQ(values.min().item<double>(), 1);
    for (int tosses = 1; tosses <= 12; ++tosses) {
      const double wanted = 0.3 * std::pow(0.7, tosses - 1);
      EXPECT_NEAR((values == tosses).to(at::kDouble).mean().item<double>(), wanted,
                  5 * std::sqrt(wanted / kCount))
          << type << " " << tosses;
    }
  }
  EXPECT_EQ(sample(Geometric{0.001}, at::kByte).max().item<std::int64_t>(), 255);
  EXPECT_EQ(sample(Geometric{1e-9}, at::kHalf).max().item<double>(), 65504);
}

TEST(Distributions, Bernoulli) {
  for (at::ScalarType type : {at::kBool, at::kLong, at::kBFloat16, at::kDouble}) {
    const at::Tensor values = sample(Bernoulli{0.2}, type);
    EXPECT_TRUE(((values == 0) | (values == 1)).all().item<bool>());
    EXPECT_NEAR(values.to(at::kDouble).mean().item<double>(), 0.2,
                5 * std::sqrt(0.2 * 0.8 / kCount));
    EXPECT_TRUE((sample(Bernoulli{0}, type) == 0).all().item<bool>());
    EXPECT_TRUE((sample(Bernoulli{1}, type) == 1).all().item<bool>());
  }
}

TEST(Distributions, IntegersHitEveryValueEquallyOften) {
  for (at::ScalarType type : {at::kLong, at::kInt, at::kChar, at::kFloat, at::kHalf}) {
    const at::Tensor values = sample(Integers{-50, 50}, type).to(at::kLong);
    const at::Tensor counts = (values + 50).bincount({}, 100).to(at::kDouble);
    EXPECT_EQ(counts.numel(), 100);
    const double each = kCount / 100.0;
    // Chi-squared with 99 degrees of freedom: 99 +- 14.1.
    EXPECT_NEAR((counts - each).square().sum().item<double>() / each, 99, 5 * 14.1) << type;
  }
}

TEST(Distributions, IntegersOfLargeRangesAreNotBiased) {
  // 3/4 of all 64-bit numbers. The remainder of 64 random bits would prefer the lowest third, the
  // upper half of their product with the count would prefer every third number.
  const std::int64_t low = std::numeric_limits<std::int64_t>::min();
  const Integers integers{low, std::int64_t{1} << 62};
  expect_distribution(integers, [](double x) { return x / 0x1.8p63 + 2.0 / 3; });
  const at::Tensor remainders = at::remainder(sample(integers, at::kLong), 3);
  for (int remainder = 0; remainder < 3; ++remainder) {
    EXPECT_NEAR((remainders == remainder).to(at::kDouble).mean().item<double>(), 1.0 / 3,
                5 * std::sqrt(2.0 / 9 / kCount));
  }
}

TEST(Distributions, IntegersWithoutAnEndGoAsFarAsLibtorchs) {
  const std::map<at::ScalarType, double> greatest = {
      {at::kByte, 255},     {at::kChar, 127},     {at::kShort, 0x1p15}, {at::kInt, 0x1p31},
      {at::kLong, 0x1p63},  {at::kBool, 1},       {at::kHalf, 2048},    {at::kBFloat16, 256},
      {at::kFloat, 0x1p24}, {at::kDouble, 0x1p53}};
  for (const auto& [type, most] : greatest) {
    const at::Tensor values = sample(Integers{}, type).to(at::kDouble);
    EXPECT_GE(values.min().item<double>(), 0) << type;
    EXPECT_LE(values.max().item<double>(), most) << type;
    EXPECT_GE(values.max().item<double>(), most * 0.9999) << type;
    EXPECT_NEAR(values.mean().item<double>() / most, 0.5, 5 * 0.5 / std::sqrt(kCount)) << type;
  }
  const at::Tensor any = sample(Integers{std::numeric_limits<std::int64_t>::min(), {}}, at::kLong);
  EXPECT_NEAR((any < 0).to(at::kDouble).mean().item<double>(), 0.5, 5 * 0.5 / std::sqrt(kCount));
}

TEST(Distributions, IntegersOfFloatsStayInTheirRange) {
  const at::Tensor values = sample(Integers{0, 65504}, at::kHalf).to(at::kDouble);
  EXPECT_LT(values.max().item<double>(), 65504);
  EXPECT_TRUE((sample(Integers{2049, 2051}, at::kHalf) == 2050).all().item<bool>());
}

TEST(Distributions, UniformStaysInItsRangeInEveryType) {
  for (const Uniform& range : std::vector<Uniform>{
           {0, 1}, {-1, 1}, {0.1, 0.7}, {-3, -2}, {100, 101}, {1e-7, 2e-7}, {1, 1.0078125}}) {
    for (at::ScalarType type : kFloats) {
      const at::Tensor values = sample(range, type).to(at::kDouble);
      EXPECT_GE(values.min().item<double>(), range.from) << type << to_string(range);
      EXPECT_LT(values.max().item<double>(), range.to) << type << to_string(range);
    }
  }
}

TEST(Distributions, UniformBetweenNeighboursOfATypeIsItsBeginning) {
  EXPECT_TRUE((sample(Uniform{100, 100.1}, at::kBFloat16) == 100).all().item<bool>());
  EXPECT_TRUE((sample(Uniform{-65504, -65503}, at::kHalf) == -65504).all().item<bool>());
  EXPECT_TRUE((sample(Uniform{2.5, 2.5}, at::kFloat) == 2.5).all().item<bool>());
}

TEST(Distributions, UniformUsesAllBitsOfItsType) {
  const auto different = [](at::ScalarType type) {
    const std::vector<double> values = sorted(sample(Uniform{}, type));
    return std::set<double>(values.begin(), values.end()).size();
  };
  EXPECT_EQ(different(at::kDouble), kCount);
  EXPECT_GT(different(at::kFloat), kCount - 2500);  // n^2 / 2 / 2^24 = 2048 pairs collide
  EXPECT_GT(different(at::kHalf), 4000U);
  EXPECT_GT(different(at::kBFloat16), 1000U);
}

TEST(Distributions, ExponentialIsNeitherZeroNorInfinite) {
  for (at::ScalarType type : kFloats) {
    for (double lambda : {1e-300, 1e-5, 1.0, 1e5, 1e300}) {
      const at::Tensor values = sample(Exponential{lambda}, type);
      EXPECT_GT(values.min().item<double>(), 0) << type << lambda;
      EXPECT_TRUE(values.isfinite().all().item<bool>()) << type << lambda;
    }
  }
}

TEST(Distributions, FloatsOfAnyPrecisionAreAboutTheSame) {
  for (const Distribution& distribution :
       std::vector<Distribution>{Uniform{}, Normal{}, LogNormal{0, 1}, Exponential{}}) {
    const at::Tensor exact = sample(distribution, at::kDouble);
    EXPECT_TRUE(at::allclose(sample(distribution, at::kFloat).to(at::kDouble), exact, 1e-5, 2e-6));
    EXPECT_TRUE(at::allclose(sample(distribution, at::kHalf).to(at::kDouble), exact, 1e-3, 2e-6));
    EXPECT_TRUE(
        at::allclose(sample(distribution, at::kBFloat16).to(at::kDouble), exact, 8e-3, 2e-6));
  }
}

TEST(Distributions, NeighboursAndDrawsAreNotCorrelated) {
  const at::Tensor x = sample(Normal{}, at::kDouble);
  const auto correlation = [](const at::Tensor& a, const at::Tensor& b) {
    return (a * b).mean().item<double>();
  };
  const double tolerance = 5 / std::sqrt(kCount);
  for (std::int64_t lag : {1, 2, 3, 4, 64, 1024}) {
    const at::Tensor later = x.narrow(0, lag, kCount - lag);
    EXPECT_NEAR(correlation(x.narrow(0, 0, kCount - lag), later), 0, 1.01 * tolerance) << lag;
  }
  EXPECT_NEAR(correlation(x, sample(Normal{}, at::kDouble, {99, 4})), 0, tolerance);
  EXPECT_NEAR(correlation(x, sample(Normal{}, at::kDouble, {100, 3})), 0, tolerance);
}

TEST(Rounding, NeighboursAreNext) {
  EXPECT_EQ(next_below(1.0F), std::nextafter(1.0F, 0.0F));
  EXPECT_EQ(next_above(-1.0), std::nextafter(-1.0, 0.0));
  EXPECT_EQ(next_below(0.0), -std::numeric_limits<double>::denorm_min());
  EXPECT_EQ(static_cast<float>(next_below(c10::Half(1))), 1 - 0x1p-11F);
  EXPECT_EQ(static_cast<float>(next_above(c10::BFloat16(1))), 1 + 0x1p-7F);
  EXPECT_EQ(static_cast<float>(round_down<c10::Half>(2049.5L)), 2048);
  EXPECT_EQ(static_cast<float>(round_up<c10::Half>(2049.5L)), 2050);
  EXPECT_EQ(round_down<double>(9007199254740993.0L), 9007199254740992.0);
  EXPECT_EQ(round_up<double>(9007199254740993.0L), 9007199254740994.0);
}

}  // namespace distributions_test
}  // namespace tegula::inner
