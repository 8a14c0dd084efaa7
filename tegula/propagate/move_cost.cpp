#include "tegula/propagate/move_cost.h"

namespace tegula {
namespace {

constexpr double kPicosecondsPerMicrosecond = 1e6;

// bytes / (GB/s) = ns
std::int64_t sending(double bytes, const AxisLink& axis) {
  return static_cast<std::int64_t>(axis.link.latency_us * kPicosecondsPerMicrosecond +
                                   bytes / axis.link.gb_per_s * 1000);
}

std::int64_t copying(double bytes, const AxisLink& axis) {
  return static_cast<std::int64_t>(bytes / axis.copy_gb_per_s * 1000) + 1;
}

bool is_sum(const Placement& placement) { return owed_reduction(placement) == ReduceOp::Sum; }

}  // namespace

std::optional<MoveCost> move_cost(const Placement& from, const Placement& to, std::int64_t bytes,
                                  const AxisLink& axis, Owing owing) {
  if (from == to) return MoveCost{};
  const auto size = static_cast<double>(bytes);
  const auto ranks = static_cast<double>(axis.ranks);
  const double others = (ranks - 1) / ranks;
  if (owed_reduction(to)) {
    if (is_sum(from) && is_sum(to)) return MoveCost{0, 1};  // MaskPartial is a sum
    if (is_replicate(from) && owing == Owing::Allowed) return MoveCost{0, copying(size, axis)};
    return std::nullopt;
  }
  const Shard* cut_before = as_shard(from);
  const Shard* cut_after = as_shard(to);
  if (cut_before && cut_after && cut_before->dim() == cut_after->dim()) return MoveCost{};
  if (is_replicate(from)) return MoveCost{0, copying(size / ranks, axis)};
  if (cut_before) {
    return cut_after ? MoveCost{sending(size * others, axis), copying(size, axis)}
                     : MoveCost{sending(size * (ranks - 1), axis), copying(size * ranks, axis)};
  }
  return cut_after ? MoveCost{sending(size * others, axis), copying(size / ranks, axis)}
                   : MoveCost{sending(2 * size * others, axis), copying(size, axis)};
}

std::int64_t debt_cost(const Placement& result, std::int64_t bytes, const AxisLink& axis) {
  if (!owed_reduction(result)) return 0;
  const auto ranks = static_cast<double>(axis.ranks);
  return sending(2 * static_cast<double>(bytes) * (ranks - 1) / ranks, axis);
}

}  // namespace tegula
