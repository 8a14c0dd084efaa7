// A distributed tensor is a plain tensor: a column- and a row-parallel layer, with gradients.
//
//   tegula run -n 4 dtensor
#include <ATen/ATen.h>
#include <tegula/tegula.h>

#include <iostream>

at::Tensor loss_of(const at::Tensor& x, const at::Tensor& up, const at::Tensor& down) {
  return at::mm(at::mm(x, up).relu(), down).pow(2).mean();
}

int main() {
  using namespace tegula;
  try {
    World world = World::from_env();
    DeviceMesh mesh = world.mesh({{"tp", world.size()}});
    const at::TensorOptions trained = at::TensorOptions(at::kDouble).requires_grad(true);
    at::Tensor x = randn({5, 7}, mesh, {Replicate()}, at::kDouble);
    at::Tensor up = randn({7, 10}, mesh, {Shard(1)}, trained);    // columns over tp
    at::Tensor down = randn({10, 3}, mesh, {Shard(0)}, trained);  // rows over tp
    at::Tensor loss = loss_of(x, up, down);                       // libtorch's own functions
    loss.backward();

    at::Tensor whole_up = full_tensor(up).detach().requires_grad_();
    at::Tensor whole = loss_of(full_tensor(x), whole_up, full_tensor(down));
    whole.backward();
    const bool right = at::allclose(full_tensor(loss), whole) &&
                       at::allclose(full_tensor(up.grad()), whole_up.grad());
    if (world.rank() == 0) {
      std::cout << "gradient " << spec_of(up.grad()) << (right ? "\n" : " is WRONG\n");
    }
    return right ? 0 : 1;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
