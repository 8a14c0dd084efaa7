#include "tegula/tensor/dtensor.h"
#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace tegula {
namespace dtensor_test {

TEST(DTensor, AddAndGradient) {
  run_ranks(2, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"tp", 2}});
    at::Tensor plain = at::arange(15, at::kFloat).reshape({5, 3});
    at::Tensor x = distribute_tensor(plain, mesh, {Shard(0)});
    x.requires_grad_();
    EXPECT_EQ(to_local(x).size(0), world.rank() == 0 ? 3 : 2);
    at::Tensor y = at::matmul(x, x.t()).relu();
    EXPECT_TRUE(at::allclose(full_tensor(y), at::matmul(plain, plain.t())));
    y.sum().backward();
    EXPECT_TRUE(is_dtensor(x.grad()));
    EXPECT_EQ(to_string(placements_of(x.grad())), "[S(0)]");
    at::Tensor p2 = plain.clone().requires_grad_();
    at::matmul(p2, p2.t()).relu().sum().backward();
    EXPECT_TRUE(at::allclose(full_tensor(x.grad()), p2.grad()));
    at::Tensor z = distribute_tensor(plain.clone(), mesh, {Shard(0)});
    z[4].fill_(7);
    z.narrow(0, 1, 3).mul_(2);
    at::Tensor q = plain.clone();
    q[4].fill_(7);
    q.narrow(0, 1, 3).mul_(2);
    EXPECT_TRUE(at::equal(full_tensor(z), q)) << to_string(z);
    if (world.rank() == 0)
      std::cout << to_string(z) << "\n";
    else
      to_string(z);
  });
}

}  // namespace dtensor_test
}  // namespace tegula
