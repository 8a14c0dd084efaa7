// A stencil code: heat spreads over a plate that is cut in both directions. Each rank computes on
// its tile with the ghost cells around it; gradients flow back through them to where it was hot.
//
//   tegula run -n 4 heat
#include <tegula/tegula.h>
#include <torch/torch.h>

#include <iostream>

using namespace tegula;

const std::int64_t kRows = 40, kColumns = 33;

// What the four neighbours of each inner cell differ by; the outermost cells are ghosts.
at::Tensor spread(const at::Tensor& cells) {
  const auto shifted = [&](std::int64_t down, std::int64_t right) {
    return cells.slice(0, 1 + down, cells.size(0) - 1 + down)
        .slice(1, 1 + right, cells.size(1) - 1 + right);
  };
  const at::Tensor own = shifted(0, 0);
  return own + 0.2 * (shifted(-1, 0) + shifted(1, 0) + shifted(0, -1) + shifted(0, 1) - 4 * own);
}

// The same step on one rank and on many.
at::Tensor plain_step(const at::Tensor& plate) {
  return spread(at::constant_pad_nd(plate, {1, 1, 1, 1}));  // it is cold outside
}

at::Tensor step(const at::Tensor& plate) {
  const at::Tensor cells = halo(plate, {0, 1}, {{1, 1}, {1, 1}}, Boundary::Zeros);
  FromLocalOptions options;
  options.shape = plate.sizes().vec();  // known, so that nothing has to be asked
  options.check = false;
  return from_local(spread(cells), mesh_of(plate), placements_of(plate), options);
}

bool run() {
  World world = World::from_env();
  const int rows = world.size() % 2 == 0 ? 2 : 1;
  const DeviceMesh mesh = world.mesh({{"rows", rows}, {"columns", world.size() / rows}});

  at::Tensor plain = at::zeros({kRows, kColumns}, at::kDouble);
  plain.slice(0, 10, 14).slice(1, 20, 30).fill_(100);
  plain.set_requires_grad(true);
  const at::Tensor plate = distribute_tensor(plain.detach(), mesh, {Shard(0), Shard(1)});
  plate.set_requires_grad(true);

  at::Tensor wanted = plain, heat = plate;
  for (int i = 0; i < 50; ++i) {
    wanted = plain_step(wanted);
    heat = step(heat);
  }
  // how much each cell, when it was heated, warmed the opposite corner
  wanted.slice(0, kRows - 8).slice(1, 0, 8).sum().backward();
  heat.slice(0, kRows - 8).slice(1, 0, 8).sum().backward();

  const bool right = at::allclose(full_tensor(heat), wanted) &&
                     at::allclose(full_tensor(plate.grad()), plain.grad());
  const double left = heat.detach().sum().item<double>();
  if (world.rank() == 0) {
    std::cout << spec_of(heat) << "\nheat left " << left << '\n'
              << (right ? "as on one rank\n" : "NOT AS ON ONE RANK\n");
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
