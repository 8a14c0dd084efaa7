// Dijkstra's algorithm, led by a lower bound on the time that remains (A*), with lazy deletion.
// What waits is not a state but an edge: all its ends have one cost and one bound, and most edges
// never get their turn, so their ends are never listed. The bound gets sharper while the search
// goes on: an edge whose turn comes asks again, and waits once more if its ends turn out to be
// farther from the goal. An edge that cannot beat the best way to the goal so far is not queued.
// Ties are broken by numbers alone, so that all ranks find the same way.
#include "tegula/plan/search.h"

#include <algorithm>
#include <limits>

#include "tegula/base/error.h"
#include "tegula/plan/remaining_time.h"
#include "tegula/plan/state_map.h"

namespace tegula::inner {
namespace {

constexpr std::int64_t kUnknown = std::numeric_limits<std::int64_t>::max();
constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();  // no node

// A state that was reached.
struct Node {
  std::int64_t cost = kUnknown;
  std::uint32_t parent = kNone;
};

// An edge that may be taken.
struct OpenEdge {
  Ends ends;
  std::uint32_t parent = kNone;
};

struct NothingRemains {
  static std::int64_t so_far(DistState) { return 0; }
  static std::int64_t sharpened(DistState) { return 0; }
};

struct Waiting {
  std::int64_t least;  // time of a way over the edge
  std::int64_t cost;   // up to its ends
  std::uint32_t edge;
  // For a heap with the least on top; of equals the one that is farthest on its way, then the one
  // met first.
  bool operator<(const Waiting& other) const {
    if (least != other.least) return least > other.least;
    return cost != other.cost ? cost < other.cost : edge > other.edge;
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
    const auto open = [&](const Ends& ends, std::int64_t cost, std::uint32_t parent) {
      Node& goal = nodes_[goal_];
      const std::int64_t least = cost + remaining.so_far(ends.behind);
      if (least >= goal.cost || is_reached(ends, cost)) return;
      if (contains(ends, space_.to())) {
        goal = {cost, parent};
        return;
      }
      queue(least, cost, static_cast<std::uint32_t>(open_.size()));
      open_.push_back({ends, parent});
    };
    goal_ = nodes_.number_of(space_.to());
    open({space_.from()}, 0, kNone);
    while (!queue_.empty() && queue_.front().least < nodes_[goal_].cost) {
      const Waiting next = queue_.front();
      const OpenEdge taken = open_[next.edge];
      std::pop_heap(queue_.begin(), queue_.end());
      queue_.pop_back();
      const std::int64_t least = next.cost + remaining.sharpened(taken.ends.behind);
      if (least > next.least) {
        queue(least, next.cost, next.edge);
        continue;
      }
      for_each_state(taken.ends, [&](DistState state) {
        const std::uint32_t number = nodes_.number_of(state);
        if (next.cost >= nodes_[number].cost) return;
        nodes_[number] = {next.cost, taken.parent};
        for (const Edge& onward_edge : edges_.from(state)) {
          const std::int64_t cost = onward(next.cost, onward_edge);
          if (cost < nodes_[goal_].cost) open(onward_edge.ends, cost, number);
        }
      });
    }
    return nodes_[goal_].cost != kUnknown;
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
  void queue(std::int64_t least, std::int64_t cost, std::uint32_t edge) {
    queue_.push_back({least, cost, edge});
    std::push_heap(queue_.begin(), queue_.end());
  }

  // All of them, at no higher cost.
  bool is_reached(const Ends& ends, std::int64_t cost) const {
    bool is_reached = true;
    for_each_state(ends, [&](DistState state) {
      if (!is_reached) return;
      const std::uint32_t number = nodes_.find(state);
      is_reached = number != StateMap<Node>::kNone && nodes_[number].cost <= cost;
    });
    return is_reached;
  }

  const StateSpace& space_;
  Edges edges_;
  StateMap<Node> nodes_;
  std::vector<OpenEdge> open_;
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

}  // namespace tegula::inner
