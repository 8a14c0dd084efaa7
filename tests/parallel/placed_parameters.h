// Parameters of every kind on a 2x2 mesh, and the same on one rank.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "tegula/tensor/dtensor.h"
#include "tests/tensor/as_plain.h"

namespace tegula {

class PlacedParameters {
 public:
  // dp=2, tp=2.
  explicit PlacedParameters(const DeviceMesh& mesh) {
    add(mesh, {Replicate(), Shard(0)}, {5, 3});
    add(mesh, {Shard(1), Shard(0)}, {7, 3});
    add(mesh, {Replicate(), Shard(1)}, {4, 6});
    add(mesh, {Replicate(), Replicate()}, {4});
    add(mesh, {Shard(0), Replicate()}, {1, 6});                       // one rank has nothing
    add(mesh, {Shard(0, Cut::ragged({0, 3})), Replicate()}, {3, 2});  // owned by the second
    add(mesh["tp"], {Shard(0)}, {3, 3});                              // on a slice
    add(mesh, {Replicate(), Shard(0)}, {3});
    add_plain({2, 5});
  }

  void add(const DeviceMesh& on, const Placements& placements, at::IntArrayRef shape) {
    const at::Tensor value = next(shape);
    plain.push_back(value.clone().requires_grad_());
    ours.push_back(distribute_tensor(value, on, placements, kSameOnAllRanks).requires_grad_());
  }
  void add_plain(at::IntArrayRef shape) {
    const at::Tensor value = next(shape);
    plain.push_back(value.clone().requires_grad_());
    ours.push_back(value.clone().requires_grad_());
  }

  // Other gradients for each seed.
  void set_gradients(std::uint64_t seed) {
    for (std::size_t k = 0; k < ours.size(); ++k) {
      const at::Tensor gradient = numbers(plain[k].sizes(), 1000 * seed + k);
      plain[k].mutable_grad() = gradient;
      ours[k].mutable_grad() = is_dtensor(ours[k])
                                   ? distribute_tensor(gradient, mesh_of(ours[k]),
                                                       placements_of(ours[k]), kSameOnAllRanks)
                                   : gradient.clone();
    }
  }

  void expect_equal(double tolerance = 1e-9) const {
    for (std::size_t k = 0; k < ours.size(); ++k) {
      const at::Tensor one = ours[k].detach();
      EXPECT_EQ(difference(is_dtensor(one) ? full_tensor(one) : one, plain[k].detach(), tolerance),
                "")
          << k;
    }
  }

  std::vector<at::Tensor> ours, plain;

 private:
  at::Tensor next(at::IntArrayRef shape) { return numbers(shape, ++seed_); }
  std::uint64_t seed_ = 0;
};

inline void on_a_grid(const std::function<void(World&, const DeviceMesh&)>& body) {
  run_impatient(4, [&](World& world) { body(world, world.mesh({{"dp", 2}, {"tp", 2}})); });
}

}  // namespace tegula
