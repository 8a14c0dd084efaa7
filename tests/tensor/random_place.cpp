#include "tests/tensor/random_place.h"

#include <map>

namespace tegula::test {
namespace {

// How large the pieces are that the axes cut so far leave, in the order of their coordinates.
Shape pieces_after(const Shape& pieces, std::int64_t ranks, const Cut& cut) {
  Shape result;
  for (std::size_t piece = 0; piece < pieces.size(); ++piece) {
    const auto* sizes = cut.sizes_of(static_cast<std::int64_t>(piece));
    const std::int64_t chunk = (pieces[piece] + ranks - 1) / ranks;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      const std::int64_t left = std::max<std::int64_t>(0, pieces[piece] - rank * chunk);
      result.push_back(sizes ? (*sizes)[static_cast<std::size_t>(rank)] : std::min(chunk, left));
    }
  }
  return result;
}

Cut random_cut(Random& random, const Shape& pieces, std::int64_t ranks) {
  if (!random.one_in(3)) return Cut();
  std::vector<Shape> rows;
  for (std::int64_t piece : pieces) rows.push_back(random_sizes(random, piece, ranks));
  return rows.size() == 1 ? Cut::ragged(rows.front()) : Cut::ragged_per_piece(rows);
}

}  // namespace

RandomPlace random_place(Random& random, const DeviceMesh& mesh, at::IntArrayRef shape, Owed owed) {
  const auto dims = static_cast<std::int64_t>(shape.size());
  RandomPlace place;
  place.placements.assign(mesh.ndim(), Replicate());
  std::vector<std::size_t> axes;
  for (std::size_t axis = 0; axis < mesh.ndim(); ++axis) axes.push_back(axis);
  random.shuffle(axes);
  std::map<std::int64_t, ShardOrderEntry> order;
  std::map<std::int64_t, Shape> pieces;
  // one for all axes: not all of them can be done in either order
  const ReduceOp reduction = random.pick(
      std::vector<ReduceOp>{ReduceOp::Sum, ReduceOp::Sum, ReduceOp::Sum, ReduceOp::Sum,
                            ReduceOp::Avg, ReduceOp::Product, ReduceOp::Max, ReduceOp::Min});
  for (std::size_t axis : axes) {
    const std::int64_t kind = random.between(0, 9);
    if (kind < 2 || (kind >= 4 && dims == 0)) continue;
    if (kind < 4) {
      if (owed == Owed::Allowed) place.placements[axis] = Partial(reduction);
      continue;
    }
    const std::int64_t dim = random.between(0, dims - 1);
    const std::int64_t ranks = mesh.axes()[axis].size;
    Shape& left =
        pieces.try_emplace(dim, Shape{shape[static_cast<std::size_t>(dim)]}).first->second;
    const Cut cut = random_cut(random, left, ranks);
    place.placements[axis] = Shard(dim, cut);
    order[dim].dim = dim;
    order[dim].axes.push_back(axis);
    left = pieces_after(left, ranks, cut);
  }
  for (const auto& [dim, entry] : order) place.order.push_back(entry);
  return place;
}

}  // namespace tegula::test
