// GradientPolicy: when the reduction that a leaf's gradient owes is done, per mesh axis. A value
// that prints and parses: "now", "hold over dp, async over tp, else now".
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace tegula {

enum class GradientReduction : std::uint8_t {
  Now,    // before the gradient is stored
  Async,  // started when the gradient is there; done when backward returns
  Hold    // not at all: the gradient stays owed, and adds up, until reduce_gradients
};

class GradientPolicy {
 public:
  using OverAxes = std::map<std::string, GradientReduction>;

  // The same over every axis.
  GradientPolicy(GradientReduction everywhere = GradientReduction::Now) : otherwise_(everywhere) {}
  // By the axes' names; `otherwise` over all others.
  GradientPolicy(OverAxes axes, GradientReduction otherwise = GradientReduction::Now);

  GradientReduction over(const std::string& axis) const;
  const OverAxes& axes() const { return axes_; }
  GradientReduction otherwise() const { return otherwise_; }
  bool operator==(const GradientPolicy&) const = default;

 private:
  OverAxes axes_;  // only those that differ from the others
  GradientReduction otherwise_;
};

std::string to_string(const GradientPolicy& policy);
// What to_string prints. UsageError for other texts.
GradientPolicy parse_gradient_policy(std::string_view text);

}  // namespace tegula
