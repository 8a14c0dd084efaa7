#include "tests/dispatch/distributions.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tegula/base/error.h"
#include "tegula/bridge/tiles.h"
#include "tegula/bridge/torch_types.h"
#include "tegula/redistribute/tile_layout.h"
#include "tests/spec/generated.h"

namespace tegula {

using namespace inner;

namespace {

enum class Way { R, S0, S1, S0Sizes, S0Blocks, PSum, PMax, PAvg, M };
constexpr Way kWays[] = {Way::R,    Way::S0,   Way::S1,   Way::S0Sizes, Way::S0Blocks,
                         Way::PSum, Way::PMax, Way::PAvg, Way::M};

Placement plain_placement(Way way) {
  switch (way) {
    case Way::R:
      return Replicate();
    case Way::S0:
    case Way::S0Sizes:
      return Shard(0);
    case Way::S1:
      return Shard(1);
    case Way::S0Blocks:
      return Shard(0, Cut::in_blocks(2));
    case Way::PSum:
      return Partial(ReduceOp::Sum);
    case Way::PMax:
      return Partial(ReduceOp::Max);
    case Way::PAvg:
      return Partial(ReduceOp::Avg);
    case Way::M:
      return MaskPartial(9);
  }
  return Replicate();
}

// The last rank gets one, the first the rest, if that is much in two turns.
std::vector<std::int64_t> given_sizes(std::int64_t length, std::int64_t ranks) {
  const auto last = static_cast<std::size_t>(ranks) - 1;
  std::vector<std::int64_t> sizes(2 * static_cast<std::size_t>(ranks), 0);
  sizes[last + 1] = length > 4 ? length / 3 : 0;
  const std::int64_t of_last = std::min<std::int64_t>(length, 1);
  sizes[last] += of_last;
  sizes[0] += length - of_last - sizes[last + 1];
  return sizes;
}

// The placements with sizes for the axes that want given ones, dim 0 cut in this order.
Placements with_sizes(Placements placements, const std::vector<Way>& ways,
                      const std::vector<std::size_t>& order, const DeviceMesh& mesh,
                      std::int64_t length) {
  std::vector<Piece> pieces{whole_dim(length)};
  for (std::size_t axis : order) {
    const std::int64_t ranks = mesh.axes()[axis].size;
    if (ways[axis] == Way::S0Sizes) {
      std::vector<std::vector<std::int64_t>> rows;
      for (const Piece& piece : pieces) {
        rows.push_back(given_sizes(static_cast<std::int64_t>(piece.size()), ranks));
      }
      placements[axis] = Shard(0, Cut::ragged_per_piece(rows));
    }
    pieces = cut_pieces(pieces, ranks, as_shard(placements[axis])->cut());
  }
  return placements;
}

void add_specs(const DeviceMesh& mesh, const TensorMeta& meta, const std::vector<Way>& ways,
               std::vector<DTensorSpec>& specs) {
  Placements placements;
  for (Way way : ways) placements.push_back(plain_placement(way));
  ShardOrder order = default_shard_order(placements);
  if (!order.empty() && order.back().dim >= meta.ndim()) return;
  const auto add = [&] {
    const bool cuts_first = !order.empty() && order.front().dim == 0;
    const Placements fitting =
        cuts_first ? with_sizes(placements, ways, order.front().axes, mesh, meta.shape()[0])
                   : placements;
    try {
      const DTensorSpec spec(mesh, fitting, order, meta);
      if (std::find(specs.begin(), specs.end(), spec) == specs.end()) specs.push_back(spec);
    } catch (const UsageError&) {  // reductions that do not commute
    }
  };
  add();
  for (ShardOrderEntry& entry : order) std::reverse(entry.axes.begin(), entry.axes.end());
  add();
}

}  // namespace

std::vector<DTensorSpec> all_specs(const DeviceMesh& mesh, const TensorMeta& meta) {
  std::vector<DTensorSpec> specs;
  const auto count = static_cast<std::int64_t>(std::size(kWays));
  for (const Coordinate& choice : all_coordinates(std::vector<std::int64_t>(mesh.ndim(), count))) {
    std::vector<Way> ways;
    for (std::int64_t way : choice) ways.push_back(kWays[way]);
    add_specs(mesh, meta, ways, specs);
  }
  return specs;
}

std::string specs_text(const DTensorSpec& from, const DTensorSpec& to) {
  return to_string(from) + " -> " + to_string(to);
}

at::Tensor numbers(const Shape& shape, at::ScalarType dtype, std::int64_t seed) {
  std::int64_t count = 1;
  for (std::int64_t size : shape) count *= size;
  const at::Tensor whole = (at::arange(count, at::kLong) * 7 + seed * 3 + 1).remainder(11) * 12;
  if (dtype == at::kBool) return (whole.remainder(5) > 1).view(shape);
  return whole.view(shape).to(dtype);
}

std::vector<at::Tensor> tiles_of(const DTensorSpec& spec, std::int64_t seed) {
  const at::ScalarType dtype = scalar_type_of(spec.meta().dtype());
  std::vector<at::Tensor> tiles;
  for (const Coordinate& coordinate : all_coordinates(spec.mesh().shape())) {
    std::int64_t part = 0;
    for (std::size_t axis = 0; axis < coordinate.size(); ++axis) {
      if (owed_reduction(spec.placements()[axis])) part = part * 5 + coordinate[axis];
    }
    tiles.push_back(cut_tile(numbers(spec.shape(), dtype, seed + part), spec, coordinate));
  }
  return tiles;
}

std::size_t place_of(const DeviceMesh& mesh, std::int64_t rank) {
  const Coordinate coordinate = mesh.coordinate_of(rank).value();
  std::int64_t place = 0;
  for (std::size_t axis = 0; axis < mesh.ndim(); ++axis) {
    place = place * mesh.axes()[axis].size + coordinate[axis];
  }
  return static_cast<std::size_t>(place);
}

void expect_tiles(const std::vector<at::Tensor>& tiles, const at::Tensor& whole,
                  const DTensorSpec& spec, const std::string& text) {
  const std::vector<Coordinate> coordinates = all_coordinates(spec.mesh().shape());
  ASSERT_EQ(tiles.size(), coordinates.size()) << text;
  for (std::size_t place = 0; place < tiles.size(); ++place) {
    ASSERT_EQ(tiles[place].sizes().vec(), local_shape(spec, coordinates[place])) << text;
    EXPECT_EQ(tiles[place].strides().vec(), tile_stride(spec, coordinates[place])) << text;
    EXPECT_EQ(tiles[place].storage().nbytes(), tiles[place].nbytes()) << text;
    if (spec.is_partial()) continue;
    EXPECT_TRUE(at::equal(tiles[place], cut_tile(whole, spec, coordinates[place])))
        << text << " at place " << place << ": " << tiles[place];
  }
  EXPECT_TRUE(at::equal(join_tiles(tiles, spec), whole)) << text;
}

}  // namespace tegula
