// Who sends which elements of a dim to whom, when every rank wants certain intervals of it: its
// neighbours' borders, a shifted or a mirrored shard.
#pragma once

#include <cstdint>
#include <vector>

#include "tegula/spec/dim_cut.h"

namespace tegula::inner {

// For each shard of a dim (counted as in Share), the intervals of the whole dim that its ranks
// want, in the order in which they will hold them. They may overlap, repeat, be empty, and reach
// beyond the dim.
using WantedIntervals = std::vector<std::vector<Interval>>;

// What the ranks of one shard do. Both lists have one entry per shard, themselves included; what
// one lists as sent to the other, in this order, the other lists as received.
struct IntervalExchange {
  std::vector<std::vector<Interval>> sent;      // parts of the tile that these ranks hold
  std::vector<std::vector<Interval>> received;  // places in the tile that is made
  std::int64_t size = 0;                        // of the tile that is made: of all that is wanted
  bool communicates = false;  // some shard wants what another has; the same for all shards

  bool operator==(const IntervalExchange&) const = default;
};

// Every wanted element is received once from the shard that holds it; places of elements that lie
// outside of the dim are not received. UsageError unless there is one list of intervals per shard,
// and for a shard that does not exist. O(intervals of all shards * their owners).
IntervalExchange interval_exchange(const DimCut& cut, const WantedIntervals& wanted,
                                   std::int64_t shard);

// The place of a rank's shard among those of the dim.
std::int64_t shard_at(const DimCut& cut, const Coordinate& at);

}  // namespace tegula::inner
