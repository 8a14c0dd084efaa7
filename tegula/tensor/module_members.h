// What distribute_module and redistribute_module do (module.h), for modules of any kind: a list of
// their parameters and buffers. Python's modules are other objects than libtorch's.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tegula/tensor/dtensor.h"

namespace torch::jit {
struct Module;
}
namespace torch::nn {
class Module;
}

namespace tegula::inner {

// A parameter or buffer of a module.
struct ModuleMember {
  at::Tensor tensor;
  std::vector<std::string> names;                  // where it stands
  std::optional<Placements> asked = std::nullopt;  // none: nothing is said of it
};

// Parameters first. Each tensor is listed once; undefined ones are not.
std::vector<ModuleMember> members_of(const torch::nn::Module& module);
std::vector<ModuleMember> members_of(const torch::jit::Module& module);

// Each tensor is listed once.
void distribute_members(const std::vector<ModuleMember>& members, const DeviceMesh& mesh,
                        const DistributeOptions& options);
void redistribute_members(const std::vector<ModuleMember>& members, const DeviceMesh& mesh);

// An optimizer's state tensor where the parameter is, with reductions done; one of another shape
// than the parameter's, or of a plain parameter, stays as it is.
at::Tensor like_parameter(const at::Tensor& state, const at::Tensor& parameter,
                          const DistributeOptions& options);

}  // namespace tegula::inner
