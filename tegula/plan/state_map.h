// StateMap: values by DistState, in the order in which the states were first asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "tegula/plan/dist_state.h"

namespace tegula::inner {

// Open addressing on the state's bits; values lie in one array and are named by their number, which
// stays theirs. References are valid until the next number_of.
template <class Value>
class StateMap {
 public:
  using Number = std::uint32_t;
  static constexpr Number kNone = std::numeric_limits<Number>::max();

  StateMap() : places_(std::size_t{1} << kFirstBits, kNone) {
    entries_.reserve(std::size_t{1} << (kFirstBits - 1));
  }

  // Of the state; a new one gets a default value.
  Number number_of(DistState state) {
    if (entries_.size() * 2 >= places_.size()) grow();
    Number& place = place_of(state);
    if (place == kNone) {
      place = static_cast<Number>(entries_.size());
      entries_.push_back({state, Value{}});
    }
    return place;
  }
  // kNone if it was never asked for.
  Number find(DistState state) const { return const_cast<StateMap*>(this)->place_of(state); }

  Value& operator[](Number number) { return entries_[number].value; }
  const Value& operator[](Number number) const { return entries_[number].value; }
  DistState state(Number number) const { return entries_[number].state; }

 private:
  static constexpr unsigned kFirstBits = 11;
  struct Entry {
    DistState state;
    Value value;
  };

  Number& place_of(DistState state) {
    std::size_t at = state.bits * 0x9e3779b97f4a7c15ULL >> shift_;
    while (places_[at] != kNone && entries_[places_[at]].state != state) {
      at = (at + 1) & (places_.size() - 1);
    }
    return places_[at];
  }

  void grow() {
    places_.assign(places_.size() * 4, kNone);
    shift_ -= 2;
    for (Number number = 0; number < entries_.size(); ++number) {
      place_of(entries_[number].state) = number;
    }
  }

  std::vector<Entry> entries_;
  std::vector<Number> places_;
  unsigned shift_ = 64 - kFirstBits;  // leaves the bits of a place
};

}  // namespace tegula::inner
