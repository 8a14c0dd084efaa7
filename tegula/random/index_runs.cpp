// The idea: a slice is a set of boxes, and in a box both the index and the place in memory are
// linear in the element's position. So a box is a nest of loops that may be put into any order:
// the smallest step in memory goes inside, loops that continue one another become one, and a loop
// too short to be worth its overhead changes places with the longest.
#include "tegula/random/index_runs.h"

#include <algorithm>
#include <cstdlib>
#include <span>
#include <vector>

namespace tegula::inner {
namespace {

struct Loop {
  std::int64_t count = 1;
  std::int64_t index_step = 0;
  std::int64_t offset_step = 0;
};

constexpr std::int64_t kShort = 8;

bool continues(const Loop& outer, const Loop& inner) {
  return outer.index_step == inner.index_step * inner.count &&
         outer.offset_step == inner.offset_step * inner.count;
}

// Outermost first.
std::vector<Loop> arranged(std::vector<Loop> loops) {
  std::erase_if(loops, [](const Loop& loop) { return loop.count == 1; });
  std::stable_sort(loops.begin(), loops.end(), [](const Loop& a, const Loop& b) {
    return std::abs(a.offset_step) > std::abs(b.offset_step);
  });
  std::vector<Loop> result;
  for (const Loop& loop : loops) {
    if (!result.empty() && continues(result.back(), loop)) {
      const std::int64_t outer_count = result.back().count;
      result.back() = loop;
      result.back().count *= outer_count;
    } else {
      result.push_back(loop);
    }
  }
  if (!result.empty() && result.back().count < kShort) {
    const auto longest =
        std::max_element(result.begin(), result.end(),
                         [](const Loop& a, const Loop& b) { return a.count < b.count; });
    std::swap(*longest, result.back());
  }
  return result;
}

using Visit = std::function<void(const IndexRun&)>;

void walk(std::span<const Loop> outer, IndexRun run, const Visit& visit) {
  if (outer.empty()) {
    visit(run);
    return;
  }
  for (std::int64_t i = 0; i < outer[0].count; ++i) {
    walk(outer.subspan(1), run, visit);
    run.index += outer[0].index_step;
    run.offset += outer[0].offset_step;
  }
}

void visit_box(const std::vector<Loop>& box, IndexRun start, const Visit& visit) {
  if (std::any_of(box.begin(), box.end(), [](const Loop& loop) { return loop.count == 0; })) return;
  std::vector<Loop> loops = arranged(box);
  if (!loops.empty()) {
    start.count = loops.back().count;
    start.index_step = loops.back().index_step;
    start.offset_step = loops.back().offset_step;
    loops.pop_back();
  }
  walk(loops, start, visit);
}

class Boxes {
 public:
  Boxes(const TensorSlice& slice, const Shape& index_stride, const Shape& stride,
        const Visit& visit)
      : slice_(slice), index_stride_(index_stride), stride_(stride), visit_(visit) {}

  // Chooses an interval for this dim and the ones after it; `start` is where the earlier ones
  // begin.
  void choose(std::size_t dim, IndexRun start) {
    if (dim == slice_.size()) {
      visit_box(box_, start, visit_);
      return;
    }
    std::int64_t stored = 0;
    for (const Interval& interval : slice_[dim]) {
      IndexRun next = start;
      next.index += interval.begin * index_stride_[dim];
      next.offset += stored * stride_[dim];
      box_[dim] = {interval.size, index_stride_[dim], stride_[dim]};
      choose(dim + 1, next);
      stored += interval.size;
    }
  }

 private:
  const TensorSlice& slice_;
  const Shape& index_stride_;
  const Shape& stride_;
  const Visit& visit_;
  std::vector<Loop> box_ = std::vector<Loop>(slice_.size());
};

}  // namespace

void for_each_run(const TensorSlice& slice, const Shape& whole, const Shape& stride,
                  const Visit& visit) {
  const Shape index_stride = row_major_strides(whole);
  Boxes(slice, index_stride, stride, visit).choose(0, IndexRun{});
}

}  // namespace tegula::inner
