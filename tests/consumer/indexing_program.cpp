// libtorch's words and ours side by side, without a prefix.
#include <tegula/tegula.h>
#include <torch/torch.h>

#include <iostream>

using namespace tegula;
using namespace torch::indexing;

int main() {
  World world = World::from_env();
  const DeviceMesh mesh = world.mesh({{"tp", world.size()}});
  const torch::Tensor whole = torch::arange(12).reshape({4, 3});
  const torch::Tensor x = distribute_tensor(whole, mesh, {Shard(0)});
  const torch::Tensor rows = x.index({Slice(1, None), Ellipsis, None});
  const bool right = torch::equal(full_tensor(rows), whole.index({Slice(1, None), Ellipsis, None}));
  std::cout << (right ? "slices of libtorch, tensors of Tegula\n" : "WRONG\n");
  return right ? 0 : 1;
}
