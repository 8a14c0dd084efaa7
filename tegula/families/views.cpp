// Views: which dims of the tensor go where (spec/views.h), and which call makes a tile's part. What
// is not here, or mixes shards, is a link to its base.
#include <ATen/ATen.h>

#include <algorithm>
#include <map>

#include "tegula/base/error.h"
#include "tegula/families/families.h"
#include "tegula/operators/view_of_tile.h"
#include "tegula/spec/slices.h"

namespace tegula::inner::families {
namespace {

using Layout = Payload::Layout;
using TileDims = ViewOfTile::Dims;

c10::OperatorHandle operator_named(const char* name, const char* overload) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
}

std::optional<TileView> dims_stay(const ViewOfTile& v) { return v.moved(v.same_dims()); }

std::optional<TileView> swap_dims(const ViewOfTile& v, std::int64_t a, std::int64_t b) {
  TileDims to = v.same_dims();
  std::swap(to[static_cast<std::size_t>(a)], to[static_cast<std::size_t>(b)]);
  return v.moved(to);
}

std::optional<TileView> transpose(const ViewOfTile& v) {
  if (v.self.spec().ndim() == 0) return dims_stay(v);
  return swap_dims(v, v.wrapped(v.argument(1).toInt()), v.wrapped(v.argument(2).toInt()));
}

std::optional<TileView> matrix_transpose(const ViewOfTile& v) {
  return v.self.spec().ndim() < 2 ? dims_stay(v) : swap_dims(v, 0, 1);
}

std::optional<TileView> permute(const ViewOfTile& v) {
  TileDims to(static_cast<std::size_t>(v.self.spec().ndim()));
  std::int64_t place = 0;
  for (std::int64_t dim : v.argument(1).toIntVector()) {
    to[static_cast<std::size_t>(v.wrapped(dim))] = place++;
  }
  return v.moved(to);
}

std::optional<TileView> unsqueeze(const ViewOfTile& v) {
  const std::int64_t at = v.wrapped(v.argument(1).toInt(), 1);
  TileDims to = v.same_dims();
  for (auto& dim : to) {
    if (*dim >= at) ++*dim;
  }
  return v.moved(to);
}

// `gone`: dims asked to go; those of size 1 do.
std::optional<TileView> without_dims(const ViewOfTile& v, const std::vector<std::int64_t>& gone) {
  const Shape& shape = v.self.spec().shape();
  TileDims to;
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

std::optional<TileView> squeeze(const ViewOfTile& v) {
  std::vector<std::int64_t> all;
  for (std::int64_t dim = 0; dim < v.self.spec().ndim(); ++dim) all.push_back(dim);
  return without_dims(v, all);
}

std::optional<TileView> squeeze_dim(const ViewOfTile& v) {
  return without_dims(v, {v.wrapped(v.argument(1).toInt())});
}

std::optional<TileView> squeeze_dims(const ViewOfTile& v) {
  std::vector<std::int64_t> dims = v.argument(1).toIntVector();
  for (std::int64_t& dim : dims) dim = v.wrapped(dim);
  return without_dims(v, dims);
}

std::optional<TileView> expand(const ViewOfTile& v) {
  const std::int64_t added = v.meta.ndim() - v.self.spec().ndim();
  Shape sizes = v.meta.shape();
  TileDims to;
  for (std::int64_t dim = 0; dim < v.self.spec().ndim(); ++dim) {
    to.push_back(dim + added);
    if (!v.is_cut(dim)) continue;
    const auto place = static_cast<std::size_t>(dim + added);
    if (sizes[place] != v.self.spec().shape()[static_cast<std::size_t>(dim)]) return std::nullopt;
    sizes[place] = v.self.spec().dim_cuts()[static_cast<std::size_t>(dim)].local_size(v.at);
  }
  return v.moved(to, {operator_named("aten::expand", ""), {c10::IValue(), sizes, false}});
}

std::optional<TileView> slice_dim(const ViewOfTile& v, const DimSlice& slice) {
  std::optional<DTensorSpec> spec = sliced(v.self.spec(), slice, v.meta);
  if (!spec) return std::nullopt;
  DimSlice mine = slice;
  if (v.is_cut(slice.dim)) {
    const DimCut& cut = v.self.spec().dim_cuts()[static_cast<std::size_t>(slice.dim)];
    mine = slice_within(slice, cut.intervals(v.at));
  }
  return TileView{{operator_named("aten::slice", "Tensor"),
                   {c10::IValue(), slice.dim, mine.begin, mine.end, mine.step}},
                  -1,
                  std::move(*spec),
                  slice.step == 1 ? v.self.layout() : Layout::Other};
}

std::optional<TileView> slice(const ViewOfTile& v) {
  const std::int64_t dim = v.wrapped(v.argument(1).toInt());
  const std::int64_t size = v.self.spec().shape()[static_cast<std::size_t>(dim)];
  const auto bound = [&](std::size_t index, std::int64_t otherwise) {
    const c10::IValue& given = v.argument(index);
    std::int64_t value = given.isNone() ? otherwise : given.toInt();
    if (value < 0) value += size;
    return std::clamp<std::int64_t>(value, 0, size);
  };
  const std::int64_t begin = bound(2, 0);
  return slice_dim(v, {dim, begin, std::max(begin, bound(3, size)), v.argument(4).toInt()});
}

std::optional<TileView> split(const ViewOfTile& v, std::int64_t begin) {
  const std::int64_t dim = v.wrapped(v.argument(2).toInt());
  const std::int64_t length = v.meta.shape()[static_cast<std::size_t>(dim)];
  return slice_dim(v, {dim, begin, begin + length, 1});
}

std::optional<TileView> split_evenly(const ViewOfTile& v) {
  return split(v, v.argument(1).toInt() * v.member);
}

std::optional<TileView> split_with_sizes(const ViewOfTile& v) {
  const std::vector<std::int64_t> sizes = v.argument(1).toIntVector();
  std::int64_t begin = 0;
  for (int member = 0; member < v.member; ++member) {
    begin += sizes[static_cast<std::size_t>(member)];
  }
  return split(v, begin);
}

// The dim goes away; its neighbours no longer lie next to each other.
std::optional<TileView> select(const ViewOfTile& v) {
  const std::int64_t gone = v.wrapped(v.argument(1).toInt());
  if (v.is_cut(gone)) return std::nullopt;
  TileDims to = v.same_dims();
  to[static_cast<std::size_t>(gone)] = std::nullopt;
  for (std::int64_t dim = gone + 1; dim < v.self.spec().ndim(); ++dim) {
    to[static_cast<std::size_t>(dim)] = dim - 1;
  }
  return v.moved(to);
}

std::optional<Row> selected_row(const ViewOfTile& v) {
  const std::int64_t dim = v.wrapped(v.argument(1).toInt());
  if (!v.is_cut(dim)) return std::nullopt;
  const std::int64_t index = v.argument(2).toInt();
  return Row{dim, index < 0 ? index + v.self.spec().shape()[static_cast<std::size_t>(dim)] : index};
}

std::optional<Row> unbound_row(const ViewOfTile& v) {
  const std::int64_t dim = v.wrapped(v.argument(1).toInt());
  return v.is_cut(dim) ? std::optional(Row{dim, v.member}) : std::nullopt;
}

// If one of the two dims is cut, each rank has a run of the diagonal: it lies on another diagonal
// of its tile.
std::optional<TileView> diagonal(const ViewOfTile& v) {
  const std::int64_t rows = v.wrapped(v.argument(2).toInt());
  const std::int64_t columns = v.wrapped(v.argument(3).toInt());
  if (v.is_cut(rows) && v.is_cut(columns)) return std::nullopt;
  const std::int64_t cut = v.is_cut(columns) ? columns : rows;
  const DimCut& of_dim = v.self.spec().dim_cuts()[static_cast<std::size_t>(cut)];
  if (of_dim.most_intervals() > 1) return std::nullopt;
  const std::int64_t gone = cut == rows ? columns : rows;
  const std::int64_t above = v.argument(1).toInt();
  const std::int64_t begin = std::max<std::int64_t>(cut == rows ? -above : above, 0);
  const std::int64_t length = v.meta.shape().back();
  Shape shape = v.self.spec().shape();
  shape[static_cast<std::size_t>(cut)] = length;
  const DimSlice slice{cut, begin, begin + length, 1};
  const std::optional<DTensorSpec> part =
      sliced(v.self.spec(), slice, TensorMeta(shape, v.meta.dtype()));
  if (!part) return std::nullopt;
  TileDims to(shape.size());
  std::int64_t place = 0;
  for (std::int64_t dim = 0; dim < v.self.spec().ndim(); ++dim) {
    if (dim != rows && dim != columns) to[static_cast<std::size_t>(dim)] = place++;
  }
  to[static_cast<std::size_t>(cut)] = place;
  to[static_cast<std::size_t>(gone)] = std::nullopt;
  std::optional<DTensorSpec> spec = with_dims_moved(*part, to, v.meta);
  if (!spec) return std::nullopt;
  const std::int64_t first = of_dim.intervals(v.at).front().begin;
  TileCall call = v.same_call();
  call.arguments[1] = above + (cut == rows ? first : -first);
  return TileView{std::move(call), -1, std::move(*spec), Layout::Other};
}

std::optional<TileView> unfold(const ViewOfTile& v) {
  if (v.self.spec().ndim() == 0 || v.is_cut(v.wrapped(v.argument(1).toInt()))) {
    return std::nullopt;
  }
  std::optional<TileView> result = dims_stay(v);
  if (result) result->layout = Layout::Other;
  return result;
}

std::optional<TileView> view_as_complex(const ViewOfTile& v) {
  const std::int64_t last = v.self.spec().ndim() - 1;
  if (v.is_cut(last)) return std::nullopt;
  TileDims to = v.same_dims();
  to.back() = std::nullopt;
  return v.moved(to);
}

std::optional<TileView> view(const ViewOfTile& v) {
  if (v.self.layout() == Layout::Other) return std::nullopt;
  std::optional<DTensorSpec> spec = regrouped(v.self.spec(), v.meta);
  if (!spec) return std::nullopt;
  Shape sizes = local_shape(*spec, v.at);
  return TileView{{operator_named("aten::view", ""), {c10::IValue(), std::move(sizes)}},
                  -1,
                  std::move(*spec),
                  v.self.layout()};
}

std::optional<TileView> view_as_type(const ViewOfTile& v) {
  const std::int64_t last = v.self.spec().ndim() - 1;
  const bool same_size = size_of(v.meta.dtype()) == size_of(v.self.spec().meta().dtype());
  if (!same_size && v.is_cut(last)) return std::nullopt;
  return dims_stay(v);
}

struct ViewOp {
  ViewPasses passes;
  MakeTileView of_cut_tile;  // null: none if a dim is cut
};

// A view of an uncut tensor that owes nothing needs no entry; any other view that has none is a
// link.
const std::map<std::string, ViewOp>& view_ops() {
  static const std::map<std::string, ViewOp> table = {
      {"aten::detach", {ViewPasses::All, dims_stay}},
      {"aten::alias", {ViewPasses::All, dims_stay}},
      {"aten::lift_fresh", {ViewPasses::All, dims_stay}},
      {"aten::_conj", {ViewPasses::Conjugate, dims_stay}},
      {"aten::_neg_view", {ViewPasses::Linear, dims_stay}},
      {"aten::view_as_real", {ViewPasses::Linear, dims_stay}},
      {"aten::view_as_complex", {ViewPasses::Linear, view_as_complex}},
      {"aten::view", {ViewPasses::All, view}},
      {"aten::_unsafe_view", {ViewPasses::All, view}},
      {"aten::view.dtype", {ViewPasses::SameType, view_as_type}},
      {"aten::as_strided", {ViewPasses::All, nullptr}},
      {"aten::t", {ViewPasses::All, matrix_transpose}},
      {"aten::transpose.int", {ViewPasses::All, transpose}},
      {"aten::permute", {ViewPasses::All, permute}},
      {"aten::unsqueeze", {ViewPasses::All, unsqueeze}},
      {"aten::squeeze", {ViewPasses::All, squeeze}},
      {"aten::squeeze.dim", {ViewPasses::All, squeeze_dim}},
      {"aten::squeeze.dims", {ViewPasses::All, squeeze_dims}},
      {"aten::expand", {ViewPasses::All, expand}},
      {"aten::slice.Tensor", {ViewPasses::All, slice}},
      {"aten::select.int", {ViewPasses::All, select}},
      {"aten::unbind.int", {ViewPasses::All, select}},
      {"aten::split.Tensor", {ViewPasses::All, split_evenly}},
      {"aten::split_with_sizes", {ViewPasses::All, split_with_sizes}},
      {"aten::diagonal", {ViewPasses::All, diagonal}},
      {"aten::unfold", {ViewPasses::All, unfold}},
  };
  return table;
}

// Strides mean something only where each rank has the whole, or where the whole has no gaps and is
// not itself a part of something.
void check_strided_access(const Call& call) {
  const at::Tensor outer = call.arguments()[*call.facts().viewed].toTensor();
  const PayloadPtr payload = payload_of(outer);
  if (!payload) return;
  const Payload& self = *payload;
  if (!self.link() && self.spec().is_replicated()) return;
  if (dense(self.spec().meta()) == self.spec().meta() && outer.storage_offset() == 0) return;
  throw UsageError("as_strided would address elements that are not where the strides say")
      .fact("op", call.text())
      .hint("use slices, or redistribute self to replicated first");
}

// libtorch gives this view's strides as it has worked them out from the whole's; a tile has its
// own.
Call plain_view(const Call& call) {
  const OperatorEntry& view = operator_table().entry(operator_named("aten::view", ""));
  return {view, {call.arguments()[0], call.arguments()[1]}};
}

// Strides that are self's own give self under another name, however it is cut.
Call strided_view(const Call& call) {
  const at::Tensor self = call.arguments()[0].toTensor();
  const c10::IValue& offset = call.arguments()[3];
  const bool is_self = call.arguments()[1].toIntVector() == self.sizes() &&
                       call.arguments()[2].toIntVector() == self.strides() &&
                       (offset.isNone() || offset.toInt() == self.storage_offset());
  if (!is_self) return call;
  const OperatorEntry& alias = operator_table().entry(operator_named("aten::alias", ""));
  return {alias, {call.arguments()[0]}};
}

}  // namespace

void views(const c10::OperatorHandle& op, OperatorNotes& notes) {
  const std::string name = toString(op.operator_name());
  if (const auto found = view_ops().find(name); found != view_ops().end()) {
    notes.view = found->second.of_cut_tile;
    notes.passes = found->second.passes;
  }
  if (name == "aten::select.int") notes.row = selected_row;
  if (name == "aten::unbind.int") notes.row = unbound_row;
  // no view by its schema, but libtorch writes through it
  if (name == "aten::_unsafe_view") notes.also_viewed = 0;
  notes.keeps_tile = name == "aten::detach" || name == "aten::alias";
  if (name == "aten::_reshape_alias") notes.same_view = plain_view;
  if (name == "aten::as_strided") {
    notes.same_view = strided_view;
    notes.check_view = check_strided_access;
  }
}

}  // namespace tegula::inner::families
