// The idea: print what libtorch prints of the whole, with the spec in place of its last line. Of a
// large tensor only the first and last rows of each dim are gathered.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <sstream>

#include "tegula/operators/call.h"
#include "tegula/payload/guards.h"
#include "tegula/tensor/dtensor.h"

namespace tegula {

using namespace inner;

namespace {

constexpr std::int64_t kMostPrinted = 1000;
constexpr std::int64_t kEdge = 3;

at::Tensor edges(at::Tensor tensor) {
  for (std::int64_t dim = 0; dim < tensor.dim(); ++dim) {
    const std::int64_t size = tensor.size(dim);
    if (size <= 2 * kEdge) continue;
    tensor = at::cat({tensor.narrow(dim, 0, kEdge), tensor.narrow(dim, size - kEdge, kEdge)}, dim);
  }
  return tensor;
}

}  // namespace

std::string to_string(const at::Tensor& tensor) {
  if (!is_dtensor(tensor)) {
    std::ostringstream out;
    out << tensor;
    return out.str();
  }
  const at::NoGradGuard no_grad;
  const DTensorSpec spec = spec_of(tensor);
  std::ostringstream out;
  if (!spec.mesh().coordinate_of(world_of(tensor).rank())) {
    out << "[ " << to_string(spec) << ", this rank holds nothing ]";
    return out.str();
  }
  const bool summarised = tensor.numel() > kMostPrinted;
  out << full_tensor(summarised ? edges(tensor) : tensor);
  std::string text = out.str();
  // "[ CPUFloatType{2,3} ]" ends what libtorch prints
  text.erase(text.rfind('['));
  return text + "[ " + to_string(spec) +
         (summarised ? ", first and last " + std::to_string(kEdge) + " of each dim" : "") + " ]";
}

}  // namespace tegula
