// The idea: the outer tensor is geometry and a pointer; all data is reached through the payload. A
// Link reads by gathering its base and looking at the view, and writes by changing that view of the
// gathered base and cutting the base up again: slow, and always right.
#include "tegula/payload/payload.h"

#include <ATen/ATen.h>

#include "tegula/bridge/torch_types.h"
#include "tegula/redistribute/tile_layout.h"
#include "tegula/spec/placed_otherwise.h"

namespace tegula {
namespace {

constexpr const char* kNoStorage =
    "tegula: a distributed tensor has no storage of its own\n"
    "  hint    use tegula::full_tensor(x) or tegula::to_local(x) to save, print or point into its "
    "data, and tegula::to_string(x) to print it; torch.compile and fake tensors do not take it";

}  // namespace

Payload::Payload(at::Tensor tile, DTensorSpec spec, Layout layout, const Payload& base)
    : spec_(std::move(spec)),
      world_(base.world_),
      layout_(layout),
      policies_(base.policies_),
      tile_(std::move(tile)) {
  if (base.spec_.is_partial()) reduced_ = base.reduced_forms().of_alias();
}

Payload::Payload(DTensorSpec spec, const Payload& base)
    : spec_(std::move(spec)),
      world_(base.world_),
      layout_(base.layout_),
      policies_(base.policies_),
      link_(base.link_),
      tile_(base.tile_),
      async_tile_(base.async_tile_) {
  if (base.spec_.is_partial()) reduced_ = base.reduced_forms().of_alias();
}

Payload::Payload(PoliciesPtr policies, const Payload& base) : Payload(base.spec_, base) {
  policies_ = std::move(policies);
}

ReducedForms& Payload::reduced_forms() const {
  const std::lock_guard lock(reduced_mutex_);
  if (!reduced_) reduced_ = std::make_shared<ReducedForms>();
  return *reduced_;
}

at::Tensor Payload::tile_by(const Route& route) const {
  if (spec_.is_partial() && !link_ && route.communicates()) {
    return reduced_forms().run(route, resolved_tile());
  }
  return route.run(resolved_tile());
}

void Payload::note_write() const {
  if (link_) return link_->base->note_write();
  const std::lock_guard lock(reduced_mutex_);
  if (reduced_) reduced_->note_write();
}

void Payload::note_exposed() const {
  if (spec_.is_partial() && !link_) reduced_forms().note_exposed(tile());
}

at::Tensor Payload::tile() const {
  if (link_) return link_->view(link_->base->whole());
  return async_tile_ ? async_tile_->wait() : tile_;
}

at::Tensor Payload::resolved_tile() const { return tile().resolve_conj().resolve_neg(); }

at::Tensor Payload::whole() const {
  if (link_ || spec_.is_replicated() || !coordinate()) return tile();
  const DTensorSpec from = spec_.with_meta(dense(spec_.meta()));
  return redistribute_tile(world_, resolved_tile(), from, replicated_spec(from));
}

void Payload::write(const at::Tensor& whole) const {
  const std::optional<Coordinate> at = coordinate();
  if (!at) return;
  if (link_) {
    at::Tensor base = link_->base->whole();
    link_->view(base).copy_(whole);
    link_->base->write(base);
    return;
  }
  note_write();
  const at::Tensor mine = tile();
  if (mine.is_same(whole)) return;
  const DTensorSpec to = spec_.with_meta(dense(spec_.meta()));
  mine.copy_(
      redistribute_tile(world_, whole.resolve_conj().resolve_neg(), replicated_spec(to), to));
}

at::Tensor outer_tensor(PayloadPtr payload) {
  static const c10::DispatchKeySet keys = c10::DispatchKeySet(c10::DispatchKey::PrivateUse3) |
                                          c10::DispatchKeySet(c10::DispatchKey::AutocastCPU);
  auto impl = c10::make_intrusive<c10::TensorImpl>(
      keys, c10::scalarTypeToTypeMeta(scalar_type_of(payload->spec().meta().dtype())),
      payload->device());
  impl->release_storage_and_set_meta_custom_data_ptr_error_msg_(kNoStorage);
  at::Tensor outer(std::move(impl));
  const at::Tensor* tile = payload->tile_at_hand();
  const bool conjugated = tile && tile->is_conj();
  const bool negated = tile && tile->is_neg();
  install(outer, std::move(payload));
  if (conjugated) outer._set_conj(true);
  if (negated) outer._set_neg(true);
  return outer;
}

at::Tensor outer_tensor(at::Tensor tile, const DTensorSpec& spec, const World& world,
                        Payload::Layout layout) {
  return outer_tensor(c10::make_intrusive<Payload>(std::move(tile), spec, world, layout));
}

void install(const at::Tensor& outer, PayloadPtr payload) {
  c10::TensorImpl* impl = outer.unsafeGetTensorImpl();
  const TensorMeta& meta = payload->spec().meta();
  impl->set_sizes_and_strides(meta.shape(), meta.stride());
  impl->set_backend_meta(std::move(payload));
}

at::Tensor replicated(const at::Tensor& whole, const DeviceMesh& mesh, const World& world) {
  const DTensorSpec spec = replicated_spec(mesh, meta_of(whole));
  const bool outside = !mesh.coordinate_of(world.rank());
  return outer_tensor(outside ? no_tile(spec) : whole, spec, world);
}

}  // namespace tegula
