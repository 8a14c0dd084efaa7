// Particles on a ring repel those that are near. Each rank has those of its own sector, and its
// neighbours' near the borders as ghosts. Forces are gradients of the energy: what a ghost is
// pushed by goes back to the rank that it lives on.
//
//   tegula run -n 4 particles
#include <tegula/tegula.h>
#include <torch/torch.h>

#include <iostream>

using namespace tegula;

const double kNear = 0.05;  // of a ring of length 1

// Half of the energy of each pair of a particle of `own` and one of `all`: the other half is
// counted where the other lives. A particle has no energy with itself.
at::Tensor energy(const at::Tensor& own, const at::Tensor& all) {
  const at::Tensor apart = own.unsqueeze(1) - all.unsqueeze(0);
  const at::Tensor distance = (apart - apart.detach().round()).abs();  // the short way round
  return 0.5 * at::relu(kNear - distance).pow(2).sum() - 0.5 * own.size(0) * kNear * kNear;
}

// Which particles each rank of the ring wants to see: those near the sector of a neighbour.
std::vector<at::Tensor> send_lists(const at::Tensor& own, const World& world) {
  const int ranks = world.size(), me = world.rank();
  std::vector<at::Tensor> lists(static_cast<std::size_t>(ranks));
  const auto near = [&](double border) {
    const at::Tensor apart = own - border;
    return (apart - apart.round()).abs() < kNear;
  };
  if (ranks == 1) return lists;
  const int left = (me + ranks - 1) % ranks, right = (me + 1) % ranks;
  const at::Tensor to_left = near(double(me) / ranks), to_right = near(double(me + 1) / ranks);
  if (left == right) {
    lists[static_cast<std::size_t>(left)] = at::nonzero(to_left.logical_or(to_right)).squeeze(1);
  } else {
    lists[static_cast<std::size_t>(left)] = at::nonzero(to_left).squeeze(1);
    lists[static_cast<std::size_t>(right)] = at::nonzero(to_right).squeeze(1);
  }
  return lists;
}

bool run() {
  World world = World::from_env();
  const Group ring = world.group();
  torch::manual_seed(1);  // all ranks draw the same particles, and keep those of their sector
  const at::Tensor all = at::rand({500}, at::kDouble);
  const at::Tensor is_mine = (all * world.size()).floor() == world.rank();

  const at::Tensor own = all.masked_select(is_mine).set_requires_grad(true);
  const Arrived ghosts = exchange(own, ring, send_lists(own.detach(), world));
  const at::Tensor mine = energy(own, at::cat({own, ghosts.rows}));
  mine.backward();
  const at::Tensor force = -own.grad();

  const at::Tensor plain = all.clone().set_requires_grad(true);
  const at::Tensor wanted = energy(plain, plain);
  wanted.backward();
  const double total = ring.all_reduce(mine.detach(), ReduceOp::Sum).item<double>();
  const bool right = std::abs(total - wanted.item<double>()) < 1e-9 &&
                     at::allclose(force, -plain.grad().masked_select(is_mine));
  if (world.rank() == 0) {
    std::cout << own.size(0) << " particles and " << ghosts.rows.size(0)
              << " ghosts on this rank\nenergy of all " << total << '\n';
  }
  std::cout << (right ? "as on one rank\n" : "NOT AS ON ONE RANK\n");
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
