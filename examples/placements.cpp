// Who holds what: one matrix on a grid of ranks, placed in four ways. Sizes need not divide.
//
//   tegula run -n 4 placements
#include <ATen/ATen.h>
#include <tegula/base/table.h>
#include <tegula/base/text.h>
#include <tegula/tegula.h>

#include <iostream>

using namespace tegula;

// Every rank can say what all the others hold: that is arithmetic, nothing is sent.
void print_owners(const DTensorSpec& spec) {
  Table table({"rank", "dp", "tp", "slice", "tile"});
  for (std::int64_t rank : spec.mesh().ranks()) {
    const Coordinate at = *spec.mesh().coordinate_of(rank);
    std::vector<std::string> slice;
    for (const auto& intervals : slice_at(spec, at)) slice.push_back(to_string(intervals));
    table.add({std::to_string(rank), std::to_string(at[0]), std::to_string(at[1]),
               "[" + join(slice) + "]", bracketed(local_shape(spec, at))});
  }
  std::cout << spec << "\n\n";
  table.print(std::cout);
  std::cout << '\n';
}

bool run() {
  World world = World::from_env();
  const std::int64_t tp = world.size() % 2 == 0 ? 2 : 1, dp = world.size() / tp;
  const DeviceMesh mesh = world.mesh({{"dp", dp}, {"tp", tp}});
  const Coordinate here = *mesh.coordinate_of(world.rank());
  const at::Tensor whole = at::arange(35).reshape({5, 7});

  bool right = true;
  const std::vector<Placements> ways = {
      {Shard(0), Replicate()},  // rows over dp, the same on all ranks of tp: a batch
      {Replicate(), Shard(1)},  // columns over tp: a weight
      {Shard(0), Shard(1)},     // both
      {Shard(0), Shard(0)},     // both cut the rows, dp first
  };
  for (const Placements& placements : ways) {
    const at::Tensor x = distribute_tensor(whole, mesh, placements);
    if (world.rank() == 0) print_owners(spec_of(x));
    // the rank's tile is its slice of the whole, and the tiles together are the whole
    right = at::equal(to_local(x), cut_tile(whole, spec_of(x), here)) && right;
    right = at::equal(full_tensor(x), whole) && right;
  }

  // P(sum): every rank holds a part of the value, and the sum is owed until somebody reads it.
  const at::Tensor part = at::full({2, 2}, 1 + here[0], at::kLong);
  const at::Tensor owed = from_local(part, mesh, {Partial(), Replicate()});
  const at::Tensor value = full_tensor(owed);
  right = at::equal(value, at::full({2, 2}, dp * (dp + 1) / 2, at::kLong)) && right;
  if (world.rank() == 0) {
    std::cout << spec_of(owed) << ": parts of 1 ... " << dp << " make "
              << value[0][0].item<std::int64_t>() << '\n'
              << (right ? "all as it should be\n" : "WRONG\n");
  }
  return right;
}

int main() {
  try {
    return run() ? 0 : 1;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
