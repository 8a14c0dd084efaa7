// The table of transitions: which step brings a mesh axis from one kind of placement to another.
// Everything that plans, prices or carries out a step reads it here.
//
//   from \ to  R            S                        P                    M
//   R          -            slice                    owe                  owe
//   S          all-gather   all-to-all, permute *    pad, sums only       pad
//   P          all-reduce   reduce-scatter           -                    -
//   M          all-reduce   reduce-scatter           rename, sums only    rename
//
//   * all-to-all if one axis cuts the dim otherwise or cuts another dim, permute if several axes
//     change the order in which they cut one dim
//
// R to R and P to P are no transitions: an axis that owes another reduction has to pay this one
// first. What a step sends and writes stands in step_cost.h, what a rank does in tile_step.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "tegula/placement/placement.h"

namespace tegula {

enum class StepKind : std::uint8_t {
  AllGather,
  AllToAll,
  ReduceScatter,
  AllReduce,
  Permute,
  Slice,  // each rank keeps its part
  Owe,    // parts that reduce to the value are made of it
  Pad,    // zeros around a shard make it part of a sum
  Rename  // the data stays as it is; also of axes of one rank, whatever they change to
};

// "all-gather", "all-to-all", ...
std::string_view name_of(StepKind kind);
// False of Slice, Owe, Pad and Rename: they stay on their rank.
bool communicates(StepKind kind);

// The table. None: no one step leads there.
constexpr std::optional<StepKind> step_kind(PlacementKind from, PlacementKind to) {
  using enum PlacementKind;
  switch (from) {
    case Replicate:
      switch (to) {
        case Replicate:
          return std::nullopt;
        case Shard:
          return StepKind::Slice;
        case Partial:
        case MaskPartial:
          return StepKind::Owe;
      }
      break;
    case Shard:
      switch (to) {
        case Replicate:
          return StepKind::AllGather;
        case Shard:
          return StepKind::AllToAll;
        case Partial:
        case MaskPartial:
          return StepKind::Pad;
      }
      break;
    case Partial:
    case MaskPartial:
      switch (to) {
        case Replicate:
          return StepKind::AllReduce;
        case Shard:
          return StepKind::ReduceScatter;
        case Partial:
        case MaskPartial:
          if (from == Partial) return std::nullopt;
          return StepKind::Rename;
      }
      break;
  }
  return std::nullopt;
}

// Of two placements: the table's, and none where it says sums only and `to` owes another reduction.
std::optional<StepKind> step_kind(const Placement& from, const Placement& to);

}  // namespace tegula
