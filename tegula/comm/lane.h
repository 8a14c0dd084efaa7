// Lanes: for a rank some of whose threads communicate at the same time.
//
//   std::thread evaluation([&] {
//     tegula::Lane lane("evaluation");        // on all ranks
//     at::Tensor loss = model->forward(x);    // the same mesh, the same tensors
//   });
//
// The order of a group's calls has to be the same on all ranks, which two threads cannot promise. A
// lane has channels of its own: what a thread does while one stands meets what the other ranks do
// on the lane of that name, in its own order.
#pragma once

#include <cstdint>
#include <string>

namespace tegula {

// Of the thread that makes it, while it stands; one thread of a rank at a time on each lane. Lanes
// may be nested: the inner one counts. Groups are made for a lane when they are first used on it,
// which costs memory for each; names that recur are better than new ones.
//
// Without lanes, two threads that are in calls on one group at the same time are a UsageError.
// Random draws belong to the rank and not to the lane: draw on one lane only.
class Lane {
 public:
  explicit Lane(std::string name);
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // Of this thread; empty: none stands.
  static const std::string& current();

 private:
  std::string name_;
  const Lane* outer_;
};

namespace inner::comm {

// Equal lanes have equal numbers; that of none is 0.
std::uint64_t number_of_lane(const std::string& lane);

}  // namespace inner::comm

}  // namespace tegula
