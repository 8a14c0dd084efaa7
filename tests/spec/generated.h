// Meshes, tensors and specs by chance, with everything that can be written in one.
#pragma once

#include <cstdint>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "tegula/spec/dtensor_spec.h"
#include "tests/placement/random.h"
#include "tests/spec/reference.h"

namespace tegula {

// One cut of each form that fits these pieces, the sizes by chance.
inline std::vector<Cut> cuts_that_fit(Random& random, const std::vector<Piece>& pieces,
                                      std::int64_t ranks) {
  using Rows = std::vector<std::vector<std::int64_t>>;
  Rows even_rows, rows, block_rows, two_block_rows, turns, block_turns;
  std::vector<std::int64_t> blocks, dividing_blocks;
  bool all_alike = true;
  bool all_halve = true;
  for (const Piece& piece : pieces) {
    const std::int64_t length = piece.size();
    all_alike = all_alike && length == pieces.front().size();
    all_halve = all_halve && length % 2 == 0;
    even_rows.push_back(even_sizes(length, ranks));
    rows.push_back(random_sizes(random, length, ranks));
    blocks.push_back(random.between(1, 5));
    std::int64_t divisor = random.between(1, 4);
    while (length % divisor != 0) --divisor;
    dividing_blocks.push_back(divisor);
    block_rows.push_back(random_sizes(random, length / divisor, ranks));
    two_block_rows.push_back(random_sizes(random, length / 2, ranks));
    turns.push_back(random_sizes(random, length, 3 * ranks));
    block_turns.push_back(random_sizes(random, length / divisor, 2 * ranks));
  }
  std::vector<Cut> cuts = {Cut(),
                           Cut::in_blocks(2),
                           Cut::in_blocks(random.between(3, 20)),
                           Cut(blocks, {}),
                           Cut::ragged_per_piece(rows),
                           Cut::ragged_per_piece(even_rows),
                           Cut(dividing_blocks, block_rows),
                           Cut::ragged_per_piece(turns),
                           Cut(dividing_blocks, block_turns)};
  if (all_alike) cuts.push_back(Cut::ragged(rows.front()));
  if (all_halve) cuts.push_back(Cut({2}, two_block_rows));
  return cuts;
}

// 1 to 3 axes of 1 to `most_ranks` ranks; as a root, a slice in any order or flattened; sometimes
// over listed ranks, on another device type or with wishes for backends.
inline DeviceMesh generated_mesh(Random& random, std::int64_t most_ranks) {
  static const std::vector<std::string> kNames = {"dp", "tp", "pp", "ep_2"};
  std::vector<std::string> names = kNames;
  random.shuffle(names);
  names.resize(static_cast<std::size_t>(random.one_in(5) ? 1 : random.between(2, 3)));
  std::vector<MeshAxis> axes;
  std::int64_t size = 1;
  for (const std::string& name : names) {
    axes.push_back({name, random.between(1, most_ranks)});
    if (random.one_in(8)) axes.back().backend = {"gloo", {{"iface", "lo"}}};
    size *= axes.back().size;
  }
  std::vector<std::int64_t> ranks;
  if (random.one_in(3)) {
    ranks.resize(static_cast<std::size_t>(size));
    std::iota(ranks.begin(), ranks.end(), random.between(0, 3));
    if (random.one_in(2)) random.shuffle(ranks);
  }
  const DeviceMesh root(axes, ranks, random.one_in(4) ? "cuda" : "cpu");
  switch (random.between(0, 5)) {
    case 0:
      random.shuffle(names);
      names.resize(
          static_cast<std::size_t>(random.between(1, static_cast<std::int64_t>(names.size()))));
      return root.slice(names);
    case 1:
      return root.flatten(names, "flat");
    default:
      return root;
  }
}

inline TensorMeta generated_meta(Random& random, std::int64_t most_dims,
                                 std::int64_t greatest_size) {
  Shape shape(static_cast<std::size_t>(random.between(0, most_dims)));
  for (std::int64_t& size : shape) size = random.between(0, greatest_size);
  const DType dtype = random.pick(all_dtypes());
  switch (random.between(0, 3)) {
    case 0: {
      Shape like(shape.size());
      std::iota(like.begin(), like.end(), 1);
      random.shuffle(like);
      return {shape, dense_strides_like(shape, like), dtype};
    }
    case 1: {
      Shape stride(shape.size());
      for (std::int64_t& step : stride) step = random.between(0, 40);
      return {shape, stride, dtype};
    }
    default:
      return {shape, dtype};
  }
}

// Axes that cut, axes that owe one kind of reduction, and replicas.
inline Placements generated_placements(Random& random, std::size_t axes, std::int64_t ndim) {
  static const std::vector<ReduceOp> kOps(kReduceOps.begin(), kReduceOps.end());
  const ReduceOp op = random.pick(kOps);
  Placements placements;
  for (std::size_t axis = 0; axis < axes; ++axis) {
    const std::int64_t kind = random.between(0, 7);
    if (kind >= 3 && ndim > 0) {
      placements.emplace_back(Shard(random.between(0, ndim - 1)));
    } else if (kind == 0) {
      const bool is_sum = commute(op, ReduceOp::Sum);
      if (is_sum && random.one_in(3)) {
        placements.emplace_back(MaskPartial(random.between(0, 1000)));
      } else {
        placements.emplace_back(Partial(is_sum && random.one_in(2) ? ReduceOp::Avg : op));
      }
    } else {
      placements.emplace_back(Replicate());
    }
  }
  return placements;
}

inline DTensorSpec generated_spec(Random& random, const DeviceMesh& mesh, const TensorMeta& meta) {
  Placements placements = generated_placements(random, mesh.ndim(), meta.ndim());
  ShardOrder order = default_shard_order(placements);
  for (ShardOrderEntry& entry : order) {
    random.shuffle(entry.axes);
    std::vector<Piece> pieces{whole_dim(meta.shape()[static_cast<std::size_t>(entry.dim)])};
    for (std::size_t axis : entry.axes) {
      const std::int64_t ranks = mesh.axes()[axis].size;
      const Cut cut = random.one_in(3) ? Cut() : random.pick(cuts_that_fit(random, pieces, ranks));
      pieces = cut_pieces(pieces, ranks, cut);
      placements[axis] = Shard(random.one_in(4) ? entry.dim - meta.ndim() : entry.dim, cut);
    }
  }
  return {mesh, placements, order, meta};
}

// Every coordinate of a grid, the last axis fastest.
inline std::vector<Coordinate> all_coordinates(const std::vector<std::int64_t>& sizes) {
  std::vector<Coordinate> all{{}};
  for (std::int64_t size : sizes) {
    std::vector<Coordinate> longer;
    for (const Coordinate& coordinate : all) {
      for (std::int64_t i = 0; i < size; ++i) {
        longer.push_back(coordinate);
        longer.back().push_back(i);
      }
    }
    all = std::move(longer);
  }
  return all;
}

}  // namespace tegula
