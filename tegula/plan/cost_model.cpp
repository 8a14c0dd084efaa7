// Checked once when it is made; from then on a value that is compared and hashed bit by bit.
#include "tegula/plan/cost_model.h"

#include <bit>
#include <cmath>

#include "tegula/base/error.h"
#include "tegula/base/hash.h"
#include "tegula/base/text.h"

namespace tegula {

using namespace inner;

namespace {

void check_positive(double value, const std::string& what) {
  if (std::isfinite(value) && value > 0) return;
  throw UsageError("a cost model needs a positive " + what)
      .fact(what, std::to_string(value))
      .hint("latencies are in microseconds, bandwidths in GB/s");
}

void check(const LinkCost& link, const std::string& where) {
  check_positive(link.latency_us, "latency" + where);
  check_positive(link.gb_per_s, "bandwidth" + where);
}

}  // namespace

CostModel CostModel::calibrated(LinkCost usual, double copy_gb_per_s,
                                const std::map<std::string, LinkCost>& by_axis) {
  check(usual, "");
  check_positive(copy_gb_per_s, "bandwidth of copies");
  CostModel model;
  model.usual_ = usual;
  model.copy_gb_per_s_ = copy_gb_per_s;
  for (const auto& [axis, link] : by_axis) {
    check(link, " of " + in_quotes(axis));
    model.by_axis_.emplace(axis, link);
  }
  return model;
}

const LinkCost& CostModel::link(std::string_view axis) const {
  const auto found = by_axis_.find(axis);
  return found == by_axis_.end() ? usual_ : found->second;
}

std::size_t CostModel::hash() const {
  Hasher hasher;
  const auto add = [&](double value) { hasher.add(std::bit_cast<std::uint64_t>(value)); };
  add(copy_gb_per_s_);
  add(usual_.latency_us);
  add(usual_.gb_per_s);
  for (const auto& [axis, link] : by_axis_) {
    hasher.add(axis);
    add(link.latency_us);
    add(link.gb_per_s);
  }
  return hasher.result();
}

}  // namespace tegula
