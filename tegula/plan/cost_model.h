// CostModel: how long a step of a redistribution takes on this machine, as far as a choice between
// plans needs to know.
//
//   a collective over an axis   latency + bytes that a rank sends / bandwidth
//   over several axes at once   the greatest of their latencies, the least of their bandwidths
//   every step                  + bytes of the tile it makes / bandwidth of a local copy
//
// A value; compared and hashed. Times are whole picoseconds, so that ranks that plan by themselves
// with equal models choose alike, whatever their compilers do to fractions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace tegula {

// Collectives among the ranks along an axis.
struct LinkCost {
  double latency_us = 5;
  double gb_per_s = 5;
  bool operator==(const LinkCost&) const = default;
};

class CostModel {
 public:
  // For ranks on one host: LinkCost{} for every axis, copies at 8 GB/s.
  CostModel() = default;
  // Measured values: of axes by name, of all others, and of a copy. All ranks of a job must use the
  // same. UsageError unless all are positive and finite.
  static CostModel calibrated(LinkCost usual, double copy_gb_per_s,
                              const std::map<std::string, LinkCost>& by_axis = {});

  const LinkCost& link(std::string_view axis) const;
  double copy_gb_per_s() const { return copy_gb_per_s_; }

  bool operator==(const CostModel&) const = default;
  std::size_t hash() const;

 private:
  LinkCost usual_;
  double copy_gb_per_s_ = 8;
  std::map<std::string, LinkCost, std::less<>> by_axis_;
};

}  // namespace tegula
