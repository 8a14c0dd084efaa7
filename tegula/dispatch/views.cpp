// The idea: libtorch itself says what the view looks like on the whole (run on a tensor without
// data). If no dim is cut the tile is the whole as far as views go, and takes the same op. If one
// is, a small table says which dims go where (spec/views.h) and which call makes the tile's part.
// What is not in the table, or mixes shards, is a Link.
#include "tegula/dispatch/views.h"

#include <ATen/ATen.h>

#include <map>
#include <mutex>

#include "tegula/base/error.h"
#include "tegula/bridge/torch_types.h"
#include "tegula/dispatch/local_call.h"
#include "tegula/spec/placed_otherwise.h"
#include "tegula/spec/slices.h"
#include "tegula/spec/views.h"

namespace tegula {
namespace {

using Layout = Payload::Layout;
using Dims = std::vector<std::optional<std::int64_t>>;

// One result of one view op.
struct View {
  const Call& call;
  int member = -1;  // of a list of results

  at::Tensor operator()(const at::Tensor& self) const {
    std::vector<c10::IValue> arguments = call.arguments();
    arguments[*call.facts().viewed] = self;
    const c10::IValue result = call_plain(call.op(), std::move(arguments)).front();
    return member < 0 ? result.toTensor()
                      : result.toListRef()[static_cast<std::size_t>(member)].toTensor();
  }

  const c10::IValue& argument(std::size_t index) const { return call.arguments()[index]; }
};

// A tile's part of a view: the call that makes it, and what it is.
struct TileView {
  TileCall call;
  int member;  // of the call's results; -1 if it has one
  DTensorSpec spec;
  Layout layout;
};

const c10::OperatorHandle& operator_named(const char* name, const char* overload) {
  static std::mutex mutex;
  static std::map<std::string, c10::OperatorHandle> known;
  const std::lock_guard lock(mutex);
  const std::string full = std::string(name) + "." + overload;
  const auto found = known.find(full);
  if (found != known.end()) return found->second;
  return known.emplace(full, c10::Dispatcher::singleton().findSchemaOrThrow(name, overload))
      .first->second;
}

struct Viewed {
  const Payload& self;
  const Coordinate& at;
  TensorMeta meta;  // of the whole view
  const View& view;

  std::int64_t wrapped(std::int64_t dim, std::int64_t more = 0) const {
    const std::int64_t dims = self.spec().ndim() + more;
    return dim < 0 ? dim + dims : dim;
  }
  bool is_cut(std::int64_t dim) const {
    return self.spec().dim_cuts()[static_cast<std::size_t>(dim)].is_cut();
  }
  Dims same_dims() const {
    Dims dims;
    for (std::int64_t dim = 0; dim < self.spec().ndim(); ++dim) dims.push_back(dim);
    return dims;
  }
  TileCall same_call() const { return {view.call.op(), view.call.arguments()}; }
  // A call on the tile, its dims going where the whole's go.
  std::optional<TileView> moved(const Dims& to, TileCall call, int member = -1) const {
    std::optional<DTensorSpec> spec = with_dims_moved(self.spec(), to, meta);
    if (!spec) return std::nullopt;
    return TileView{std::move(call), member, std::move(*spec), self.layout()};
  }
  // ... by the same op.
  std::optional<TileView> moved(const Dims& to) const {
    return moved(to, same_call(), view.member);
  }
};

using ViewOnTile = std::optional<TileView> (*)(const Viewed&);

std::optional<TileView> dims_stay(const Viewed& v) { return v.moved(v.same_dims()); }

std::optional<TileView> swap_dims(const Viewed& v, std::int64_t a, std::int64_t b) {
  Dims to = v.same_dims();
  std::swap(to[static_cast<std::size_t>(a)], to[static_cast<std::size_t>(b)]);
  return v.moved(to);
}

std::optional<TileView> transpose(const Viewed& v) {
  if (v.self.spec().ndim() == 0) return dims_stay(v);
  return swap_dims(v, v.wrapped(v.view.argument(1).toInt()), v.wrapped(v.view.argument(2).toInt()));
}

std::optional<TileView> matrix_transpose(const Viewed& v) {
  return v.self.spec().ndim() < 2 ? dims_stay(v) : swap_dims(v, 0, 1);
}

std::optional<TileView> permute(const Viewed& v) {
  Dims to(static_cast<std::size_t>(v.self.spec().ndim()));
  std::int64_t place = 0;
  for (std::int64_t dim : v.view.argument(1).toIntVector()) {
    to[static_cast<std::size_t>(v.wrapped(dim))] = place++;
  }
  return v.moved(to);
}

std::optional<TileView> unsqueeze(const Viewed& v) {
  const std::int64_t at = v.wrapped(v.view.argument(1).toInt(), 1);
  Dims to = v.same_dims();
  for (auto& dim : to) {
    if (*dim >= at) ++*dim;
  }
  return v.moved(to);
}

// `gone`: dims asked to go; those of size 1 do.
std::optional<TileView> without_dims(const Viewed& v, const std::vector<std::int64_t>& gone) {
  const Shape& shape = v.self.spec().shape();
  Dims to;
  std::vector<std::int64_t> removed;
  std::int64_t place = 0;
  for (std::int64_t dim = 0; dim < v.self.spec().ndim(); ++dim) {
    const bool goes = shape[static_cast<std::size_t>(dim)] == 1 &&
                      std::find(gone.begin(), gone.end(), dim) != gone.end();
    if (goes && v.is_cut(dim)) return std::nullopt;
    to.push_back(goes ? std::nullopt : std::optional(place++));
    if (goes) removed.push_back(dim);
  }
  return v.moved(to, {operator_named("aten::squeeze", "dims"), {c10::IValue(), removed}});
}

std::optional<TileView> squeeze(const Viewed& v) {
  std::vector<std::int64_t> all;
  for (std::int64_t dim = 0; dim < v.self.spec().ndim(); ++dim) all.push_back(dim);
  return without_dims(v, all);
}

std::optional<TileView> squeeze_dim(const Viewed& v) {
  return without_dims(v, {v.wrapped(v.view.argument(1).toInt())});
}

std::optional<TileView> squeeze_dims(const Viewed& v) {
  std::vector<std::int64_t> dims = v.view.argument(1).toIntVector();
  for (std::int64_t& dim : dims) dim = v.wrapped(dim);
  return without_dims(v, dims);
}

std::optional<TileView> expand(const Viewed& v) {
  const std::int64_t added = v.meta.ndim() - v.self.spec().ndim();
  Shape sizes = v.meta.shape();
  Dims to;
  for (std::int64_t dim = 0; dim < v.self.spec().ndim(); ++dim) {
    to.push_back(dim + added);
    if (!v.is_cut(dim)) continue;
    const auto place = static_cast<std::size_t>(dim + added);
    if (sizes[place] != v.self.spec().shape()[static_cast<std::size_t>(dim)]) return std::nullopt;
    sizes[place] = v.self.spec().dim_cuts()[static_cast<std::size_t>(dim)].local_size(v.at);
  }
  return v.moved(to, {operator_named("aten::expand", ""), {c10::IValue(), sizes, false}});
}

std::optional<TileView> slice_dim(const Viewed& v, const DimSlice& slice) {
  std::optional<DTensorSpec> spec = sliced(v.self.spec(), slice, v.meta);
  if (!spec) return std::nullopt;
  DimSlice mine = slice;
  if (v.is_cut(slice.dim)) {
    const DimCut& cut = v.self.spec().dim_cuts()[static_cast<std::size_t>(slice.dim)];
    mine = slice_within(slice, cut.intervals(v.at).front());
  }
  return TileView{{operator_named("aten::slice", "Tensor"),
                   {c10::IValue(), slice.dim, mine.begin, mine.end, mine.step}},
                  -1,
                  std::move(*spec),
                  slice.step == 1 ? v.self.layout() : Layout::Other};
}

std::optional<TileView> slice(const Viewed& v) {
  const std::int64_t dim = v.wrapped(v.view.argument(1).toInt());
  const std::int64_t size = v.self.spec().shape()[static_cast<std::size_t>(dim)];
  const auto bound = [&](std::size_t index, std::int64_t otherwise) {
    const c10::IValue& given = v.view.argument(index);
    std::int64_t value = given.isNone() ? otherwise : given.toInt();
    if (value < 0) value += size;
    return std::clamp<std::int64_t>(value, 0, size);
  };
  const std::int64_t begin = bound(2, 0);
  return slice_dim(v, {dim, begin, std::max(begin, bound(3, size)), v.view.argument(4).toInt()});
}

std::optional<TileView> split(const Viewed& v, std::int64_t begin) {
  const std::int64_t dim = v.wrapped(v.view.argument(2).toInt());
  const std::int64_t length = v.meta.shape()[static_cast<std::size_t>(dim)];
  return slice_dim(v, {dim, begin, begin + length, 1});
}

std::optional<TileView> split_evenly(const Viewed& v) {
  return split(v, v.view.argument(1).toInt() * v.view.member);
}

std::optional<TileView> split_with_sizes(const Viewed& v) {
  const std::vector<std::int64_t> sizes = v.view.argument(1).toIntVector();
  std::int64_t begin = 0;
  for (int member = 0; member < v.view.member; ++member) {
    begin += sizes[static_cast<std::size_t>(member)];
  }
  return split(v, begin);
}

// The dim goes away; its neighbours no longer lie next to each other.
std::optional<TileView> select(const Viewed& v) {
  const std::int64_t gone = v.wrapped(v.view.argument(1).toInt());
  if (v.is_cut(gone)) return std::nullopt;
  Dims to = v.same_dims();
  to[static_cast<std::size_t>(gone)] = std::nullopt;
  for (std::int64_t dim = gone + 1; dim < v.self.spec().ndim(); ++dim) {
    to[static_cast<std::size_t>(dim)] = dim - 1;
  }
  return v.moved(to);
}

std::optional<TileView> diagonal(const Viewed& v) {
  const std::int64_t a = v.wrapped(v.view.argument(2).toInt());
  const std::int64_t b = v.wrapped(v.view.argument(3).toInt());
  Dims to(static_cast<std::size_t>(v.self.spec().ndim()));
  std::int64_t place = 0;
  for (std::int64_t dim = 0; dim < v.self.spec().ndim(); ++dim) {
    if (dim != a && dim != b) to[static_cast<std::size_t>(dim)] = place++;
  }
  if (v.is_cut(a) || v.is_cut(b)) return std::nullopt;
  std::optional<TileView> result = v.moved(to);
  if (result) result->layout = Layout::Other;
  return result;
}

std::optional<TileView> unfold(const Viewed& v) {
  if (v.self.spec().ndim() == 0 || v.is_cut(v.wrapped(v.view.argument(1).toInt()))) {
    return std::nullopt;
  }
  std::optional<TileView> result = dims_stay(v);
  if (result) result->layout = Layout::Other;
  return result;
}

std::optional<TileView> view_as_complex(const Viewed& v) {
  const std::int64_t last = v.self.spec().ndim() - 1;
  if (v.is_cut(last)) return std::nullopt;
  Dims to = v.same_dims();
  to.back() = std::nullopt;
  return v.moved(to);
}

std::optional<TileView> view(const Viewed& v) {
  if (v.self.layout() == Layout::Other) return std::nullopt;
  std::optional<DTensorSpec> spec = regrouped(v.self.spec(), v.meta);
  if (!spec) return std::nullopt;
  Shape sizes = local_shape(*spec, v.at);
  return TileView{{operator_named("aten::view", ""), {c10::IValue(), std::move(sizes)}},
                  -1,
                  std::move(*spec),
                  v.self.layout()};
}

std::optional<TileView> view_as_type(const Viewed& v) {
  const std::int64_t last = v.self.spec().ndim() - 1;
  const bool same_size = size_of(v.meta.dtype()) == size_of(v.self.spec().meta().dtype());
  if (!same_size && v.is_cut(last)) return std::nullopt;
  return dims_stay(v);
}

const std::map<std::string, ViewOnTile>& views_on_tiles() {
  static const std::map<std::string, ViewOnTile> table = {
      {"aten::detach", dims_stay},
      {"aten::alias", dims_stay},
      {"aten::lift_fresh", dims_stay},
      {"aten::_conj", dims_stay},
      {"aten::_neg_view", dims_stay},
      {"aten::view_as_real", dims_stay},
      {"aten::view_as_complex", view_as_complex},
      {"aten::view", view},
      {"aten::_unsafe_view", view},
      {"aten::view.dtype", view_as_type},
      {"aten::t", matrix_transpose},
      {"aten::transpose.int", transpose},
      {"aten::permute", permute},
      {"aten::unsqueeze", unsqueeze},
      {"aten::squeeze", squeeze},
      {"aten::squeeze.dim", squeeze_dim},
      {"aten::squeeze.dims", squeeze_dims},
      {"aten::expand", expand},
      {"aten::slice.Tensor", slice},
      {"aten::select.int", select},
      {"aten::unbind.int", select},
      {"aten::split.Tensor", split_evenly},
      {"aten::split_with_sizes", split_with_sizes},
      {"aten::diagonal", diagonal},
      {"aten::unfold", unfold},
  };
  return table;
}

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

PayloadPtr linked(const PayloadPtr& self, const View& view, const TensorMeta& meta) {
  const DTensorSpec spec = replicated_spec(self->spec().mesh(), meta);
  // the call dies with this function; the link keeps what it needs of it
  std::vector<c10::IValue> arguments = view.call.arguments();
  arguments[*view.call.facts().viewed] = c10::IValue();
  auto replay = [op = view.call.op(), arguments = std::move(arguments),
                 place = *view.call.facts().viewed, member = view.member](const at::Tensor& base) {
    std::vector<c10::IValue> filled = arguments;
    filled[place] = base;
    const c10::IValue result = call_plain(op, std::move(filled)).front();
    return member < 0 ? result.toTensor()
                      : result.toListRef()[static_cast<std::size_t>(member)].toTensor();
  };
  Link link{self, replay};
  if (const Link* inner = self->link()) {
    link = {inner->base,
            [first = inner->view, replay](const at::Tensor& base) { return replay(first(base)); }};
  }
  return c10::make_intrusive<Payload>(std::move(link), spec, self->world());
}

// None if no rank can make its part of its own tile.
std::optional<TileView> tile_view(const Payload& self, const View& view, const TensorMeta& meta) {
  if (self.link()) return std::nullopt;
  if (!self.spec().is_sharded()) {
    return TileView{{view.call.op(), view.call.arguments()},
                    view.member,
                    self.spec().with_meta(meta),
                    self.layout()};
  }
  const auto found = views_on_tiles().find(view.call.facts().name);
  if (found == views_on_tiles().end()) return std::nullopt;
  // a rank outside of the mesh asks as if it were the first, for the spec alone
  const std::optional<Coordinate> at = self.coordinate();
  return found->second({self, at ? *at : Coordinate(self.spec().mesh().ndim(), 0), meta, view});
}

// Strides mean something only where each rank has the whole, or where the whole has no gaps and is
// not itself a part of something.
void check_strided_access(const Call& call, const at::Tensor& outer, const Payload& self) {
  if (!self.link() && self.spec().is_replicated()) return;
  if (dense(self.spec().meta()) == self.spec().meta() && outer.storage_offset() == 0) return;
  throw UsageError("as_strided would address elements that are not where the strides say")
      .fact("op", call.text())
      .hint("use slices, or redistribute self to replicated first");
}

const PayloadPtr viewed_payload(const Call& call) {
  const PayloadPtr self = payload_of(call.arguments()[*call.facts().viewed].toTensor());
  if (self) return self;
  throw UsageError("a view of a plain tensor cannot depend on a DTensor")
      .fact("op", call.text())
      .hint("distribute the tensor first");
}

// What libtorch makes of the whole, without data.
c10::IValue whole_views(const Call& call) {
  const std::size_t viewed = *call.facts().viewed;
  const at::Tensor outer = call.arguments()[viewed].toTensor();
  if (call.facts().name == "aten::as_strided") {
    check_strided_access(call, outer, *viewed_payload(call));
  }
  std::vector<c10::IValue> arguments = call.arguments();
  arguments[viewed] = without_data(outer);
  return call_plain(call.op(), std::move(arguments)).front();
}

// libtorch gives a view's strides as it has worked them out from the whole's; a tile has its own.
template <class Answer>
auto as_view(const Call& call, Answer answer) {
  if (call.facts().name != "aten::_reshape_alias") return answer(call);
  const c10::OperatorHandle& view = operator_named("aten::view", "");
  static const OpFacts facts(view);
  return answer(Call(view, facts, {call.arguments()[0], call.arguments()[1]}));
}

std::optional<ViewPlan> plan_by(const Call& call) {
  const PayloadPtr self = viewed_payload(call);
  if (self->link()) return std::nullopt;
  const std::int64_t offset = call.arguments()[*call.facts().viewed].toTensor().storage_offset();
  const c10::IValue whole = whole_views(call);
  ViewPlan plan{*call.facts().viewed, {}, {}, !whole.isTensor()};
  const std::vector<at::Tensor> views =
      whole.isTensor() ? std::vector<at::Tensor>{whole.toTensor()} : whole.toTensorVector();
  for (std::size_t k = 0; k < views.size(); ++k) {
    const int member = plan.is_list ? static_cast<int>(k) : -1;
    std::optional<TileView> view = tile_view(*self, View{call, member}, meta_of(views[k]));
    if (!view) return std::nullopt;
    // a call that gives all members is made once
    if (view->member <= 0) plan.calls.push_back(std::move(view->call));
    plan.results.push_back({plan.calls.size() - 1, view->member, view->spec, view->layout,
                            views[k].storage_offset() - offset});
  }
  for (TileCall& one : plan.calls) one.arguments[plan.viewed] = c10::IValue();
  return plan;
}

std::vector<ViewResult> links_by(const Call& call) {
  const PayloadPtr self = viewed_payload(call);
  const c10::IValue whole = whole_views(call);
  if (whole.isTensor()) {
    const at::Tensor one = whole.toTensor();
    return {{linked(self, View{call, -1}, meta_of(one)), one.storage_offset()}};
  }
  std::vector<ViewResult> results;
  for (const at::Tensor& one : whole.toTensorVector()) {
    const View view{call, static_cast<int>(results.size())};
    results.push_back({linked(self, view, meta_of(one)), one.storage_offset()});
  }
  return results;
}

}  // namespace

std::optional<ViewPlan> plan_views(const Call& call) { return as_view(call, plan_by); }

std::vector<ViewResult> views_by_plan(const ViewPlan& plan, const Payload& self,
                                      std::int64_t storage_offset) {
  const bool is_inside = self.coordinate().has_value();
  std::vector<c10::IValue> made;
  if (is_inside) {
    const BelowAutograd below;
    const at::Tensor tile = self.tile();
    for (const TileCall& call : plan.calls) {
      torch::jit::Stack stack = call.arguments;
      stack[plan.viewed] = tile;
      call.op.callBoxed(stack);
      made.push_back(std::move(stack.front()));
    }
  }
  std::vector<ViewResult> results;
  results.reserve(plan.results.size());
  for (const ViewPlan::Result& result : plan.results) {
    at::Tensor tile;
    if (!is_inside) {
      tile = no_tile(result.spec);
    } else if (result.member < 0) {
      tile = made[result.call].toTensor();
    } else {
      tile = made[result.call].toListRef()[static_cast<std::size_t>(result.member)].toTensor();
    }
    results.push_back(
        {c10::make_intrusive<Payload>(std::move(tile), result.spec, self.world(), result.layout),
         storage_offset + result.offset});
  }
  return results;
}

std::vector<ViewResult> views_of(const Call& call) {
  return as_view(call, [](const Call& view) {
    const std::optional<ViewPlan> plan = plan_by(view);
    if (!plan) return links_by(view);
    const at::Tensor outer = view.arguments()[plan->viewed].toTensor();
    return views_by_plan(*plan, *payload_of(outer), outer.storage_offset());
  });
}

}  // namespace tegula
