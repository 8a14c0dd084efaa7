#include "tegula/families/tiles_at.h"

#include <ATen/ATen.h>

#include "tegula/bridge/torch_types.h"
#include "tegula/payload/payload.h"
#include "tegula/redistribute/redistribute_tile.h"
#include "tegula/spec/placed_otherwise.h"

namespace tegula::inner {

at::Tensor tile_at(const at::Tensor& tensor, const DTensorSpec& spec, const World& world) {
  const PayloadPtr payload = payload_of(tensor);
  if (payload && payload->spec().mesh() == spec.mesh()) {
    const DTensorSpec from = payload->spec().with_meta(dense(payload->spec().meta()));
    return redistribute_tile(world, payload->resolved_tile(), from, spec);
  }
  const at::Tensor whole = whole_of(tensor).resolve_conj().resolve_neg();
  return redistribute_tile(world, whole, replicated_spec(spec.mesh(), dense(meta_of(whole))), spec);
}

at::Tensor whole_of(const at::Tensor& tensor) {
  const PayloadPtr payload = payload_of(tensor);
  return payload ? payload->whole() : tensor;
}

}  // namespace tegula::inner
