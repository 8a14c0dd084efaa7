// Ways to cut images, for tests of ops that slide windows over them.
#pragma once

#include "tests/tensor/as_plain.h"

namespace tegula {

// The first input is cut along its dims from `first` on, evenly, in given sizes and in blocks, by
// one axis or two; on two axes also with another dim cut, too, or a sum owed. Other inputs are
// replicated, or cut along dim 0.
inline std::vector<Way> image_ways(const DeviceMesh& mesh, const Tensors& inputs,
                                   std::int64_t first) {
  std::vector<Placements> images;
  for (std::int64_t dim = first; dim < inputs.front().dim(); ++dim) {
    const std::int64_t size = inputs.front().size(dim);
    const std::int64_t ranks = mesh.axes()[0].size;
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(ranks), 0);
    sizes[0] = size / 3;
    sizes.back() += size - sizes[0];
    const Placement even = Shard(dim);
    const Placement ragged = Shard(dim, Cut::ragged(sizes));
    const Placement blocks = Shard(dim, Cut::in_blocks(2));
    if (mesh.ndim() == 1) {
      for (const Placement& placement : {even, ragged, blocks}) images.push_back({placement});
      continue;
    }
    const std::int64_t other = dim + 1 < inputs.front().dim() ? dim + 1 : first;
    images.push_back({even, Shard(other)});
    images.push_back({ragged, Replicate()});
    images.push_back({Shard(0), even});
    images.push_back({blocks, Shard(1)});
    images.push_back({Partial(), even});
  }
  std::vector<Way> ways;
  for (const Placements& placements : images) {
    Way way{placements};
    for (std::size_t k = 1; k < inputs.size(); ++k) {
      const bool is_cut = (ways.size() + k) % 4 == 0 && inputs[k].dim() > 0;
      Placements other(mesh.ndim(), Replicate());
      if (is_cut) other.back() = Shard(0);
      way.push_back(other);
    }
    ways.push_back(way);
  }
  return ways;
}

inline void expect_as_plain_of_images(const Tensors& inputs, const Program& program,
                                      std::int64_t first, bool gradients = true) {
  AsPlain options;
  options.gradients = gradients;
  options.ways = [first](const DeviceMesh& mesh, const Tensors& plain) {
    return image_ways(mesh, plain, first);
  };
  expect_as_plain(inputs, program, options);
}

}  // namespace tegula
