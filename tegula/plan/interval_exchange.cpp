// The idea: each wanted interval is looked up once (DimCut::owners), by whoever wants it and by
// whoever may hold a part of it, and both walk what they find in the same order.
#include "tegula/plan/interval_exchange.h"

#include <string>

#include "tegula/base/error.h"

namespace tegula::inner {
namespace {

// A part of what a shard wants: where its owner holds it, and where it goes.
struct Part {
  std::int64_t owner = 0;
  Interval from;
  Interval to;
};

std::vector<Part> parts_of(const DimCut& cut, const std::vector<Interval>& wanted) {
  std::vector<Part> parts;
  std::int64_t begin = 0;
  for (const Interval& interval : wanted) {
    for (const Share& share : cut.owners(interval)) {
      if (share.whole.size == 0) continue;
      parts.push_back({share.shard,
                       {share.local_begin, share.whole.size},
                       {begin + share.whole.begin - interval.begin, share.whole.size}});
    }
    begin += interval.size;
  }
  return parts;
}

void check(const DimCut& cut, const WantedIntervals& wanted, std::int64_t shard) {
  const std::int64_t shards = cut.shard_count();
  if (static_cast<std::int64_t>(wanted.size()) == shards && shard >= 0 && shard < shards) return;
  throw UsageError("an exchange of intervals needs to know what every shard wants")
      .fact("shards", std::to_string(shards))
      .fact("lists", std::to_string(wanted.size()))
      .fact("shard", std::to_string(shard))
      .hint("give one list per shard, and a shard that exists");
}

}  // namespace

IntervalExchange interval_exchange(const DimCut& cut, const WantedIntervals& wanted,
                                   std::int64_t shard) {
  check(cut, wanted, shard);
  IntervalExchange result{std::vector<std::vector<Interval>>(wanted.size()),
                          std::vector<std::vector<Interval>>(wanted.size())};
  const auto me = static_cast<std::size_t>(shard);
  for (std::size_t receiver = 0; receiver < wanted.size(); ++receiver) {
    for (const Part& part : parts_of(cut, wanted[receiver])) {
      const auto owner = static_cast<std::size_t>(part.owner);
      result.communicates = result.communicates || owner != receiver;
      if (owner == me) result.sent[receiver].push_back(part.from);
      if (receiver == me) result.received[owner].push_back(part.to);
    }
  }
  for (const Interval& interval : wanted[me]) result.size += interval.size;
  return result;
}

std::int64_t shard_at(const DimCut& cut, const Coordinate& at) {
  std::int64_t shard = 0;
  for (const CutAxis& axis : cut.axes()) shard = shard * axis.ranks + at[axis.axis];
  return shard;
}

}  // namespace tegula::inner
