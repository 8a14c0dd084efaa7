// One tensor, placed otherwise: what the planner intends, at what cost, and the deed.
//
//   tegula run -n 4 redistribute
#include <ATen/ATen.h>
#include <tegula/tegula.h>

#include <iostream>

using namespace tegula;

// Brings x to the placements and says whether every rank has its tile of the whole.
bool move(at::Tensor& x, const Placements& placements, const at::Tensor& whole,
          const std::string& why) {
  const World world = world_of(x);
  const DTensorSpec from = spec_of(x);
  x = redistribute(x, placements);

  // What redistribute did: the plan follows from the two specs, no rank has to ask another.
  RedistributePlanner planner;
  if (world.rank() == 0) {
    std::cout << "== " << why << "\n\n" << explain(*planner.plan(from, spec_of(x))) << '\n';
  }
  const Coordinate here = *mesh_of(x).coordinate_of(world.rank());
  return at::allclose(to_local(x), cut_tile(whole, spec_of(x), here));
}

bool run() {
  World world = World::from_env();
  const std::int64_t tp = world.size() % 2 == 0 ? 2 : 1;
  const DeviceMesh mesh = world.mesh({{"dp", world.size() / tp}, {"tp", tp}});

  // The same numbers on all ranks. Each rank holds a part of a sum: as after a matrix product whose
  // inner dim is cut.
  const at::Tensor whole = at::arange(1024 * 512, at::kFloat).reshape({1024, 512});
  const at::Tensor part = whole / static_cast<double>(world.size());
  at::Tensor x = from_local(part, mesh, {Partial(), Partial()});

  bool right = true;
  right = move(x, {Shard(0), Shard(1)}, whole, "sums that are owed, to tiles") && right;
  right = move(x, {Shard(1), Shard(0)}, whole, "both axes change what they cut") && right;
  right = move(x, {Replicate(), Shard(0)}, whole, "dp gathers") && right;
  right = move(x, {Shard(1), Shard(0)}, whole, "cutting what is there sends nothing") && right;
  right = move(x, {Replicate(), Replicate()}, whole, "the whole on every rank") && right;
  if (world.rank() == 0) std::cout << (right ? "every tile is right\n" : "a tile is WRONG\n");
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
