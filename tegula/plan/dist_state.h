// DistState: a distribution of a tensor (placements + shard order) in 64 bits, as the planner's
// search meets it by the hundred; StateSpace says what the bits mean for one pair of ends.
//
// The states are the ways to distribute the tensor in which every axis of more than one rank is
//
//   R, or owes what it does at one of the ends (at the first: until it moves),
//   or cuts a dim: in a place after the axes that cut it before, evenly or, behind the same axes,
//   as one of the ends has it cut,
//
// for the dims that an end cuts and, up to three dims in all, the largest others, which may serve
// as a place to go to for a while. Reductions that do not commute are never owed together. Axes of
// one rank are R. Where more than kMostSlots axes have more than one rank, those that both ends
// place alike, behind the same axes, stay as they are.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tegula/spec/dtensor_spec.h"

namespace tegula::inner {

// Ten bits per slot: a symbol that says where the axis is (7), and its place among those that cut
// the same dim (3).
struct DistState {
  std::uint64_t bits = 0;
  bool operator==(const DistState&) const = default;
};

class StateSpace {
 public:
  static constexpr std::size_t kMostSlots = 6;
  static constexpr std::size_t kMostDims = 2 * kMostSlots;

  static constexpr unsigned kSymbolBits = 7;
  static constexpr unsigned kPlaceBits = 3;
  static constexpr unsigned kSlotBits = kSymbolBits + kPlaceBits;
  static constexpr std::uint64_t kSymbolMask = (1U << kSymbolBits) - 1;
  static constexpr std::uint64_t kPlaceMask = (1U << kPlaceBits) - 1;
  static constexpr std::uint64_t kSlotMask = (1U << kSlotBits) - 1;
  static constexpr std::uint64_t kAllSymbols = [] {
    std::uint64_t symbols = 0;
    for (std::size_t slot = 0; slot < kMostSlots; ++slot)
      symbols |= kSymbolMask << kSlotBits * slot;
    return symbols;
  }();
  static_assert(kSlotBits * kMostSlots <= 64 && kMostSlots <= kPlaceMask + 1);

  // What an axis can do, besides being R. Symbols of dim i: first_shard + 3 i + cut.
  enum Symbol : std::uint8_t { kReplicate = 0, kOwedAtFrom = 1, kOwedAtTo = 2, kFirstShard = 3 };
  enum CutOf : std::uint8_t { kEven = 0, kCutOfFrom = 1, kCutOfTo = 2 };
  static_assert(kFirstShard + 3 * kMostDims <= kSymbolMask + 1);

  // An axis that may move.
  struct Slot {
    std::size_t axis = 0;
    std::int64_t ranks = 1;
    bool can_merge = true;  // may share a group with others: asks for no backend of its own
    std::array<const Placement*, 2> owed{};  // at the ends, if it does and they differ
    // Of an end's own cut, where it is not even: its symbol, and the length of the piece it leaves.
    std::array<std::uint8_t, 2> special_symbol{};
    std::array<std::int64_t, 2> special_length{};
  };
  // A slot with its symbol, among those that cut a dim.
  struct Cutter {
    std::uint8_t slot = 0;
    std::uint8_t symbol = 0;
    bool operator==(const Cutter&) const = default;
  };
  struct Row {
    std::uint8_t count = 0;
    std::array<Cutter, kMostSlots> cutters;
  };
  // A dim that may be cut, by axes that may move.
  struct Dim {
    std::int64_t dim = 0;
    std::int64_t length = 0;  // of the longest piece that axes leave that cut it and stay
    Row from, to;             // at the ends
    bool is_even = true;      // both ends cut it evenly
  };
  // A state, taken apart.
  struct View {
    std::array<std::uint8_t, kMostSlots> symbols{};
    struct Cutters : Row {
      std::array<std::int64_t, kMostSlots + 1> lengths;  // of the longest piece, after each
    };
    std::array<Cutters, kMostDims> dims;
    std::int64_t bytes = 0;  // of the largest tile
  };

  // Both ends have one mesh, shape and element type, and outlive the space.
  StateSpace(const DTensorSpec& from, const DTensorSpec& to);

  // False if more than kMostSlots axes may move; then nothing else may be asked.
  bool is_searchable() const { return is_searchable_; }
  const std::vector<Slot>& slots() const { return slots_; }
  std::uint8_t slot_count() const { return static_cast<std::uint8_t>(slots_.size()); }
  const std::vector<Dim>& dims() const { return dims_; }
  const DeviceMesh& mesh() const { return from_->mesh(); }

  DistState from() const { return from_state_; }
  DistState to() const { return to_state_; }
  // The symbol of a slot at the goal.
  std::uint8_t goal_of(std::uint8_t slot) const { return symbol_of(to_state_, slot); }
  void take_apart(DistState state, View& view) const;
  // The spec, with the strides of `to`; the end itself for the ends' states.
  DTensorSpec spec_of(DistState state) const;

  bool is_even(std::size_t dim) const { return dims_[dim].is_even; }
  // Whether the axis can cut as this symbol says: evenly, or as an end has it.
  bool can_cut(Cutter by) const {
    const CutOf cut = cut_of(by.symbol);
    return cut == kEven || slots_[by.slot].special_symbol[cut - 1U] == by.symbol;
  }
  // The length of the longest piece after one more axis has cut a dim.
  std::int64_t cut_length(std::int64_t length, Cutter by) const;
  // The bytes of a tile with these lengths along dims(); those of a view but for up to two dims.
  std::int64_t bytes_with(const View& view, std::size_t dim, std::int64_t length,
                          std::size_t other_dim, std::int64_t other_length) const;
  // Which reductions can be owed together: those of one number; -1 if nothing is owed.
  int owed_class(std::uint8_t slot, std::uint8_t symbol) const;
  // Of the axes that stay.
  int fixed_owed_class() const { return fixed_owed_class_; }
  ReduceOp owed_op(std::uint8_t slot, std::uint8_t symbol) const;
  // Of a tile with one element along each of dims().
  std::int64_t other_bytes() const { return other_bytes_; }

  static std::uint8_t symbol_of(DistState state, std::uint8_t slot) {
    return static_cast<std::uint8_t>(state.bits >> (kSlotBits * slot) & kSymbolMask);
  }
  static std::uint8_t place_of(DistState state, std::uint8_t slot) {
    return static_cast<std::uint8_t>(state.bits >> (kSlotBits * slot + kSymbolBits) & kPlaceMask);
  }
  static std::uint8_t shard_symbol(std::size_t dim, CutOf cut) {
    return static_cast<std::uint8_t>(kFirstShard + 3 * dim + cut);
  }
  static std::size_t dim_of(std::uint8_t symbol) { return (symbol - kFirstShard) / 3U; }
  static CutOf cut_of(std::uint8_t symbol) { return CutOf((symbol - kFirstShard) % 3U); }
  // The state but for the order in which axes cut dims.
  static DistState without_order(DistState state) { return {state.bits & kAllSymbols}; }
  // The state but for a slot.
  static DistState with(DistState state, std::uint8_t slot, std::uint8_t symbol,
                        std::size_t place = 0) {
    const unsigned shift = kSlotBits * slot;
    const std::uint64_t value = symbol | static_cast<std::uint64_t>(place) << kSymbolBits;
    return {(state.bits & ~(kSlotMask << shift)) | value << shift};
  }

 private:
  void choose_slots();
  void choose_dims();
  void fill_rows();
  DistState state_of(const DTensorSpec& end) const;

  const DTensorSpec* from_;
  const DTensorSpec* to_;
  bool is_searchable_ = true;
  std::vector<Slot> slots_;
  std::vector<int> slot_of_axis_;  // -1: stays, or has one rank
  std::vector<Dim> dims_;
  std::int64_t other_bytes_ = 0;  // of one element along all dims_
  int fixed_owed_class_ = -1;
  DistState from_state_;
  DistState to_state_;
};

}  // namespace tegula::inner
