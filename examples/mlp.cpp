// libtorch's modules and optimizers on distributed tensors: an MLP whose first layer is cut by
// columns and whose second one is cut by rows learns as the plain one does.
//
//   tegula run -n 4 mlp
#include <tegula/tegula.h>
#include <torch/torch.h>

#include <iomanip>
#include <iostream>

using namespace tegula;

// What is not named is replicated.
const ParallelPlan kPlan = {{"0", Colwise()},   // each rank: some of the outputs
                            {"2", Rowwise()}};  // ... some of the inputs

torch::nn::Sequential build() {
  torch::manual_seed(7);  // the same weights wherever it is built
  return torch::nn::Sequential(torch::nn::Linear(16, 50), torch::nn::GELU(),
                               torch::nn::Linear(50, 1));
}

double step(torch::nn::Sequential& model, torch::optim::Optimizer& optimizer, const at::Tensor& x,
            const at::Tensor& y) {
  const at::Tensor loss = at::mse_loss(model->forward(x), y);
  optimizer.zero_grad();
  loss.backward();
  optimizer.step();
  return loss.item<double>();
}

bool run() {
  World world = World::from_env();
  const DeviceMesh mesh = world.mesh({{"tp", world.size()}});
  torch::nn::Sequential plain = build(), model = build();
  parallelize_module(*model, mesh, kPlan);
  torch::optim::AdamW plain_adam(plain->parameters(), 0.01), adam(model->parameters(), 0.01);

  const at::Tensor x = at::randn({64, 16}), y = x.pow(2).sum(1, /*keepdim=*/true);
  const at::Tensor distributed_x = distribute_tensor(x, mesh, {Replicate()});
  const at::Tensor distributed_y = distribute_tensor(y, mesh, {Replicate()});

  if (world.rank() == 0) {
    for (const auto& item : model->named_parameters())
      std::cout << std::left << std::setw(10) << item.key() << spec_of(item.value()) << '\n';
  }
  bool right = true;
  for (int i = 1; i <= 50; ++i) {
    const double loss = step(model, adam, distributed_x, distributed_y);
    const double expected = step(plain, plain_adam, x, y);
    right = right && std::abs(loss - expected) <= 1e-4 * expected;
    if (world.rank() == 0 && i % 10 == 0)
      std::cout << "step " << i << "  loss " << loss << "  plain " << expected << '\n';
  }
  if (world.rank() == 0) std::cout << (right ? "the same\n" : "NOT THE SAME\n");
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
