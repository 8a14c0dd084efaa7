// The idea: the outer tensor is geometry and a pointer; all data is reached through the payload. A
// Link reads by gathering its base and looking at the view, and writes by changing that view of the
// gathered base and cutting the base up again: slow, and always right. If it looks at one row of
// its base, no more than that travels.
#include "tegula/payload/payload.h"

#include <ATen/ATen.h>
#include <c10/core/AutogradState.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include "tegula/base/error.h"
#include "tegula/bridge/torch_types.h"
#include "tegula/payload/expanded.h"
#include "tegula/payload/gathered_forms.h"
#include "tegula/payload/host_errors.h"
#include "tegula/payload/local_call.h"
#include "tegula/payload/recycled.h"
#include "tegula/payload/unexpanded.h"
#include "tegula/redistribute/tile_layout.h"
#include "tegula/spec/placed_otherwise.h"

namespace tegula::inner {
namespace {

constexpr const char* kNoStorage =
    "a distributed tensor has no storage of its own, to point into, to print or to save";
constexpr const char* kNoStorageHint =
    "tegula::to_local(x) is this rank's tile, tegula::full_tensor(x) the whole; stream "
    "tegula::show(x)";

// What libtorch says when somebody asks for a pointer. The error is its own, the text ours.
const std::string& no_pointer() {
  static const std::string text = UsageError(kNoStorage).hint(kNoStorageHint).what();
  return text;
}

c10::DispatchKeySet outer_keys() {
  return c10::DispatchKeySet(c10::DispatchKey::PrivateUse3) |
         c10::DispatchKeySet(c10::DispatchKey::AutocastCPU);
}

// A plain TensorImpl, made with fewer allocations: it counts its versions together with its tile,
// whose memory it stands for, and throws our error when somebody asks for its storage. (For a
// pointer into the data, only a text that each tensor carries will do.)
class OuterImpl final : public c10::TensorImpl, public Recycled<RecycledKind::Outer> {
 public:
  OuterImpl(caffe2::TypeMeta type, at::Device device) : TensorImpl(outer_keys(), type, device) {
    set_storage_access_should_throw();
    extra_meta_ = std::make_unique<c10::ExtraMeta>();
    extra_meta_->custom_data_ptr_error_msg_.emplace(no_pointer());
  }

  static c10::intrusive_ptr<OuterImpl> make(caffe2::TypeMeta type, at::Device device,
                                            const at::Tensor* tile) {
    c10::AutogradState& state = c10::AutogradState::get_tls_state();
    if (!tile || tile->is_inference() || state.get_inference_mode()) {
      return c10::make_intrusive<OuterImpl>(type, device);
    }
    static const c10::DispatchKeySet keys =
        OuterImpl(caffe2::TypeMeta::Make<float>(), host_device()).key_set();
    auto impl = [&] {
      const WithoutCounter without{state};
      return c10::make_intrusive<OuterImpl>(type, device);
    }();
    impl->key_set_ = keys;
    impl->set_version_counter(tile->unsafeGetTensorImpl()->version_counter());
    return impl;
  }

  // What set_sizes_and_strides works out from sizes and strides.
  void take_geometry(const OuterImpl& form) {
    sizes_and_strides_ = form.sizes_and_strides_;
    numel_ = form.numel_;
    is_contiguous_ = form.is_contiguous_;
    is_channels_last_ = form.is_channels_last_;
    is_channels_last_contiguous_ = form.is_channels_last_contiguous_;
    is_channels_last_3d_ = form.is_channels_last_3d_;
    is_channels_last_3d_contiguous_ = form.is_channels_last_3d_contiguous_;
    is_non_overlapping_and_dense_ = form.is_non_overlapping_and_dense_;
  }

  void set_payload(PayloadPtr payload) { extra_meta_->backend_meta_ = std::move(payload); }

  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(const c10::VariableVersion& version,
                                                         bool may_change) const override {
    if (is_pythons()) return TensorImpl::shallow_copy_and_detach(version, may_change);
    auto copy = c10::make_intrusive<OuterImpl>(dtype(), device());
    copy_tensor_metadata(this, copy.get(), version, may_change);
    return copy;
  }
  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(c10::VariableVersion&& version,
                                                         bool may_change) const override {
    return shallow_copy_and_detach(static_cast<const c10::VariableVersion&>(version), may_change);
  }

 protected:
  // What libtorch asks for when somebody wants the storage, to say in its error.
  const char* tensorimpl_type_name() const override {
    with_host_errors([] { throw UsageError(kNoStorage).hint(kNoStorageHint); });
    return "";
  }

 private:
  // A tensor that is made under inference mode has no version counter.
  struct WithoutCounter {
    explicit WithoutCounter(c10::AutogradState& of_thread) : state(of_thread) {
      state.set_inference_mode(true);
    }
    ~WithoutCounter() { state.set_inference_mode(false); }
    c10::AutogradState& state;
  };
  // Python may have its own idea of a copy.
  bool is_pythons() const {
    return key_set().has(c10::DispatchKey::Python) ||
           c10::impl::TorchDispatchModeTLS::stack_len() > 0;
  }
};

}  // namespace

Payload::Payload(at::Tensor tile, DTensorSpec spec, Layout layout, const Payload& base)
    : spec_(std::move(spec)),
      world_(base.world_),
      layout_(layout),
      policies_(base.policies_),
      tile_(std::move(tile)) {
  if (base.counts_writes()) writes_ = base.writes();
}

Payload::Payload(DTensorSpec spec, const Payload& base)
    : spec_(std::move(spec)),
      world_(base.world_),
      layout_(base.layout_),
      policies_(base.policies_),
      link_(base.link_),
      tile_(base.tile_),
      async_tile_(base.async_tile_) {
  if (base.counts_writes()) writes_ = base.writes();
}

Payload::Payload(PoliciesPtr policies, const Payload& base) : Payload(base.spec_, base) {
  policies_ = std::move(policies);
}

std::shared_ptr<WriteCount> Payload::writes() const {
  const std::lock_guard lock(remembered_mutex_);
  if (!writes_) writes_ = std::make_shared<WriteCount>(spec_.meta().numel(), spec_.meta().dtype());
  return writes_;
}

ReducedForms& Payload::reduced_forms() const {
  const std::shared_ptr<WriteCount> memory = writes();
  const std::lock_guard lock(remembered_mutex_);
  if (!reduced_) reduced_ = std::make_shared<ReducedForms>(memory);
  return *reduced_;
}

at::Tensor Payload::tile_by(const Route& route) const {
  if (!spec_.is_partial() || link_ || !route.communicates()) return route.run(resolved_tile());
  const auto reduce = [&](const at::Tensor& tile) {
    return can_pay_unexpanded(spec_) ? paid_unexpanded(world_, tile, spec_, route.plan().to)
                                     : route.run(tile);
  };
  return reduced_forms().find_or_make(route.plan().to, resolved_tile(), world_.epoch(), reduce);
}

at::Tensor Payload::gathered_tile(const DTensorSpec& to) const {
  return world_.part<GatheredForms>().find_or_gather(*this, to);
}

void Payload::note_write() const {
  if (link_) return link_->base->note_write();
  if (!counts_writes()) return;
  const std::shared_ptr<WriteCount> memory = writes();
  memory->note_write();
  if (gathering()) world_.part<GatheredForms>().forget(*memory);
}

void Payload::note_exposed() const {
  if (counts_writes() && !link_) writes()->note_exposed(tile());
}

at::Tensor Link::of_whole(const at::Tensor& whole) const {
  const at::Tensor seen = row ? whole.select(row->dim, row->index) : whole;
  return view ? view(seen) : seen;
}

at::Tensor Payload::tile() const {
  if (link_ && link_->row && coordinate()) {
    const at::Tensor row = read_row(*link_->base, *link_->row);
    return link_->view ? link_->view(row) : row;
  }
  if (link_) return link_->of_whole(link_->base->whole());
  return async_tile_ ? async_tile_->wait() : tile_;
}

at::Tensor Payload::resolved_tile() const { return tile().resolve_conj().resolve_neg(); }

at::Tensor Payload::whole() const {
  if (link_ || spec_.is_replicated() || !coordinate()) return tile();
  const DTensorSpec from = spec_.with_meta(dense(spec_.meta()));
  return redistribute_tile(world_, resolved_tile(), from, replicated_spec(from));
}

namespace {

// libtorch refuses to copy into a tensor that overlaps itself.
void copy_into(const at::Tensor& to, const at::Tensor& from) {
  one_of_each(to, to.strides()).copy_(one_of_each(from, to.strides()));
}

}  // namespace

void Payload::write(const at::Tensor& whole) const {
  const std::optional<Coordinate> at = coordinate();
  if (!at) return;
  if (link_ && link_->is_row()) return write_row(*link_->base, *link_->row, whole);
  if (link_ && link_->row) {
    const at::Tensor row = read_row(*link_->base, *link_->row);
    copy_into(link_->view(row), whole);
    return write_row(*link_->base, *link_->row, row);
  }
  if (link_) {
    at::Tensor base = link_->base->whole();
    copy_into(link_->view(base), whole);
    link_->base->write(base);
    return;
  }
  note_write();
  const BelowAutograd below;  // the outer tensor's version is counted by whoever writes to that
  const at::Tensor mine = tile();
  if (mine.is_same(whole)) return;
  const DTensorSpec to = spec_.with_meta(dense(spec_.meta()));
  copy_into(mine,
            redistribute_tile(world_, whole.resolve_conj().resolve_neg(), replicated_spec(to), to));
}

namespace {

caffe2::TypeMeta type_of(const DTensorSpec& spec) {
  return c10::scalarTypeToTypeMeta(scalar_type_of(spec.meta().dtype()));
}

// What a tile says of its bytes, the outer tensor says, too.
at::Tensor with_bits_of(const at::Tensor* tile, at::Tensor outer) {
  if (tile && tile->is_conj()) outer._set_conj(true);
  if (tile && tile->is_neg()) outer._set_neg(true);
  return outer;
}

}  // namespace

OuterForm::OuterForm(const DTensorSpec& spec) {
  auto impl = c10::make_intrusive<OuterImpl>(type_of(spec), device_of(spec.mesh()));
  impl->set_sizes_and_strides(spec.meta().shape(), spec.meta().stride());
  impl_ = std::move(impl);
}

at::Tensor outer_tensor(PayloadPtr payload) {
  const at::Tensor* tile = payload->tile_at_hand();
  at::Tensor outer(OuterImpl::make(type_of(payload->spec()), payload->device(), tile));
  install(outer, std::move(payload));
  return with_bits_of(tile, std::move(outer));
}

at::Tensor outer_tensor(PayloadPtr payload, const OuterForm& form) {
  const at::Tensor* tile = payload->tile_at_hand();
  const auto& like = static_cast<const OuterImpl&>(form.impl());
  auto impl = OuterImpl::make(like.dtype(), like.device(), tile);
  impl->take_geometry(like);
  impl->set_payload(std::move(payload));
  return with_bits_of(tile, at::Tensor(std::move(impl)));
}

at::Tensor outer_tensor(at::Tensor tile, const DTensorSpec& spec, const World& world,
                        Payload::Layout layout) {
  return outer_tensor(c10::make_intrusive<Payload>(std::move(tile), spec, world, layout));
}

void carry_storage_message(const at::Tensor& outer) {
  outer.unsafeGetTensorImpl()->release_storage_and_set_meta_custom_data_ptr_error_msg_(
      no_pointer());
}

void install(const at::Tensor& outer, PayloadPtr payload) {
  c10::TensorImpl* impl = outer.unsafeGetTensorImpl();
  const TensorMeta& meta = payload->spec().meta();
  impl->set_sizes_and_strides(meta.shape(), meta.stride());
  impl->set_backend_meta(std::move(payload));
}

void set_policies(const at::Tensor& outer, const Policies& policies) {
  const PayloadPtr payload = payload_of(outer);
  install(outer, c10::make_intrusive<Payload>(payload->world().part<PolicyTable>().entry(policies),
                                              *payload));
}

Policies policies_of(const at::Tensor& outer) {
  const PoliciesPtr& policies = payload_in(outer)->policies();
  return policies ? policies->policies : Policies();
}

void set_data_keeping_policies(at::Tensor outer, const at::Tensor& data) {
  const PayloadPtr before = payload_of(outer);
  outer.set_data(data);
  const Payload* now = payload_in(outer);
  if (before->policies() && now && before->spec().mesh() == now->spec().mesh()) {
    set_policies(outer, before->policies()->policies);
  }
}

at::Tensor replicated(const at::Tensor& whole, const DeviceMesh& mesh, const World& world) {
  const DTensorSpec spec = replicated_spec(mesh, meta_of(whole));
  const bool outside = !mesh.coordinate_of(world.rank());
  return outer_tensor(outside ? no_tile(spec) : whole, spec, world);
}

}  // namespace tegula::inner
