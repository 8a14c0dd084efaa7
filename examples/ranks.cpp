// Ranks that talk: every rank contributes its number, and all get the sum.
//
//   tegula run -n 4 ranks          (or torchrun, mpirun, srun; alone it is one rank)
#include <ATen/ATen.h>
#include <tegula/tegula.h>

#include <iostream>

int main() {
  using namespace tegula;
  try {
    World world = World::from_env();
    DeviceMesh mesh = world.mesh({{"dp", world.size()}});
    Group group = world.group(mesh, "dp");
    at::Tensor sum = group.all_reduce(at::full({2}, world.rank(), at::kLong), ReduceOp::Sum);
    at::Tensor all = group.all_gather(at::full({1}, world.rank(), at::kLong), 0);

    const std::int64_t expected = std::int64_t{world.size()} * (world.size() - 1) / 2;
    const bool right =
        sum[0].item<std::int64_t>() == expected && at::equal(all, at::arange(world.size()));
    std::cout << "rank " << world.rank() << " of " << world.size() << " over " << group.engine()
              << ": sum " << sum[0].item<std::int64_t>() << (right ? "\n" : " is WRONG\n");
    return right ? 0 : 1;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
