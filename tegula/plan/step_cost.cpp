// Bytes that a rank sends, for n ranks and tiles of b bytes before and a bytes after:
//
//   all-gather      (n - 1) b           its tile to all others
//   reduce-scatter  (n - 1) a           a part to each other
//   all-reduce      2 (n - 1) b / n     a reduce-scatter and an all-gather
//   all-to-all      (n - 1) m / n       m the larger of a and b: what is not its own, in or out
//   permute         m                   its whole tile may belong to another
//
// Every step also writes the tile it makes once.
#include "tegula/plan/step_cost.h"

#include <algorithm>
#include <cmath>

#include "tegula/base/error.h"

namespace tegula::inner {
namespace {

// Of a step that stays on its rank, so that fewer steps win where nothing else differs.
constexpr std::int64_t kLocalStep = 200'000;
// Small enough that the times of a plan's steps add up without overflow.
constexpr std::int64_t kLongest = std::int64_t{1} << 56;

std::int64_t rounded(double value) {
  return std::max<std::int64_t>(1, value < 1e15 ? std::llround(value) : std::int64_t{1} << 50);
}

// Picoseconds / 1024.
std::int64_t per_byte(double gb_per_s) { return rounded(1000.0 / gb_per_s * 1024.0); }

std::int64_t sent(StepKind kind, std::int64_t ranks, std::int64_t before, std::int64_t after) {
  const std::int64_t larger = std::max(before, after);
  switch (kind) {
    case StepKind::AllGather:
      return saturating_product(ranks - 1, before);
    case StepKind::ReduceScatter:
      return saturating_product(ranks - 1, after);
    case StepKind::AllReduce:
      return saturating_product(2, before - before / ranks);
    case StepKind::AllToAll:
      return larger - larger / ranks;
    case StepKind::Permute:
      return larger;
    case StepKind::Slice:
    case StepKind::Owe:
    case StepKind::Pad:
    case StepKind::Rename:
      return 0;
  }
  throw InternalError("a StepKind has a value outside of its enum");
}

}  // namespace

Rates rates_of(const CostModel& model, const DeviceMesh& mesh,
               const std::vector<std::size_t>& axes) {
  Rates rates;
  for (std::size_t axis : axes) {
    const LinkCost& link = model.link(mesh.axes()[axis].name);
    rates.ranks *= mesh.axes()[axis].size;
    rates.latency = std::max(rates.latency, rounded(link.latency_us * 1e6));
    rates.per_byte = std::max(rates.per_byte, per_byte(link.gb_per_s));
  }
  rates.per_copied_byte = per_byte(model.copy_gb_per_s());
  return rates;
}

std::int64_t time_of(const Rates& rates, std::int64_t calls, std::int64_t bytes_sent,
                     std::int64_t bytes_written) {
  const std::int64_t sending = saturating_product(bytes_sent, rates.per_byte) / 1024;
  const std::int64_t writing = saturating_product(bytes_written, rates.per_copied_byte) / 1024;
  return std::min(saturating_product(calls, rates.latency), kLongest) +
         std::min(sending, kLongest) + std::min(writing, kLongest);
}

std::int64_t bytes_after(StepKind kind, const Rates& rates, std::int64_t bytes_before) {
  switch (kind) {
    case StepKind::AllGather:
    case StepKind::Pad:
      return saturating_product(bytes_before, rates.ranks);
    case StepKind::ReduceScatter:
    case StepKind::Slice:
      return bytes_before / rates.ranks + (bytes_before % rates.ranks == 0 ? 0 : 1);
    case StepKind::AllToAll:
    case StepKind::AllReduce:
    case StepKind::Permute:
    case StepKind::Owe:
    case StepKind::Rename:
      return bytes_before;
  }
  throw InternalError("a StepKind has a value outside of its enum");
}

StepCost cost_of(StepKind kind, const Rates& rates, std::int64_t bytes_before,
                 std::int64_t bytes_after) {
  const std::int64_t bytes = sent(kind, rates.ranks, bytes_before, bytes_after);
  const std::int64_t written = kind == StepKind::Rename ? 0 : bytes_after;
  if (communicates(kind)) return {bytes, time_of(rates, 1, bytes, written)};
  return {0, kLocalStep + time_of(rates, 0, 0, written)};
}

}  // namespace tegula::inner
