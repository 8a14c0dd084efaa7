#include "tegula/families/call_tensors.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "tegula/families/totals.h"

namespace tegula::inner::families {

bool is_any_spread(const Call& call) {
  return std::any_of(call.tensors().begin(), call.tensors().end(), [](const TensorPlace& place) {
    return place.payload && is_spread(place.tensor);
  });
}

bool has_tiles(const Call& call) {
  return call.coordinate() &&
         std::all_of(call.tensors().begin(), call.tensors().end(), [&](const TensorPlace& place) {
           return !place.tensor.defined() || !place.payload ||
                  (has_tile(place.tensor) && place.payload->spec().mesh() == call.mesh());
         });
}

bool is_followed(const Call& call) {
  return at::GradMode::is_enabled() &&
         std::any_of(call.tensors().begin(), call.tensors().end(), [](const TensorPlace& place) {
           return place.tensor.defined() && place.tensor.requires_grad();
         });
}

}  // namespace tegula::inner::families
