// The greatest and the least along a cut dim, and where they are: each rank searches its tile, and
// what it found travels.
#include <ATen/ATen.h>

#include <limits>

#include "tegula/bridge/torch_types.h"
#include "tegula/families/operand_tiles.h"
#include "tegula/families/recipes.h"
#include "tegula/families/totals.h"
#include "tegula/operators/call.h"
#include "tegula/redistribute/tile_layout.h"

namespace tegula::inner::families {
namespace {

template <class T>
at::Scalar limit_of(ReduceOp op) {
  using Limits = std::numeric_limits<T>;
  return static_cast<std::int64_t>(op == ReduceOp::Max ? Limits::lowest() : Limits::max());
}

bool has_order(const at::Tensor& tensor) {
  const at::ScalarType type = tensor.scalar_type();
  return at::isFloatingType(type) || type == at::kBool || type == at::kByte || type == at::kChar ||
         type == at::kShort || type == at::kInt || type == at::kLong;
}

// Of a type with an order: its least element for Max, its greatest for Min. This is what a rank
// without elements gives.
at::Scalar neutral_of(ReduceOp op, at::ScalarType type) {
  switch (type) {
    case at::kBool:
      return op == ReduceOp::Min;
    case at::kByte:
      return limit_of<std::uint8_t>(op);
    case at::kChar:
      return limit_of<std::int8_t>(op);
    case at::kShort:
      return limit_of<std::int16_t>(op);
    case at::kInt:
      return limit_of<std::int32_t>(op);
    case at::kLong:
      return limit_of<std::int64_t>(op);
    default:
      return op == ReduceOp::Max ? -std::numeric_limits<double>::infinity()
                                 : std::numeric_limits<double>::infinity();
  }
}

// Greatest and least ------------------------------------------------------------------------------

// Where some rank has no elements: the rule covers the rest.
at::Tensor extreme(const at::Tensor& tensor, const Dims& dims, ReduceOp op) {
  const at::Tensor self = with_sum_paid(tensor);
  const PayloadPtr payload = payload_of(self);
  const at::ScalarType type = self.scalar_type();
  const at::Tensor part =
      reduced_tile(*payload, dims, neutral_of(op, type), type, [&](const at::Tensor& tile) {
        return op == ReduceOp::Max ? at::amax(tile, listed(dims), true)
                                   : at::amin(tile, listed(dims), true);
      });
  return owed_part(part, *payload, dims, op);
}

template <ReduceOp op>
Values extreme_over(Arguments a) {
  const Dims dims = dims_of(tensor_at(a, 0), a[1]);
  const at::Tensor result = extreme(tensor_at(a, 0), dims, op);
  return {a[2].toBool() ? result : without(dims, result)};
}

template <ReduceOp op>
Values extreme_of_all(Arguments a) {
  const Dims all = dims_of(tensor_at(a, 0), c10::IValue());
  return {without(all, extreme(tensor_at(a, 0), all, op))};
}

bool leaves_ranks_empty(const at::Tensor& self, const Dims& dims) {
  return has_tile(self) && has_order(self) && count_of(self, dims) > 0 &&
         has_empty_shard(self, dims);
}

template <ReduceOp op>
Recipe make_extreme_over(const Call& call) {
  const at::Tensor& self = tensor_at(call.arguments(), 0);
  return leaves_ranks_empty(self, dims_of(self, call.arguments()[1])) ? extreme_over<op> : nullptr;
}

template <ReduceOp op>
Recipe make_extreme_of_all(const Call& call) {
  const at::Tensor& self = tensor_at(call.arguments(), 0);
  return leaves_ranks_empty(self, dims_of(self, c10::IValue())) ? extreme_of_all<op> : nullptr;
}

Values both_extremes(Arguments a) {
  const at::Tensor& self = tensor_at(a, 0);
  const std::vector<std::int64_t> dims = listed(dims_of(self, a[1]));
  return {at::amin(self, dims, a[2].toBool()), at::amax(self, dims, a[2].toBool())};
}

Recipe make_both_extremes(const Call& call) {
  const at::Tensor& self = tensor_at(call.arguments(), 0);
  return is_spread(self) && self.numel() > 0 ? both_extremes : nullptr;
}

// Where the greatest is ---------------------------------------------------------------------------

// The extreme element of each shard, and its place in the whole: of several the first.
struct Found {
  at::Tensor values;
  at::Tensor places;
};

// Places where there is none.
constexpr std::int64_t kNowhere = std::numeric_limits<std::int64_t>::max();

Found found_in_tile(const Payload& self, std::int64_t dim, ReduceOp op) {
  const at::Tensor tile = self.resolved_tile();
  if (tile.size(dim) > 0) {
    auto [values, places] =
        op == ReduceOp::Max ? at::max(tile, dim, true) : at::min(tile, dim, true);
    return {values, at::take(positions_along(self, dim), places)};
  }
  std::vector<std::int64_t> shape = tile.sizes().vec();
  shape[static_cast<std::size_t>(dim)] = 1;
  return {at::full(shape, neutral_of(op, tile.scalar_type()), tile.options()),
          at::full(shape, kNowhere, tile.options().dtype(at::kLong))};
}

// The first one in the order of the whole's elements.
Found found_in_all_of_tile(const Payload& self, ReduceOp op) {
  const at::Tensor tile = self.resolved_tile();
  const std::vector<std::int64_t> one(static_cast<std::size_t>(tile.dim()), 1);
  const at::TensorOptions integers = tile.options().dtype(at::kLong);
  if (tile.numel() == 0) {
    return {at::full(one, neutral_of(op, tile.scalar_type()), tile.options()),
            at::full(one, kNowhere, integers)};
  }
  at::Tensor rest = op == ReduceOp::Max ? at::argmax(tile) : at::argmin(tile);
  const at::Tensor value = at::take(tile, rest);
  at::Tensor place = at::zeros({}, integers);
  std::int64_t stride = 1;
  for (std::int64_t dim = tile.dim(); dim-- > 0;) {
    const at::Tensor along = at::remainder(rest, tile.size(dim));
    place = place + at::take(positions_along(self, dim), along) * stride;
    rest = at::floor_divide(rest, tile.size(dim));
    stride *= self.spec().shape()[static_cast<std::size_t>(dim)];
  }
  return {value.view(one), place.view(one)};
}

// Of all shards, with dims of one element. NaN counts as more than anything; the place is a minimum
// that is still owed.
Found found_in_whole(const Found& here, const Payload& self, const Dims& dims, ReduceOp op) {
  const std::vector<std::int64_t> along = listed(dims);
  const at::Tensor values = part_per_shard(here.values, self, dims);
  const at::Tensor places = part_per_shard(here.places, self, dims);
  const at::Tensor best = with_sum_paid(op == ReduceOp::Max ? at::amax(values, along, true)
                                                            : at::amin(values, along, true));
  const at::Tensor is_best = at::logical_or(at::eq(values, best), at::ne(values, values));
  const at::Tensor candidates = places.masked_fill(is_best.logical_not(), kNowhere);
  return {best, at::amin(candidates, along, true)};
}

Found find_along(const at::Tensor& tensor, std::int64_t dim, ReduceOp op) {
  const at::Tensor self = with_sum_paid(tensor);
  const PayloadPtr payload = payload_of(self);
  const auto wrapped = dim < 0 ? dim + self.dim() : dim;
  return found_in_whole(found_in_tile(*payload, wrapped, op), *payload, one_dim(self, dim), op);
}

template <ReduceOp op>
Values extreme_and_place(Arguments a) {
  const Found found = find_along(tensor_at(a, 0), a[1].toInt(), op);
  if (a[2].toBool()) return {found.values, found.places};
  const Dims dims = one_dim(tensor_at(a, 0), a[1].toInt());
  return {without(dims, found.values), without(dims, found.places)};
}

template <ReduceOp op>
Values place_of_extreme(Arguments a) {
  const Dims dims = dims_of(tensor_at(a, 0), a[1]);
  at::Tensor places;
  if (a[1].isNone()) {
    const at::Tensor self = with_sum_paid(tensor_at(a, 0));
    const PayloadPtr payload = payload_of(self);
    places = found_in_whole(found_in_all_of_tile(*payload, op), *payload, dims, op).places;
  } else {
    places = find_along(tensor_at(a, 0), a[1].toInt(), op).places;
  }
  return {a[2].toBool() ? places : without(dims, places)};
}

// (self, dim or none, keepdim)
template <Values (*run)(Arguments)>
Recipe make_search(const Call& call) {
  const at::Tensor& self = tensor_at(call.arguments(), 0);
  const Dims dims = dims_of(self, call.arguments()[1]);
  const bool can_search = has_tile(self) && has_order(self) && count_of(self, dims) > 0;
  return can_search && is_cut(self, dims) ? run : nullptr;
}

// libtorch finds no places of bools.
template <ReduceOp op>
Recipe make_place(const Call& call) {
  const bool is_bool = tensor_at(call.arguments(), 0).scalar_type() == at::kBool;
  return is_bool ? nullptr : make_search<place_of_extreme<op>>(call);
}

// Gradient of what was chosen along a dim ---------------------------------------------------------

// Zeros of these sizes, cut as the indices but along `dim`.
at::Tensor zeros_around(const at::Tensor& indices, std::int64_t dim,
                        const std::vector<std::int64_t>& sizes, at::ScalarType type) {
  const PayloadPtr payload = payload_of(indices);
  Dims others(sizes.size(), true);
  if (!sizes.empty()) others[static_cast<std::size_t>(dim < 0 ? dim + indices.dim() : dim)] = false;
  const DTensorSpec spec =
      cut_along_only(payload->spec(), others).with_meta(TensorMeta(sizes, dtype_of(type)));
  const std::optional<Coordinate> at = payload->coordinate();
  return result_of_tile(at ? new_tile(spec, *at).zero_() : at::Tensor(), spec, payload->world());
}

// (grad, dim, indices, sizes, keepdim) -> of what was chosen from. libtorch's own zeros are plain:
// the others would be gathered.
Values chosen_backward(Arguments a) {
  const std::int64_t dim = a[1].toInt();
  const std::vector<std::int64_t> sizes = a[3].toIntVector();
  const bool lacks_dim = !a[4].toBool() && !sizes.empty();
  const auto with_dim = [&](const at::Tensor& tensor) {
    return lacks_dim ? tensor.unsqueeze(dim) : tensor;
  };
  const at::Tensor grad = with_dim(tensor_at(a, 0));
  const at::Tensor indices = with_dim(tensor_at(a, 2));
  return {at::scatter(zeros_around(indices, dim, sizes, grad.scalar_type()), dim, indices, grad)};
}

Recipe make_chosen_backward(const Call& call) {
  const Payload* grad = payload_in(tensor_at(call.arguments(), 0));
  const Payload* indices = payload_in(tensor_at(call.arguments(), 2));
  const bool are_placed = grad && indices && !indices->link();
  return are_placed && is_on_mesh_of(call, indices) ? chosen_backward : nullptr;
}

}  // namespace

const RecipeTable& extreme_recipes() {
  static const RecipeTable table = {
      {"amax", make_extreme_over<ReduceOp::Max>},
      {"amin", make_extreme_over<ReduceOp::Min>},
      {"max", make_extreme_of_all<ReduceOp::Max>},
      {"min", make_extreme_of_all<ReduceOp::Min>},
      {"aminmax", make_both_extremes},
      {"max.dim", make_search<extreme_and_place<ReduceOp::Max>>},
      {"min.dim", make_search<extreme_and_place<ReduceOp::Min>>},
      {"argmax", make_place<ReduceOp::Max>},
      {"argmin", make_place<ReduceOp::Min>},
      {"value_selecting_reduction_backward", make_chosen_backward},
  };
  return table;
}

}  // namespace tegula::inner::families
