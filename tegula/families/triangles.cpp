// Matrices that are cut: a rank's tile of a triangle is a triangle of its tile, and its part of the
// diagonal is a diagonal.
#include <ATen/ATen.h>

#include <map>

#include "tegula/bridge/torch_types.h"
#include "tegula/families/families.h"
#include "tegula/families/fresh_tensors.h"
#include "tegula/families/recipes.h"
#include "tegula/operators/call.h"
#include "tegula/spec/views.h"

namespace tegula::inner::families {
namespace {

const Payload& self_of(Arguments arguments) { return *payload_in(arguments[0].toTensor()); }

// Whether some axis cuts the matrices, each shard being one block of them.
bool has_blocks(const Call& call) {
  const PayloadPtr& self = call.tensors().front().payload;
  if (!self || self->link() || !self->coordinate() || self->spec().ndim() < 2) return false;
  const std::vector<DimCut>& cuts = self->spec().dim_cuts();
  const DimCut& rows = cuts[cuts.size() - 2];
  const DimCut& columns = cuts.back();
  return (rows.is_cut() || columns.is_cut()) && rows.most_intervals() == 1 &&
         columns.most_intervals() == 1;
}

// The diagonal of the whole, counted in the tile: above its own by so much.
std::int64_t diagonal_in_tile(const Payload& self) {
  const std::vector<DimCut>& cuts = self.spec().dim_cuts();
  const Coordinate at = *self.coordinate();
  return cuts[cuts.size() - 2].intervals(at).front().begin -
         cuts.back().intervals(at).front().begin;
}

using Triangle = at::Tensor (*)(const at::Tensor& self, std::int64_t diagonal);
at::Tensor upper(const at::Tensor& self, std::int64_t diagonal) { return at::triu(self, diagonal); }
at::Tensor lower(const at::Tensor& self, std::int64_t diagonal) { return at::tril(self, diagonal); }

// Zeros of a sum are sums of zeros; of other reductions only these are known to stay.
bool may_take_triangle(const DTensorSpec& spec) {
  for (const Placement& placement : spec.placements()) {
    const std::optional<ReduceOp> owed = owed_reduction(placement);
    if (owed && *owed != ReduceOp::Sum && *owed != ReduceOp::Avg) return false;
  }
  return true;
}

template <Triangle triangle>
Recipe new_triangle(const Call& call) {
  if (!has_blocks(call) || !may_take_triangle(call.tensors().front().payload->spec())) {
    return nullptr;
  }
  const DTensorSpec& self = call.tensors().front().payload->spec();
  const DTensorSpec spec = self.with_meta(TensorMeta(self.shape(), self.meta().dtype()));
  return [spec](Arguments arguments) -> Values {
    const Payload& of = self_of(arguments);
    const at::Tensor tile = fresh_tile(spec, of.world());
    tile.copy_(triangle(of.resolved_tile(), arguments[1].toInt() + diagonal_in_tile(of)));
    return {outer_tensor(tile, spec, of.world())};
  };
}

template <Triangle triangle>
Recipe triangle_in_place(const Call& call) {
  if (!has_blocks(call) || !may_take_triangle(call.tensors().front().payload->spec())) {
    return nullptr;
  }
  return [](Arguments arguments) -> Values {
    const Payload& self = self_of(arguments);
    const at::Tensor tile = self.tile();
    tile.copy_(triangle(tile, arguments[1].toInt() + diagonal_in_tile(self)));
    return {arguments[0]};
  };
}

Recipe trace(const Call& call) {
  if (!has_blocks(call) || !holds_values(*call.tensors().front().payload)) return nullptr;
  const at::Tensor whole = call.arguments()[0].toTensor();
  if (whole.dim() != 2) return nullptr;
  const DTensorSpec& self = call.tensors().front().payload->spec();
  Placements placements = self.placements();
  for (Placement& placement : placements) {
    if (as_shard(placement)) placement = Partial(ReduceOp::Sum);
  }
  const at::ScalarType type = at::isIntegralType(whole.scalar_type(), /*includeBool=*/true)
                                  ? at::kLong
                                  : whole.scalar_type();
  const DTensorSpec spec(self.mesh(), placements, TensorMeta({}, dtype_of(type)));
  return [spec, type](Arguments arguments) -> Values {
    const Payload& of = self_of(arguments);
    const at::Tensor sum = of.resolved_tile().diagonal(diagonal_in_tile(of)).sum(type);
    return {outer_tensor(sum, spec, of.world())};
  };
}

// Rows of new matrices where the elements of their diagonal are.
Recipe diag_embed(const Call& call) {
  const PayloadPtr& self = call.tensors().front().payload;
  const Arguments a = call.arguments();
  if (!self || !holds_values(*self) || !self->coordinate() || self->spec().ndim() == 0) {
    return nullptr;
  }
  if (a[1].toInt() != 0) return definition_recipes().at("diag_embed")(call);
  const DimCut& cut = self->spec().dim_cuts().back();
  if (!cut.is_cut() || cut.most_intervals() > 1) return nullptr;
  const std::int64_t dims = self->spec().ndim() + 1;
  const std::int64_t rows = at::maybe_wrap_dim(a[2].toInt(), dims);
  const std::int64_t columns = at::maybe_wrap_dim(a[3].toInt(), dims);
  if (rows == columns) return nullptr;
  Shape shape(static_cast<std::size_t>(dims), cut.size());
  std::vector<std::optional<std::int64_t>> to;
  for (std::int64_t dim = 0; dim < dims; ++dim) {
    if (dim == rows || dim == columns) continue;
    shape[static_cast<std::size_t>(dim)] = self->spec().shape()[to.size()];
    to.emplace_back(dim);
  }
  to.emplace_back(rows);
  const DTensorSpec spec =
      *with_dims_moved(self->spec(), to, TensorMeta(shape, self->spec().meta().dtype()));
  return [spec, rows, columns](Arguments arguments) -> Values {
    const Payload& of = self_of(arguments);
    const std::int64_t begin = of.spec().dim_cuts().back().intervals(*of.coordinate())[0].begin;
    const at::Tensor tile = fresh_tile(spec, of.world()).zero_();
    tile.diagonal(begin, rows, columns).copy_(of.resolved_tile());
    return {outer_tensor(tile, spec, of.world())};
  };
}

// (self, value, wrap): each rank fills what it has of the diagonal, by an op that autograd follows.
// A diagonal that goes on below the square is left to libtorch.
Recipe fill_diagonal(const Call& call) {
  const at::Tensor& matrix = call.arguments()[0].toTensor();
  if (matrix.dim() != 2) return nullptr;
  const bool is_wrapped = call.arguments()[2].toBool() && matrix.size(0) > matrix.size(1);
  if (is_wrapped || !has_blocks(call)) return nullptr;
  if (!holds_values(*call.tensors().front().payload)) return nullptr;
  return [](Arguments arguments) -> Values {
    const Payload& of = self_of(arguments);
    const DTensorSpec spec = of.spec().with_meta(TensorMeta(of.spec().shape(), DType::Bool));
    const at::Tensor tile = fresh_tile(spec, of.world()).zero_();
    tile.diagonal(diagonal_in_tile(of)).fill_(true);
    const at::Tensor mask = outer_tensor(tile, spec, of.world());
    return {arguments[0].toTensor().masked_fill_(mask, arguments[1].toScalar())};
  };
}

}  // namespace

void triangles(const c10::OperatorHandle& op, OperatorNotes& notes) {
  static const std::map<std::string, MakeRecipe> table = {
      {"aten::triu", new_triangle<upper>},
      {"aten::tril", new_triangle<lower>},
      {"aten::triu_", triangle_in_place<upper>},
      {"aten::tril_", triangle_in_place<lower>},
      {"aten::trace", trace},
      {"aten::fill_diagonal_", fill_diagonal},
      {"aten::diag_embed", diag_embed},
  };
  const auto found = table.find(toString(op.operator_name()));
  if (found != table.end()) notes.decomposition = found->second;
}

}  // namespace tegula::inner::families
