// Whether what is registered for an operator is true. In a test of your own:
//
//   EXPECT_TRUE(verify_rule("my::op", {"f64[4, 6], f64[6, 5]", "f64[3, 3], f64[3, 3]"}));
#pragma once

#include <concepts>
#include <iosfwd>
#include <string>
#include <vector>

namespace tegula {

struct RuleVerdict {
  // What is wrong: which sample, on which mesh, with which placements. Empty: nothing was found.
  std::vector<std::string> faults;

  explicit operator bool() const { return faults.empty(); }
  // For a testing::AssertionResult: says what is wrong.
  template <class Result>
    requires requires(Result result, std::string text) {
      result << text;
      result.failure_message();
    }
  operator Result() const {  // NOLINT(google-explicit-constructor): EXPECT_TRUE asks for it
    Result result(faults.empty());
    for (const std::string& fault : faults) result << fault << "\n";
    return result;
  }
};

// The op on samples (their arguments as text: testing/sample.h) with dims of different sizes: every
// move that its rule allows is played on 1 to 4 ranks of one axis; then the op is called on 2, 3
// and 2 x 2 ranks (threads), operands placed in many ways, and results, what it writes and
// gradients are compared with those of plain tensors. Slow: seconds.
RuleVerdict verify_rule(const std::string& op, const std::vector<std::string>& samples);

}  // namespace tegula
