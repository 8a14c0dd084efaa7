// Data parallel training: every rank has the model and some of the samples, gradients are reduced
// while backward runs, and the result is that of one rank with all samples.
//
//   tegula run -n 4 data_parallel
#include <tegula/tegula.h>
#include <torch/torch.h>

#include <iostream>
#include <memory>

using namespace tegula;

constexpr int kParts = 2;  // micro-batches in a step

torch::nn::Sequential build() {
  torch::manual_seed(7);  // the same weights on all ranks
  return torch::nn::Sequential(torch::nn::Linear(16, 50), torch::nn::Tanh(),
                               torch::nn::Linear(50, 1));
}

// 13 samples: no number of ranks but one divides them.
at::Tensor samples(int step, int part) {
  torch::manual_seed(100 * step + part);
  return at::randn({13, 16});
}

double loss_of(torch::nn::Sequential& model, const at::Tensor& x) {
  const at::Tensor loss = at::mse_loss(model->forward(x), x.pow(2).sum(1, true)) / kParts;
  loss.backward();
  return loss.item<double>();
}

bool run() {
  World world = World::from_env();
  const DeviceMesh mesh = world.mesh({{"dp", world.size()}});
  torch::nn::Sequential plain = build(), model = build();
  replicate(*model, mesh);
  torch::optim::AdamW plain_adam(plain->parameters(), 0.01), adam(model->parameters(), 0.01);

  bool right = true;
  for (int step = 1; step <= 40; ++step) {
    double loss = 0, expected = 0;
    for (int part = 0; part < kParts; ++part) {
      const at::Tensor x = samples(step, part);
      const bool is_last = part + 1 == kParts;  // only then gradients are sent
      const auto held = is_last ? nullptr : std::make_unique<GradientPolicyGuard>(no_sync(mesh));
      loss += loss_of(model, shard_batch(x, mesh));
      expected += loss_of(plain, x);
    }
    const double norm = clip_grad_norm_(model->parameters(), 1.0);
    torch::nn::utils::clip_grad_norm_(plain->parameters(), 1.0);
    for (torch::optim::Optimizer* optimizer : {&adam, &plain_adam}) {
      optimizer->step();
      optimizer->zero_grad();
    }
    right = right && std::abs(loss - expected) <= 1e-4 * expected;
    if (world.rank() == 0 && step % 10 == 0) {
      std::cout << "step " << step << "  loss " << loss << "  plain " << expected
                << "  gradient norm " << norm << '\n';
    }
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
