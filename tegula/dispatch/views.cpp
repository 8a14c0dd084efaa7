// The idea: libtorch itself says what the view looks like on the whole (run on a tensor without
// data). If no dim is cut the tile is the whole as far as views go, and takes the same op. If one
// is, the op's family says which call makes the tile's part, and which owed reductions may stay
// owed. Else the view is a link.
#include "tegula/dispatch/views.h"

#include <ATen/ATen.h>
#include <c10/core/AutogradState.h>
#include <c10/core/InferenceMode.h>

#include "tegula/base/error.h"
#include "tegula/bridge/torch_types.h"
#include "tegula/dispatch/overlaps.h"
#include "tegula/operators/view_of_tile.h"
#include "tegula/payload/local_call.h"
#include "tegula/spec/placed_otherwise.h"

namespace tegula::inner {
namespace {

// The whole, without data.
at::Tensor without_data(const at::Tensor& outer) {
  const at::TensorOptions options = at::TensorOptions(outer.scalar_type()).device(at::kMeta);
  at::Tensor whole = at::empty_strided(outer.sizes(), outer.strides(), options);
  if (outer.storage_offset() > 0) {
    std::int64_t end = outer.storage_offset() + 1;
    for (std::int64_t dim = 0; dim < outer.dim(); ++dim) {
      end += std::max<std::int64_t>(outer.size(dim) - 1, 0) * outer.stride(dim);
    }
    whole = at::empty({end}, options)
                .as_strided(outer.sizes(), outer.strides(), outer.storage_offset());
  }
  if (outer.is_conj()) whole._set_conj(true);
  if (outer.is_neg()) whole._set_neg(true);
  return whole;
}

at::Tensor viewed_tensor(const Call& call) {
  const at::Tensor& outer = call.arguments()[*call.facts().viewed].toTensor();
  if (payload_in(outer)) return outer;
  throw UsageError("a view of a plain tensor cannot depend on a DTensor")
      .fact("op", call.text())
      .hint("distribute the tensor first");
}

// A place in memory, counted in elements of another type.
std::int64_t counted_in(const DTensorSpec& view, std::int64_t offset, const DTensorSpec& viewed) {
  return offset * size_of(viewed.meta().dtype()) / size_of(view.meta().dtype());
}

// What libtorch makes of the whole, without data: one view, or several.
struct WholeViews {
  explicit WholeViews(const Call& call) {
    const at::Tensor outer = viewed_tensor(call);
    std::vector<c10::IValue> arguments = call.arguments();
    arguments[*call.facts().viewed] = without_data(outer);
    const c10::IValue made = call_plain(call.op(), std::move(arguments)).front();
    is_list = !made.isTensor();
    views = is_list ? made.toTensorVector() : std::vector<at::Tensor>{made.toTensor()};
    base_offset = outer.storage_offset();
    base = payload_in(outer)->spec();
  }
  // From where the viewed tensor begins, in elements of the view.
  std::int64_t offset(std::size_t index, const DTensorSpec& view) const {
    return views[index].storage_offset() - counted_in(view, base_offset, *base);
  }

  std::vector<at::Tensor> views;
  bool is_list = false;
  std::int64_t base_offset = 0;
  std::optional<DTensorSpec> base;
};

bool passes(ViewPasses what, ReduceOp owed, bool is_same_type) {
  const bool is_linear = owed == ReduceOp::Sum || owed == ReduceOp::Avg;
  switch (what) {
    case ViewPasses::None:
      return false;
    case ViewPasses::All:
      return true;
    case ViewPasses::Linear:
      return is_linear;
    case ViewPasses::Conjugate:
      return is_linear || owed == ReduceOp::Product;
    case ViewPasses::SameType:
      return is_same_type;
  }
  throw InternalError("a view passes reductions in a way outside of its enum");
}

bool passes_what_is_owed(ViewPasses what, const DTensorSpec& self, const TensorMeta& view) {
  const bool is_same_type = view.dtype() == self.meta().dtype();
  for (const Placement& placement : self.placements()) {
    const std::optional<ReduceOp> owed = owed_reduction(placement);
    if (owed && !passes(what, *owed, is_same_type)) return false;
  }
  return true;
}

// None if no rank can make its part of its own tile.
std::optional<TileView> tile_view(const Payload& self, const Call& call, int member,
                                  const TensorMeta& meta) {
  if (!passes_what_is_owed(call.notes().passes, self.spec(), meta)) return std::nullopt;
  if (!self.spec().is_sharded()) {
    return TileView{
        {call.op(), call.arguments()}, member, self.spec().with_meta(meta), self.layout()};
  }
  if (!call.notes().view) return std::nullopt;
  // a rank outside of the mesh asks as if it were the first, for the spec alone
  const std::optional<Coordinate> here = self.coordinate();
  const Coordinate at = here ? *here : Coordinate(self.spec().mesh().ndim(), 0);
  return call.notes().view({self, at, meta, call, member});
}

std::optional<ViewPlan> plan_on_tiles(const Call& call, const WholeViews& whole) {
  const PayloadPtr self = payload_of(viewed_tensor(call));
  if (self->link()) return std::nullopt;
  ViewPlan plan{*call.facts().viewed, {}, {}, whole.is_list};
  for (std::size_t k = 0; k < whole.views.size(); ++k) {
    const int member = plan.is_list ? static_cast<int>(k) : -1;
    std::optional<TileView> view = tile_view(*self, call, member, meta_of(whole.views[k]));
    if (!view) return std::nullopt;
    // a call that gives all members is made once
    if (view->member <= 0) plan.calls.push_back(std::move(view->call));
    plan.results.push_back({plan.calls.size() - 1, view->member, view->spec, view->layout,
                            whole.offset(k, view->spec)});
  }
  for (TileCall& one : plan.calls) one.arguments[plan.viewed] = c10::IValue();
  plan.keeps_tile = call.notes().keeps_tile;
  return plan;
}

// None if the view looks at more than a row of a cut dim, or at other numbers than the tile holds.
// Where elements share their place in memory, a row may share it with others.
std::optional<Row> row_of(const Call& call, int member, const TensorMeta& meta) {
  const at::Tensor outer = viewed_tensor(call);
  const Payload& self = *payload_in(outer);
  if (!call.notes().row || self.link() || overlaps_itself(outer)) return std::nullopt;
  if (outer.is_conj() || outer.is_neg()) return std::nullopt;
  const std::optional<Coordinate> here = self.coordinate();
  const Coordinate at = here ? *here : Coordinate(self.spec().mesh().ndim(), 0);
  return call.notes().row({self, at, meta, call, member});
}

LinkPlan plan_links(const Call& call, const WholeViews& whole) {
  const DeviceMesh& mesh = payload_in(viewed_tensor(call))->spec().mesh();
  LinkPlan plan{*call.facts().viewed, call.op(), {}, whole.is_list};
  for (std::size_t k = 0; k < whole.views.size(); ++k) {
    const at::Tensor& view = whole.views[k];
    const int member = plan.is_list ? static_cast<int>(k) : -1;
    const DTensorSpec spec = replicated_spec(mesh, meta_of(view));
    plan.results.push_back({spec, whole.offset(k, spec), view.is_conj(), view.is_neg(),
                            row_of(call, member, spec.meta())});
  }
  return plan;
}

// A link keeps what it needs of the call.
PayloadPtr linked(const LinkPlan& plan, std::size_t index, Arguments arguments) {
  const PayloadPtr self = payload_of(arguments[plan.viewed].toTensor());
  const LinkPlan::Result& result = plan.results[index];
  if (result.row) {
    return c10::make_intrusive<Payload>(Link{self, nullptr, result.row}, result.spec, self->world(),
                                        self->policies());
  }
  const Arguments taken = arguments.first(plan.op.schema().arguments().size());
  std::vector<c10::IValue> kept(taken.begin(), taken.end());
  kept[plan.viewed] = c10::IValue();
  auto replay = [op = plan.op, kept = std::move(kept), place = plan.viewed, index,
                 is_list = plan.is_list](const at::Tensor& base) {
    std::vector<c10::IValue> filled = kept;
    filled[place] = base;
    const c10::IValue made = call_plain(op, std::move(filled)).front();
    return is_list ? made.toListRef()[index].toTensor() : made.toTensor();
  };
  Link link{self, replay};
  if (const Link* inner = self->link()) {
    link = {inner->base, replay, inner->row};
    if (inner->view) {
      link.view = [first = inner->view, replay](const at::Tensor& base) {
        return replay(first(base));
      };
    }
  }
  return c10::make_intrusive<Payload>(std::move(link), result.spec, self->world(),
                                      self->policies());
}

// The calls of a plan on this rank's tile; nothing on a rank outside of the mesh.
class TileViews {
 public:
  TileViews(const ViewPlan& plan, const Payload& self)
      : plan_(plan), self_(self), is_inside_(self.coordinate().has_value()) {
    if (!is_inside_ || is_on_its_way()) return;
    const BelowAutograd below;
    const at::Tensor tile = self.tile();
    for (const TileCall& call : plan.calls) {
      torch::jit::Stack stack = call.arguments;
      stack[plan.viewed] = tile;
      call.op.callBoxed(stack);
      made_.push_back(std::move(stack.front()));
    }
  }

  ViewResult result(std::size_t index, std::int64_t base_offset) const {
    const ViewPlan::Result& result = plan_.results[index];
    const std::int64_t offset = counted_in(result.spec, base_offset, self_.spec()) + result.offset;
    if (is_on_its_way()) return {c10::make_intrusive<Payload>(result.spec, self_), offset};
    return {c10::make_intrusive<Payload>(tile(result), result.spec, result.layout, self_), offset};
  }

 private:
  bool is_on_its_way() const { return plan_.keeps_tile && !self_.tile_at_hand(); }
  at::Tensor tile(const ViewPlan::Result& result) const {
    if (!is_inside_) return no_tile(result.spec);
    const c10::IValue& made = made_[result.call];
    return result.member < 0 ? made.toTensor()
                             : made.toListRef()[static_cast<std::size_t>(result.member)].toTensor();
  }

  const ViewPlan& plan_;
  const Payload& self_;
  bool is_inside_;
  std::vector<c10::IValue> made_;
};

// Outer tensors for views. Autograd must make them again by calling the op, not from strides: a
// tile has none that mean anything.
at::Tensor outer_view(ViewResult result, const at::Tensor& base, const OuterForm* form = nullptr) {
  c10::AutogradState::get_tls_state().set_view_replay_enabled(true);
  // a view of a normal tensor is a normal tensor
  std::optional<c10::InferenceMode> mode;
  if (c10::InferenceMode::is_enabled()) mode.emplace(base.is_inference());
  at::Tensor view = form ? outer_tensor(std::move(result.payload), *form)
                         : outer_tensor(std::move(result.payload));
  if (result.storage_offset != 0) {
    view.unsafeGetTensorImpl()->set_storage_offset(result.storage_offset);
  }
  if (result.is_conj) view._set_conj(true);
  if (result.is_neg) view._set_neg(true);
  return view;
}

// As libtorch makes views: the same storage, another geometry.
at::Tensor aliased(const at::Tensor& tile, const ViewPlan::Alias& alias) {
  at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(tile.storage()), tile.key_set(), tile.dtype());
  c10::TensorImpl* impl = view.unsafeGetTensorImpl();
  impl->set_storage_offset(tile.storage_offset() + alias.offset);
  impl->set_sizes_and_strides(alias.sizes, alias.strides);
  return view;
}

template <class ResultAt>
Values outer_views(std::size_t count, bool is_list, const at::Tensor& base, ResultAt result_at) {
  if (!is_list) return {outer_view(result_at(0), base)};
  c10::List<at::Tensor> views;
  views.reserve(count);
  for (std::size_t k = 0; k < count; ++k) views.push_back(outer_view(result_at(k), base));
  return {views};
}

ViewResult link_result(const LinkPlan& plan, std::size_t index, Arguments arguments) {
  const at::Tensor& base = arguments[plan.viewed].toTensor();
  const LinkPlan::Result& result = plan.results[index];
  const std::int64_t begin =
      counted_in(result.spec, base.storage_offset(), payload_in(base)->spec());
  return {linked(plan, index, arguments), begin + result.offset, result.is_conj, result.is_neg};
}

std::variant<ViewPlan, LinkPlan> plan_as_it_is(const Call& call) {
  if (call.notes().check_view) call.notes().check_view(call);
  const WholeViews whole(call);
  if (std::optional<ViewPlan> plan = plan_on_tiles(call, whole)) return std::move(*plan);
  return plan_links(call, whole);
}

}  // namespace

std::variant<ViewPlan, LinkPlan> plan_view(const Call& call) {
  return plan_as_it_is(call.notes().same_view ? call.notes().same_view(call) : call);
}

Values run_view(const ViewPlan& plan, Arguments arguments) {
  const at::Tensor& base = arguments[plan.viewed].toTensor();
  const TileViews views(plan, *payload_in(base));
  return outer_views(plan.results.size(), plan.is_list, base,
                     [&](std::size_t index) { return views.result(index, base.storage_offset()); });
}

Values run_view(const LinkPlan& plan, Arguments arguments) {
  return outer_views(plan.results.size(), plan.is_list, arguments[plan.viewed].toTensor(),
                     [&](std::size_t index) { return link_result(plan, index, arguments); });
}

// The usual case: no call, since what it gives is known.
at::Tensor run_view_of_one(const ViewPlan& plan, const at::Tensor& base) {
  const Payload& self = *payload_in(base);
  const at::Tensor* tile = self.tile_at_hand();
  if (!tile || !plan.alias || tile->sizes() != plan.alias->tile_sizes ||
      tile->strides() != plan.alias->tile_strides) {
    return outer_view(TileViews(plan, self).result(0, base.storage_offset()), base);
  }
  const ViewPlan::Result& result = plan.results.front();
  return outer_view(
      {c10::make_intrusive<Payload>(aliased(*tile, *plan.alias), result.spec, result.layout, self),
       base.storage_offset() + result.offset},
      base, &result.form);
}

void note_alias(ViewPlan& plan, Arguments arguments, const Values& results) {
  if (plan.is_list) return;
  const at::Tensor* tile = payload_in(arguments[plan.viewed].toTensor())->tile_at_hand();
  const at::Tensor* view = payload_in(results.front().toTensor())->tile_at_hand();
  if (!tile || !view || !tile->has_storage() || !view->is_alias_of(*tile)) return;
  if (view->key_set() != tile->key_set() || view->scalar_type() != tile->scalar_type()) return;
  plan.alias = {tile->sizes().vec(), tile->strides().vec(), view->sizes().vec(),
                view->strides().vec(), view->storage_offset() - tile->storage_offset()};
}

c10::IValue plain_views(const Call& call, const at::Tensor& whole) {
  const Call view = call.notes().same_view ? call.notes().same_view(call) : call;
  std::vector<c10::IValue> arguments = view.arguments();
  arguments[*view.facts().viewed] = whole;
  return call_plain(view.op(), std::move(arguments)).front();
}

ViewResult view_result(const Call& call) {
  const std::variant<ViewPlan, LinkPlan> plan = plan_view(call);
  if (const auto* links = std::get_if<LinkPlan>(&plan)) {
    return link_result(*links, 0, call.arguments());
  }
  const auto& on_tiles = std::get<ViewPlan>(plan);
  const at::Tensor outer = call.arguments()[on_tiles.viewed].toTensor();
  const PayloadPtr self = payload_of(outer);
  return TileViews(on_tiles, *self).result(0, outer.storage_offset());
}

}  // namespace tegula::inner
