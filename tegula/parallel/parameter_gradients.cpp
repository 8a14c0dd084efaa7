#include "tegula/parallel/parameter_gradients.h"

#include <set>

#include "tegula/gradient/gradients.h"
#include "tegula/tensor/dtensor.h"

namespace tegula::inner {

std::vector<at::Tensor> gradients_of(const std::vector<at::Tensor>& parameters) {
  reduce_gradients(parameters);
  std::vector<at::Tensor> gradients;
  std::set<c10::TensorImpl*> seen;  // a tied parameter counts once
  for (const at::Tensor& parameter : parameters) {
    if (!parameter.defined() || !parameter.grad().defined()) continue;
    if (!seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
    gradients.push_back(parameter.grad());
  }
  return gradients;
}

std::optional<Group> group_of_meshes(const std::vector<at::Tensor>& tensors) {
  std::set<int> ranks;
  std::optional<World> world;
  for (const at::Tensor& tensor : tensors) {
    if (!is_dtensor(tensor)) continue;
    if (!world) world = world_of(tensor);
    for (const std::int64_t rank : mesh_of(tensor).root().ranks()) {
      ranks.insert(static_cast<int>(rank));
    }
  }
  if (!world || ranks.count(world->rank()) == 0) return std::nullopt;
  if (static_cast<int>(ranks.size()) == world->size()) return world->group();
  return world->group({ranks.begin(), ranks.end()});
}

}  // namespace tegula::inner
