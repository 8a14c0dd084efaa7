// Dijkstra's algorithm, led by a lower bound on the time that remains (A*), with lazy deletion. The
// bound gets sharper while the search goes on: a state whose turn comes is asked for again, and
// waits once more if it turns out to be farther. A state that cannot beat the best way to the goal
// so far is not queued. Ties are broken by numbers alone, so that all ranks find the same way.
#include "tegula/plan/search.h"

#include <algorithm>
#include <limits>

#include "tegula/base/error.h"
#include "tegula/plan/remaining_time.h"
#include "tegula/plan/state_map.h"

namespace tegula {
namespace {

constexpr std::int64_t kUnknown = std::numeric_limits<std::int64_t>::max();
constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();  // no node

struct Node {
  std::int64_t cost = kUnknown;
  std::int64_t remaining = kUnknown;
  std::uint32_t parent = kNone;
  bool is_sharpened = false;
};

struct NothingRemains {
  static std::int64_t so_far(DistState) { return 0; }
  static std::int64_t sharpened(DistState) { return 0; }
};

struct Waiting {
  std::int64_t least;  // time of a way through the node
  std::int64_t cost;   // up to it
  std::uint32_t node;
  // For a heap with the least on top; of equals the one that is farthest on its way, then the one
  // met first.
  bool operator<(const Waiting& other) const {
    if (least != other.least) return least > other.least;
    return cost != other.cost ? cost < other.cost : node > other.node;
  }
};

class Search {
 public:
  Search(const StateSpace& space, const CostModel& model) : space_(space), edges_(space, model) {}

  // `onward(cost, edge)` is the cost after an edge, kUnknown if it may not be made; `remaining`
  // bounds what it still takes from a state to the goal, as RemainingTime does. False if there is
  // no way.
  template <class Onward, class Remaining>
  bool run(Onward onward, Remaining remaining) {
    const auto meet = [&](std::uint32_t number, std::int64_t cost, std::uint32_t parent) {
      Node& node = nodes_[number];
      if (cost >= node.cost) return;
      if (node.remaining == kUnknown) node.remaining = remaining.so_far(nodes_.state(number));
      node.cost = cost;
      node.parent = parent;
      if (cost + node.remaining < nodes_[goal_].cost || number == goal_) queue(number);
    };
    goal_ = nodes_.number_of(space_.to());
    meet(nodes_.number_of(space_.from()), 0, kNone);
    while (!queue_.empty()) {
      std::pop_heap(queue_.begin(), queue_.end());
      const auto [least, cost, number] = queue_.back();
      queue_.pop_back();
      if (number == goal_) return true;
      if (cost > nodes_[number].cost) continue;
      if (has_become_farther(number, remaining)) {
        queue(number);
        continue;
      }
      for (const Edge& edge : edges_.from(nodes_.state(number))) {
        const std::int64_t next = onward(cost, edge);
        if (next >= nodes_[goal_].cost) continue;
        for (DistState end : edges_.ends(edge)) meet(nodes_.number_of(end), next, number);
      }
    }
    return false;
  }

  const std::vector<Rates>& rates() const { return edges_.rates(); }
  std::int64_t cost() { return nodes_[goal_].cost; }

  std::vector<DistState> way() {
    std::vector<DistState> states;
    for (std::uint32_t at = goal_; nodes_[at].parent != kNone; at = nodes_[at].parent) {
      states.push_back(nodes_.state(at));
    }
    std::reverse(states.begin(), states.end());
    return states;
  }

 private:
  void queue(std::uint32_t number) {
    const Node& node = nodes_[number];
    queue_.push_back({node.cost + node.remaining, node.cost, number});
    std::push_heap(queue_.begin(), queue_.end());
  }

  // Asked once for each state whose turn has come: it pays to know more before going on from it.
  template <class Remaining>
  bool has_become_farther(std::uint32_t number, Remaining& remaining) {
    Node& node = nodes_[number];
    if (node.is_sharpened) return false;
    node.is_sharpened = true;
    const std::int64_t before = node.remaining;
    node.remaining = remaining.sharpened(nodes_.state(number));
    return node.remaining > before;
  }

  const StateSpace& space_;
  Edges edges_;
  StateMap<Node> nodes_;
  std::vector<Waiting> queue_;
  std::uint32_t goal_ = kNone;
};

}  // namespace

std::optional<std::vector<DistState>> fastest_way(const StateSpace& space, const CostModel& model,
                                                  std::int64_t memory_cap) {
  Search search(space, model);
  const bool is_found = search.run(
      [&](std::int64_t cost, const Edge& edge) {
        return edge.peak_bytes <= memory_cap ? cost + edge.picoseconds : kUnknown;
      },
      RemainingTime(space, search.rates()));
  if (!is_found) return std::nullopt;
  return search.way();
}

std::int64_t least_peak(const StateSpace& space, const CostModel& model) {
  Search search(space, model);
  const bool is_found = search.run(
      [&](std::int64_t cost, const Edge& edge) {
        return std::max(cost, std::min(edge.peak_bytes, kUnknown - 1));
      },
      NothingRemains());
  if (!is_found) throw InternalError("no way leads from one distribution to another");
  return search.cost();
}

}  // namespace tegula
