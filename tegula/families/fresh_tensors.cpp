#include "tegula/families/fresh_tensors.h"

#include <ATen/ATen.h>

#include "tegula/bridge/torch_types.h"
#include "tegula/dispatch/build.h"
#include "tegula/payload/local_call.h"
#include "tegula/redistribute/tile_layout.h"
#include "tegula/spec/placed_otherwise.h"

namespace tegula::inner::families {

bool makes_tensor_like_self(const Call& call) {
  return call.tensors().front().payload && makes_plain_strided(call);
}

at::Tensor without_data(const at::Tensor& outer) {
  return at::empty_strided(outer.sizes(), outer.strides(),
                           at::TensorOptions(outer.scalar_type()).device(at::kMeta));
}

TensorMeta whole_result(const Call& call) {
  const at::Tensor self = call.arguments()[0].toTensor();
  std::vector<c10::IValue> arguments = call.arguments();
  for (const char* name : {"device", "pin_memory"}) {
    if (const auto index = call.argument_named(name)) arguments[*index] = c10::IValue();
  }
  arguments[0] = without_data(self);
  return dense(meta_of(call_plain(call.op(), std::move(arguments)).front().toTensor()));
}

DTensorSpec spec_like_self(const Call& call) {
  DTensorSpec self = with_reductions_done(call.tensors().front().payload->spec());
  const TensorMeta meta = whole_result(call);
  if (meta.ndim() != self.ndim()) return replicated_spec(self.mesh(), meta);
  for (std::int64_t dim = 0; dim < self.ndim(); ++dim) {
    const auto at = static_cast<std::size_t>(dim);
    if (meta.shape()[at] != self.shape()[at]) self = with_dim_whole(self, dim);
  }
  return self.with_meta(meta);
}

at::Tensor fresh_tile(const DTensorSpec& spec, const World& world) {
  const std::optional<Coordinate> at = spec.mesh().coordinate_of(world.rank());
  return at ? new_tile(spec, *at) : no_tile(spec);
}

}  // namespace tegula::inner::families
