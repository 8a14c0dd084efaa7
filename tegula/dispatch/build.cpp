#include "tegula/dispatch/build.h"

#include <ATen/ATen.h>

#include "tegula/bridge/torch_types.h"
#include "tegula/payload/guards.h"
#include "tegula/payload/local_call.h"
#include "tegula/redistribute/tile_layout.h"

namespace tegula::inner {
namespace {

at::ScalarType asked_dtype(const Call& call) {
  const std::optional<std::size_t> index = call.argument_named("dtype");
  return call.arguments()[*index].isNone() ? at::typeMetaToScalarType(at::get_default_dtype())
                                           : call.arguments()[*index].toScalarType();
}

TensorMeta asked_meta(const Call& call, const Shape& shape, DType dtype) {
  const std::optional<std::size_t> stride = call.argument_named("stride");
  return stride ? TensorMeta(shape, call.arguments()[*stride].toIntVector(), dtype)
                : TensorMeta(shape, dtype);
}

}  // namespace

bool makes_plain_strided(const Call& call) {
  for (const c10::IValue& argument : call.arguments()) {
    if (argument.isDevice() && !argument.toDevice().is_cpu()) return false;
  }
  const std::optional<std::size_t> layout = call.argument_named("layout");
  return !layout || call.arguments()[*layout].isNone() ||
         call.arguments()[*layout].toLayout() == at::kStrided;
}

std::optional<at::Tensor> build_distributed(const Call& call) {
  const BuildDistributed* build = BuildDistributed::current();
  if (!build || !call.tensors().empty() || !call.notes().build) return std::nullopt;
  const Shape shape = call.arguments()[0].toIntVector();
  const at::ScalarType type = asked_dtype(call);
  if (shape.empty() || !at::isFloatingType(type) || !makes_plain_strided(call)) return std::nullopt;
  const World world = World::of(build->mesh());
  const DTensorSpec spec(build->mesh(), build->placements_for(shape),
                         asked_meta(call, shape, dtype_of(type)));
  const BelowAutograd below;
  const std::optional<Coordinate> at = spec.mesh().coordinate_of(world.rank());
  const at::Tensor tile = at ? new_tile(spec, *at) : no_tile(spec);
  call.notes().build(call, {tile, spec, world, at});
  return outer_tensor(tile, spec, world);
}

}  // namespace tegula::inner
