// The idea: print what libtorch prints of a plain tensor, with the spec in place of its last line.
// Of a large tensor only the first and last rows of each dim are looked at, and gathered.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <sstream>

#include "tegula/operators/call.h"
#include "tegula/payload/guards.h"
#include "tegula/payload/local_call.h"
#include "tegula/tensor/dtensor.h"
#include "tegula/tensor/show.h"

namespace tegula {

using namespace inner;

namespace {

constexpr std::int64_t kMostPrinted = 1000;
constexpr std::int64_t kEdge = 3;
const std::string kOnlyEdges = ", first and last 3 of each dim";

at::Tensor edges(at::Tensor tensor) {
  for (std::int64_t dim = 0; dim < tensor.dim(); ++dim) {
    const std::int64_t size = tensor.size(dim);
    if (size <= 2 * kEdge) continue;
    tensor = at::cat({tensor.narrow(dim, 0, kEdge), tensor.narrow(dim, size - kEdge, kEdge)}, dim);
  }
  return tensor;
}

std::string printed(const at::Tensor& plain) {
  std::ostringstream out;
  out << plain;
  return out.str();
}

std::string last_line(const DTensorSpec& spec, const std::string& remarks) {
  return "[ " + to_string(spec) + remarks + " ]";
}

std::string printed_with(const at::Tensor& plain, const DTensorSpec& spec,
                         const std::string& remarks) {
  // libtorch prints the real parts of complex numbers only
  if (plain.is_complex()) {
    return printed_with(at::view_as_real(plain.resolve_conj()), spec,
                        remarks + ", real and imaginary parts in the last dim");
  }
  std::string text = printed(plain);
  text.erase(text.rfind('['));  // "[ CPUFloatType{2,3} ]" ends what libtorch prints
  return text + last_line(spec, remarks);
}

}  // namespace

std::string to_string(const at::Tensor& tensor) {
  if (!is_dtensor(tensor)) return printed(tensor);
  const at::NoGradGuard no_grad;
  const DTensorSpec spec = spec_of(tensor);
  if (!spec.mesh().coordinate_of(world_of(tensor).rank())) {
    return last_line(spec, ", this rank holds nothing");
  }
  if (tensor.numel() <= kMostPrinted) return printed_with(full_tensor(tensor), spec, "");
  return printed_with(full_tensor(edges(tensor)), spec, kOnlyEdges);
}

std::string show(const at::Tensor& tensor) {
  const PayloadPtr payload = payload_of(tensor);
  if (!payload) return printed(tensor);
  const BelowAutograd below;
  const DTensorSpec& spec = payload->spec();
  if (!payload->coordinate()) return last_line(spec, ", this rank holds nothing");
  if (payload->link()) return last_line(spec, ", a view without data of its own");
  const at::Tensor tile = payload->resolved_tile();
  const bool is_whole = !spec.is_partial() && tile.sizes() == tensor.sizes();
  const std::string whose =
      is_whole ? "" : ", the tile of rank " + std::to_string(payload->world().rank());
  if (tile.numel() <= kMostPrinted) return printed_with(tile, spec, whose);
  return printed_with(edges(tile), spec, whose + kOnlyEdges);
}

}  // namespace tegula
