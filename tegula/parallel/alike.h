// Whether ranks have the same tensors: what a module consists of before it is distributed.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "tegula/mesh/device_mesh.h"

namespace torch::nn {
class Module;
}

namespace tegula::inner {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
  bool is_buffer = false;
};

// Parameters, then buffers; one that stands in several places once, by its first name.
std::vector<NamedTensor> named_tensors(const torch::nn::Module& module);

// UsageError that names a plain tensor which differs between ranks of the mesh. By hashes, in two
// small collectives; what is distributed or on the meta device is not looked at.
void check_alike(const std::vector<NamedTensor>& tensors, const DeviceMesh& mesh);

}  // namespace tegula::inner
