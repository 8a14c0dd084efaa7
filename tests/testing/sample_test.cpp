// The notation of samples.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tegula/testing/played_call.h"
#include "tegula/testing/sample.h"
#include "tests/placement/usage_error.h"

namespace tegula::inner {
namespace sample_test {

template <class Call>
void expect_refused(Call call, const std::string& text) {
  const std::string error = usage_error_of(call);
  EXPECT_NE(error.find(text), std::string::npos) << error;
}

TEST(Samples, HaveShapesStridesAndElementTypes) {
  const auto arguments = arguments_of({"add.Tensor", "f64[4, 6], i32[4, 6] strides [1, 4]"}, 1);
  EXPECT_EQ(arguments[0].toTensor().sizes(), (at::IntArrayRef{4, 6}));
  EXPECT_EQ(arguments[0].toTensor().scalar_type(), at::kDouble);
  EXPECT_EQ(arguments[1].toTensor().strides(), (at::IntArrayRef{1, 4}));
  EXPECT_EQ(arguments[1].toTensor().scalar_type(), at::kInt);
  EXPECT_EQ(arguments[2].toScalar().toLong(), 1) << "the default of alpha";
}

TEST(Samples, NameArguments) {
  const auto arguments = arguments_of({"std.correction", "f64[4, 6], [1], keepdim=true"}, 1);
  EXPECT_EQ(arguments[1].toIntVector(), std::vector<std::int64_t>{1});
  EXPECT_TRUE(arguments[2].isNone());
  EXPECT_TRUE(arguments[3].toBool());
}

TEST(Samples, KeepToTheirBounds) {
  const at::Tensor indices = arguments_of({"neg", "i64[100] in 2..5"}, 1)[0].toTensor();
  EXPECT_EQ(indices.min().item<std::int64_t>(), 2);
  EXPECT_EQ(indices.max().item<std::int64_t>(), 5);
  const at::Tensor numbers = arguments_of({"neg", "f64[100] in -0.5..0.5"}, 1)[0].toTensor();
  EXPECT_LE(numbers.abs().max().item<double>(), 0.5);
}

TEST(Samples, AreTheSameForTheSameSeed) {
  const auto numbers = [](std::uint64_t seed) {
    return arguments_of({"neg", "f64[4, 6]"}, seed)[0].toTensor();
  };
  EXPECT_TRUE(at::equal(numbers(1), numbers(1)));
  EXPECT_FALSE(at::equal(numbers(1), numbers(2)));
}

TEST(Samples, OfUnknownOperatorsAreRefused) {
  expect_refused([] { operator_of({"no_such_op", ""}); }, "knows no operator of this name");
}

TEST(Samples, ThatDoNotFitTheOperatorAreRefused) {
  expect_refused([] { arguments_of({"neg", "f64[4], 3"}, 1); }, "no more arguments");
  expect_refused([] { arguments_of({"mm", "f64[4, 6]"}, 1); }, "mat2");
  expect_refused([] { arguments_of({"neg", "f64[4] in 3"}, 1); }, "bounds like 0..6");
}

TEST(Samples, OverListsArePlayedWithOneMember) {
  const Sample two{"_foreach_exp", "{f64[4], f64[5]}"};
  expect_refused([&] { PlayedCall(two, 2, 1); }, "one member per list");
}

}  // namespace sample_test
}  // namespace tegula::inner
