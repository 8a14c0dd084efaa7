// Where the tensors of a coalesced call stand in one run of bytes: one after the other, each from a
// multiple of 16 on, so that a cut at any such multiple goes through no element. Nobody needs to
// hold the whole run: a window of it is enough.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tegula/comm/region.h"

namespace tegula::inner::comm {

class FlatLayout {
 public:
  static constexpr std::int64_t kUnit = 16;  // the size of the largest element

  void add(std::int64_t bytes) {
    begins_.push_back(end_);
    bytes_.push_back(bytes);
    end_ += (bytes + kUnit - 1) / kUnit * kUnit;
  }

  // Of the whole run, gaps included.
  std::int64_t bytes() const { return end_; }

  // Calls visit(i, begin, end, offset) for each tensor with bytes in [first, last) of the run:
  // bytes [begin, end) of tensor i stand `offset` bytes after `first`.
  template <class Visit>
  void for_each_in(std::int64_t first, std::int64_t last, Visit visit) const {
    auto i = static_cast<std::size_t>(std::upper_bound(begins_.begin(), begins_.end(), first) -
                                      begins_.begin());
    if (i > 0) --i;
    for (; i < begins_.size() && begins_[i] < last; ++i) {
      const std::int64_t begin = std::max(first - begins_[i], std::int64_t{0});
      const std::int64_t end = std::min(last - begins_[i], bytes_[i]);
      if (begin < end) visit(i, begin, end, begins_[i] + begin - first);
    }
  }

 private:
  std::vector<std::int64_t> begins_;
  std::vector<std::int64_t> bytes_;
  std::int64_t end_ = 0;
};

// In what follows `choose(tensor)` gives the region of a tensor that is meant.

template <class Choose>
FlatLayout layout_of(std::span<const TensorRegions> tensors, Choose choose) {
  FlatLayout layout;
  for (const TensorRegions& tensor : tensors) layout.add(choose(tensor).bytes());
  return layout;
}

// Copies bytes [begin, end) of the run out of the tensors, or into them.
template <class Choose>
void pack_run(std::span<const TensorRegions> tensors, const FlatLayout& layout, Choose choose,
              std::int64_t begin, std::int64_t end, std::byte* to) {
  layout.for_each_in(
      begin, end, [&](std::size_t i, std::int64_t first, std::int64_t last, std::int64_t offset) {
        pack(choose(tensors[i]), first, last, to + offset);
      });
}

template <class Choose>
void unpack_run(const std::byte* from, std::span<const TensorRegions> tensors,
                const FlatLayout& layout, Choose choose, std::int64_t begin, std::int64_t end) {
  layout.for_each_in(
      begin, end, [&](std::size_t i, std::int64_t first, std::int64_t last, std::int64_t offset) {
        unpack(from + offset, choose(tensors[i]), first, last);
      });
}

// What stands at [0], or at a rank's place.
inline constexpr auto first_from = [](const TensorRegions& tensor) { return tensor.from[0]; };
inline constexpr auto first_to = [](const TensorRegions& tensor) { return tensor.to[0]; };
inline constexpr auto from_of = [](std::size_t rank) {
  return [rank](const TensorRegions& tensor) { return tensor.from[rank]; };
};
inline constexpr auto to_of = [](std::size_t rank) {
  return [rank](const TensorRegions& tensor) { return tensor.to[rank]; };
};

// One layout per rank, of the regions that `choose_of(rank)` chooses.
template <class ChooseOf>
std::vector<FlatLayout> layouts_by_rank(int ranks, std::span<const TensorRegions> tensors,
                                        ChooseOf choose_of) {
  std::vector<FlatLayout> layouts;
  for (int rank = 0; rank < ranks; ++rank) {
    layouts.push_back(layout_of(tensors, choose_of(static_cast<std::size_t>(rank))));
  }
  return layouts;
}

}  // namespace tegula::inner::comm
