// Dijkstra's algorithm, led by a lower bound on the time that remains (A*), with lazy deletion.
// Nodes lie in one array, found by open addressing on the state's bits; a state that cannot beat
// the best way to the goal so far is not queued. Ties go to the state met first, so that all ranks
// find the same way.
#include "tegula/plan/search.h"

#include <algorithm>
#include <limits>

#include "tegula/base/error.h"
#include "tegula/plan/remaining_time.h"

namespace tegula {
namespace {

constexpr std::int64_t kUnknown = std::numeric_limits<std::int64_t>::max();
constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

struct Node {
  DistState state;
  std::int64_t cost = kUnknown;
  std::int64_t remaining = kUnknown;
  std::uint32_t parent = kNone;
};

class Nodes {
 public:
  Nodes() : places_(std::size_t{1} << 9U, kNone) { nodes_.reserve(256); }

  Node& operator[](std::uint32_t index) { return nodes_[index]; }

  // Of the node with this state, which is made if there is none.
  std::uint32_t index_of(DistState state) {
    if (nodes_.size() * 2 >= places_.size()) grow();
    std::uint32_t& place = place_of(state);
    if (place == kNone) {
      place = static_cast<std::uint32_t>(nodes_.size());
      nodes_.push_back({state, kUnknown, kUnknown, kNone});
    }
    return place;
  }

 private:
  std::uint32_t& place_of(DistState state) {
    std::size_t at = state.bits * 0x9e3779b97f4a7c15ULL >> shift_;
    while (places_[at] != kNone && nodes_[places_[at]].state != state) {
      at = (at + 1) & (places_.size() - 1);
    }
    return places_[at];
  }

  void grow() {
    places_.assign(places_.size() * 4, kNone);
    shift_ -= 2;
    for (std::uint32_t index = 0; index < nodes_.size(); ++index) {
      place_of(nodes_[index].state) = index;
    }
  }

  std::vector<Node> nodes_;
  std::vector<std::uint32_t> places_;
  unsigned shift_ = 64 - 9;  // leaves the bits of a place
};

struct Waiting {
  std::int64_t least;  // time of a way through the node
  std::int64_t cost;   // up to it
  std::uint32_t node;
  // For a heap with the least on top.
  bool operator<(const Waiting& other) const {
    return least != other.least ? least > other.least : node > other.node;
  }
};

class Search {
 public:
  Search(const StateSpace& space, const CostModel& model) : space_(space), moves_(space, model) {}

  // `onward(cost, move)` is the cost after a move, kUnknown if it may not be made;
  // `remaining(state)` at most what it still takes from a state to the goal. False if there is no
  // way.
  template <class Onward, class Remaining>
  bool run(Onward onward, Remaining remaining) {
    const auto meet = [&](std::uint32_t index, std::int64_t cost, std::uint32_t parent) {
      Node& node = nodes_[index];
      if (cost >= node.cost) return;
      if (node.remaining == kUnknown) node.remaining = remaining(node.state);
      node.cost = cost;
      node.parent = parent;
      if (cost + node.remaining >= nodes_[goal_].cost && index != goal_) return;
      queue_.push_back({cost + node.remaining, cost, index});
      std::push_heap(queue_.begin(), queue_.end());
    };
    goal_ = nodes_.index_of(space_.to());
    meet(nodes_.index_of(space_.from()), 0, kNone);
    while (!queue_.empty()) {
      std::pop_heap(queue_.begin(), queue_.end());
      const auto [least, cost, index] = queue_.back();
      queue_.pop_back();
      if (index == goal_) return true;
      if (cost > nodes_[index].cost) continue;
      for (const Move& move : moves_.from(nodes_[index].state)) {
        const std::int64_t next = onward(cost, move);
        if (next >= nodes_[goal_].cost) continue;
        for (DistState end : moves_.ends(move)) meet(nodes_.index_of(end), next, index);
      }
    }
    return false;
  }

  std::int64_t cost() { return nodes_[goal_].cost; }

  std::vector<DistState> way() {
    std::vector<DistState> states;
    for (std::uint32_t at = goal_; nodes_[at].parent != kNone; at = nodes_[at].parent) {
      states.push_back(nodes_[at].state);
    }
    std::reverse(states.begin(), states.end());
    return states;
  }

 private:
  const StateSpace& space_;
  Moves moves_;
  Nodes nodes_;
  std::vector<Waiting> queue_;
  std::uint32_t goal_ = kNone;
};

}  // namespace

std::optional<std::vector<DistState>> fastest_way(const StateSpace& space, const CostModel& model,
                                                  std::int64_t most_bytes) {
  Search search(space, model);
  const bool is_found = search.run(
      [&](std::int64_t cost, const Move& move) {
        return move.peak_bytes <= most_bytes ? cost + move.picoseconds : kUnknown;
      },
      RemainingTime(space, model));
  if (!is_found) return std::nullopt;
  return search.way();
}

std::int64_t least_peak(const StateSpace& space, const CostModel& model) {
  Search search(space, model);
  const bool is_found = search.run(
      [&](std::int64_t cost, const Move& move) {
        return std::max(cost, std::min(move.peak_bytes, kUnknown - 1));
      },
      [](DistState) { return std::int64_t{0}; });
  if (!is_found) throw InternalError("no way leads from one distribution to another");
  return search.cost();
}

}  // namespace tegula
