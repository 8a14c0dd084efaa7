#include "tests/tensor/little_communication.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tegula/comm/comm_log.h"

namespace tegula {
namespace {

void run(const Program& program, const Tensors& inputs) {
  at::Tensor loss;
  for (const at::Tensor& result : program(inputs)) {
    if (!result.defined() || !result.requires_grad()) continue;
    const at::Tensor part = (result * 2).sum();
    loss = loss.defined() ? loss + part : part;
  }
  if (loss.defined()) loss.backward();
}

}  // namespace

void expect_little_communication(const std::string& name, const Tensors& inputs,
                                 const Program& program, std::int64_t first_dim) {
  std::size_t largest = 0;
  for (const at::Tensor& input : inputs) largest = std::max(largest, input.nbytes());
  run_impatient(2, [&](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    for (std::size_t which = 0; which < inputs.size(); ++which) {
      for (std::int64_t dim = first_dim; dim < inputs[which].dim(); ++dim) {
        Tensors placed;
        for (std::size_t k = 0; k < inputs.size(); ++k) {
          const Placement placement = k == which ? Placement(Shard(dim)) : Replicate();
          placed.push_back(distribute_tensor(inputs[k].detach().clone(), mesh, {placement})
                               .set_requires_grad(k == which && inputs[k].requires_grad()));
        }
        const CommLog log(world);
        run(program, placed);
        std::int64_t bytes = 0;
        for (const CommEntry& entry : log.entries()) bytes += entry.bytes;
        if (world.rank() != 0) continue;
        EXPECT_LT(bytes, static_cast<std::int64_t>(largest / 4))
            << name << ", input " << which << " cut along dim " << dim << "\n"
            << log.to_string();
      }
    }
  });
}

}  // namespace tegula
