// A library that somebody else wrote: operators of its own in C++, on distributed tensors. A test
// in Python loads it beside the Python module.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <sstream>

#include "tegula/tegula.h"

namespace {

std::string spec_text(const at::Tensor& x) {
  std::ostringstream text;
  text << tegula::spec_of(x);
  return text.str();
}

at::Tensor replicated(const at::Tensor& x) {
  return tegula::redistribute(
      x, tegula::Placements(tegula::placements_of(x).size(), tegula::Replicate()));
}

at::Tensor doubled(const at::Tensor& x) { return x + x; }

}  // namespace

TORCH_LIBRARY(tegula_extension, library) {
  library.def("spec_text(Tensor x) -> str", spec_text);
  library.def("replicated(Tensor x) -> Tensor", replicated);
  library.def("doubled(Tensor x) -> Tensor", doubled);
}
