// Ops that move elements along a dim which is cut: flips, rolls, padding, joins. Each rank wants
// certain intervals of the dim, and gets them (redistribute/dim_exchange.h). The result is cut by
// the same axes: alike where the size stays, else evenly.
#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <memory>

#include "tegula/bridge/torch_types.h"
#include "tegula/families/families.h"
#include "tegula/families/operand_tiles.h"
#include "tegula/families/recut.h"
#include "tegula/operators/call.h"
#include "tegula/payload/guards.h"
#include "tegula/payload/local_call.h"
#include "tegula/plan/boundary.h"
#include "tegula/redistribute/dim_exchange.h"
#include "tegula/redistribute/tile_layout.h"
#include "tegula/spec/placed_otherwise.h"

namespace tegula::inner::families {
namespace {

// The tensor's payload if it has a tile of its own.
const Payload* cut_payload(const at::Tensor& tensor) {
  const Payload* payload = payload_in(tensor);
  return payload && !payload->link() && payload->spec().is_sharded() ? payload : nullptr;
}

bool is_cut_in(const DTensorSpec& spec, std::int64_t dim) {
  return spec.dim_cuts()[static_cast<std::size_t>(dim)].is_cut();
}

Interval run_at(const DTensorSpec& spec, std::int64_t dim, const Coordinate& at) {
  return spec.dim_cuts()[static_cast<std::size_t>(dim)].intervals(at).front();
}

// What every rank wants of a dim for a run of the result.
using WantedFor = std::function<std::vector<Interval>(const Interval& result)>;

// One exchange after the other.
struct MovePlan {
  DTensorSpec from;
  DTensorSpec to;
  World world;
  bool is_inside;
  std::vector<DimExchange> exchanges = {};

  void add(std::int64_t dim, const WantedFor& wanted) {
    if (!is_inside) return;
    exchanges.emplace_back(world, from, dim,
                           [&](const Coordinate& at) { return wanted(run_at(to, dim, at)); });
  }
  at::Tensor fetch(at::Tensor tile, const at::Scalar& outside) const {
    for (const DimExchange& one : exchanges) tile = one.fetch(tile, outside);
    return tile;
  }
  at::Tensor add_up(at::Tensor given) const {
    for (auto one = exchanges.rbegin(); one != exchanges.rend(); ++one) given = one->add_up(given);
    return given;
  }
  Values result(const at::Tensor& tile) const { return {result_of_tile(tile, to, world)}; }
};

using WhichDims = std::vector<bool>;

MovePlan plan_for(const Call& call, const DTensorSpec& from, const Shape& shape,
                  const WhichDims& moved) {
  const Shape& stride = from.meta().stride();
  const TensorMeta meta(shape, dense_strides_like(shape, stride), from.meta().dtype());
  return {from, cut_alike(from, meta, moved), call.world(), call.coordinate().has_value()};
}

// Where elements only change places, what is owed stays owed.
DTensorSpec dense_spec(const Payload& payload) {
  return payload.spec().with_meta(dense(payload.spec().meta()));
}

// Flips and rolls -----------------------------------------------------------------------------

Recipe make_flip(const Call& call) {
  const at::Tensor& self = call.arguments()[0].toTensor();
  const Payload* payload = cut_payload(self);
  if (!payload) return nullptr;
  const DTensorSpec spec = dense_spec(*payload);
  std::vector<std::int64_t> dims = call.arguments()[1].toIntVector();
  WhichDims flipped(spec.shape().size(), false);
  bool is_taken = false;
  for (std::int64_t& dim : dims) {
    if (dim < -self.dim() || dim >= self.dim()) return nullptr;
    if (dim < 0) dim += self.dim();
    if (flipped[static_cast<std::size_t>(dim)]) return nullptr;
    flipped[static_cast<std::size_t>(dim)] = true;
    is_taken = is_taken || is_cut_in(spec, dim);
  }
  if (!is_taken) return nullptr;
  MovePlan plan = plan_for(call, spec, spec.shape(), flipped);
  for (const std::int64_t dim : dims) {
    if (!is_cut_in(spec, dim)) continue;
    plan.add(dim, [size = self.size(dim)](const Interval& result) {
      return std::vector<Interval>{{size - result.end(), result.size}};
    });
  }
  return [plan, dims](Arguments a) {
    if (!plan.is_inside) return plan.result({});
    return plan.result(at::flip(plan.fetch(payload_of(a[0].toTensor())->resolved_tile(), 0), dims));
  };
}

// Of all elements in their order: those of a vector.
Recipe make_flat_roll(const Call& call) {
  const at::Tensor& self = call.arguments()[0].toTensor();
  const std::optional<std::int64_t> cut = only_cut_dim(self);
  if (!cut || self.dim() < 2 || self.size(0) < 2 || self.numel() == 0) return nullptr;
  return [cut](Arguments a) -> Values {
    const at::Tensor& x = a[0].toTensor();
    const at::Tensor rows = *cut == 0 ? x : cut_along(x, 0);
    const at::Tensor vector = rows.clone(at::MemoryFormat::Contiguous).view({-1});
    return {at::roll(vector, a[1].toIntVector(), {0}).view(x.sizes())};
  };
}

Recipe make_roll(const Call& call) {
  const at::Tensor& self = call.arguments()[0].toTensor();
  const Payload* payload = cut_payload(self);
  if (call.arguments()[2].toIntVector().empty()) return make_flat_roll(call);
  const std::vector<std::int64_t> shifts = call.arguments()[1].toIntVector();
  std::vector<std::int64_t> dims = call.arguments()[2].toIntVector();
  if (!payload || dims.size() != shifts.size() || self.numel() == 0) return nullptr;
  const DTensorSpec spec = dense_spec(*payload);
  std::vector<std::int64_t> local_shifts = shifts;         // of dims that are not cut
  std::map<std::int64_t, std::int64_t> shift_of_cut_dims;  // a dim may be listed twice
  WhichDims moved(spec.shape().size(), false);
  for (std::size_t k = 0; k < dims.size(); ++k) {
    if (dims[k] < -self.dim() || dims[k] >= self.dim()) return nullptr;
    if (dims[k] < 0) dims[k] += self.dim();
    if (!is_cut_in(spec, dims[k])) continue;
    moved[static_cast<std::size_t>(dims[k])] = true;
    shift_of_cut_dims[dims[k]] += shifts[k] % self.size(dims[k]);
    local_shifts[k] = 0;
  }
  if (shift_of_cut_dims.empty()) return nullptr;
  MovePlan plan = plan_for(call, spec, spec.shape(), moved);
  for (const auto& [dim, shift] : shift_of_cut_dims) {
    plan.add(dim, [size = self.size(dim), by = shift](const Interval& result) {
      return continued({result.begin - by, result.size}, size, Boundary::Periodic);
    });
  }
  return [plan, dims, local_shifts](Arguments a) {
    if (!plan.is_inside) return plan.result({});
    const at::Tensor moved_tile = plan.fetch(payload_of(a[0].toTensor())->resolved_tile(), 0);
    return plan.result(at::roll(moved_tile, local_shifts, dims));
  };
}

// Padding ---------------------------------------------------------------------------------------

// Before and after the last dim, then the one before it, and so on.
struct Padding {
  std::vector<std::int64_t> pads;
  std::int64_t before(std::int64_t dim, std::int64_t ndim) const {
    return at(2 * (ndim - 1 - dim));
  }
  std::int64_t after(std::int64_t dim, std::int64_t ndim) const {
    return at(2 * (ndim - 1 - dim) + 1);
  }

 private:
  std::int64_t at(std::int64_t index) const {
    const auto place = static_cast<std::size_t>(index);
    return place < pads.size() ? pads[place] : 0;
  }
};

struct PaddingPlan {
  MovePlan plan;
  std::vector<std::int64_t> local_pads;  // of dims that are not cut

  bool has_result_here() const {
    const Coordinate at = plan.to.mesh().coordinate_of(plan.world.rank()).value();
    const Shape shape = local_shape(plan.to, at);
    return std::find(shape.begin(), shape.end(), 0) == shape.end();
  }
  at::Tensor empty_result() const {
    return new_tile(plan.to, plan.to.mesh().coordinate_of(plan.world.rank()).value());
  }
};
using PaddingPlanPtr = std::shared_ptr<const PaddingPlan>;

// Null if no dim that is padded is cut, or libtorch would refuse.
PaddingPlanPtr padding_plan(const Call& call, const at::Tensor& self,
                            const std::vector<std::int64_t>& pads, Boundary boundary) {
  const Payload* payload = cut_payload(self);
  const std::int64_t ndim = self.dim();
  if (!payload || pads.size() % 2 != 0 || static_cast<std::int64_t>(pads.size()) > 2 * ndim) {
    return nullptr;
  }
  const DTensorSpec spec =
      cut_along_only(payload->spec(), std::vector<bool>(static_cast<std::size_t>(ndim), true));
  const Padding padding{pads};
  Shape shape = spec.shape();
  std::vector<std::int64_t> local_pads = pads;
  std::vector<std::int64_t> cut_dims;
  WhichDims moved(shape.size(), false);
  for (std::int64_t dim = 0; dim < ndim; ++dim) {
    std::int64_t& size = shape[static_cast<std::size_t>(dim)];
    const std::int64_t before = padding.before(dim, ndim);
    const std::int64_t after = padding.after(dim, ndim);
    if (before == 0 && after == 0) continue;
    const std::int64_t padded = size + before + after;
    const bool crops = before < 0 || after < 0;
    if (padded < 1 || size < 1 || (crops && boundary != Boundary::Zeros) ||
        (crops && (before < -size || after < -size)) ||
        !can_continue({-before, padded}, size, boundary)) {
      return nullptr;
    }
    size = padded;
    if (!is_cut_in(spec, dim)) continue;
    cut_dims.push_back(dim);
    moved[static_cast<std::size_t>(dim)] = true;
    local_pads[static_cast<std::size_t>(2 * (ndim - 1 - dim))] = 0;
    local_pads[static_cast<std::size_t>(2 * (ndim - 1 - dim) + 1)] = 0;
  }
  if (cut_dims.empty() || self.numel() == 0) return nullptr;
  PaddingPlan result{plan_for(call, spec, shape, moved), local_pads};
  for (const std::int64_t dim : cut_dims) {
    result.plan.add(dim, [size = self.size(dim), before = padding.before(dim, ndim),
                          boundary](const Interval& run) {
      return continued({run.begin - before, run.size}, size, boundary);
    });
  }
  return std::make_shared<const PaddingPlan>(std::move(result));
}

Recipe make_constant_pad(const Call& call) {
  const Arguments a = call.arguments();
  const PaddingPlanPtr padding =
      padding_plan(call, a[0].toTensor(), a[1].toIntVector(), Boundary::Zeros);
  if (!padding) return nullptr;
  return [padding](Arguments arguments) {
    const MovePlan& plan = padding->plan;
    if (!plan.is_inside) return plan.result({});
    const at::Scalar value = arguments[2].toScalar();
    const at::Tensor tile =
        plan.fetch(tile_at(arguments[0].toTensor(), plan.from, plan.world), value);
    if (!padding->has_result_here()) return plan.result(padding->empty_result());
    return plan.result(at::constant_pad_nd(tile, padding->local_pads, value));
  };
}

// Where this rank has nothing, the op itself would be refused.
template <Boundary boundary>
Recipe make_pad(const Call& call) {
  const Arguments a = call.arguments();
  const PaddingPlanPtr padding = padding_plan(call, a[0].toTensor(), a[1].toIntVector(), boundary);
  if (!padding || a[1].toIntVector().size() / 2 + 2 < a[0].toTensor().sizes().size()) {
    return nullptr;
  }
  return [op = call.op(), padding](Arguments arguments) {
    const MovePlan& plan = padding->plan;
    if (!plan.is_inside) return plan.result({});
    const at::Tensor tile = plan.fetch(tile_at(arguments[0].toTensor(), plan.from, plan.world), 0);
    if (!padding->has_result_here()) return plan.result(padding->empty_result());
    return plan.result(call_plain(op, {tile, padding->local_pads}).front().toTensor());
  };
}

template <Boundary boundary>
Recipe make_pad_backward(const Call& call) {
  const Arguments a = call.arguments();
  const at::Tensor& grad = a[0].toTensor();
  const at::Tensor& self = a[1].toTensor();
  const PaddingPlanPtr padding = padding_plan(call, self, a[2].toIntVector(), boundary);
  if (!padding || grad.sizes() != padding->plan.to.shape() ||
      grad.scalar_type() != self.scalar_type()) {
    return nullptr;
  }
  return [op = call.op(), padding](Arguments arguments) -> Values {
    const MovePlan& plan = padding->plan;
    at::Tensor tile;
    if (plan.is_inside) {
      tile = tile_at(arguments[0].toTensor(), plan.to, plan.world);
      std::vector<std::int64_t> fetched = tile.sizes().vec();
      for (std::size_t k = 0; k < padding->local_pads.size(); ++k) {
        fetched[fetched.size() - 1 - k / 2] -= padding->local_pads[k];
      }
      const at::Tensor self_like = at::empty(fetched, tile.options());
      tile = padding->has_result_here()
                 ? call_plain(op, {tile, self_like, padding->local_pads}).front().toTensor()
                 : at::zeros_like(self_like);
      tile = plan.add_up(tile);
    }
    return {result_of_tile(tile, plan.from, plan.world)};
  };
}

// A slice put into zeros: the gradient of taking it ---------------------------------------------

struct Slice {
  std::int64_t dim = 0;
  std::int64_t begin = 0;
  std::int64_t step = 1;
  std::int64_t count = 0;

  // Those of its elements that lie in a run of the dim.
  Interval within(const Interval& run) const {
    const auto elements_before = [&](std::int64_t place) {
      const std::int64_t room = std::max<std::int64_t>(place - begin, 0);
      return std::min(count, ceil_div(room, step));
    };
    const std::int64_t first = elements_before(run.begin);
    return {first, elements_before(run.end()) - first};
  }
};

// None if the arguments do not fit the gradient.
std::optional<Slice> slice_of(Arguments a) {
  const at::Tensor& grad = a[0].toTensor();
  const std::vector<std::int64_t> whole = a[1].toIntVector();
  std::int64_t dim = a[2].toInt();
  const std::int64_t ndim = grad.dim();
  if (static_cast<std::int64_t>(whole.size()) != ndim || dim < -ndim || dim >= ndim) {
    return std::nullopt;
  }
  if (dim < 0) dim += ndim;
  const std::int64_t size = whole[static_cast<std::size_t>(dim)];
  const auto place = [&](std::int64_t given) {
    return std::clamp<std::int64_t>(given < 0 ? given + size : given, 0, size);
  };
  const std::int64_t begin = place(a[3].toInt());
  const std::int64_t room = std::max<std::int64_t>(place(a[4].toInt()) - begin, 0);
  const std::int64_t step = a[5].toInt();
  if (step < 1 || grad.size(dim) != ceil_div(room, step)) return std::nullopt;
  for (std::int64_t k = 0; k < ndim; ++k) {
    if (k != dim && grad.size(k) != whole[static_cast<std::size_t>(k)]) return std::nullopt;
  }
  return Slice{dim, begin, step, grad.size(dim)};
}

Recipe make_slice_backward(const Call& call) {
  const Arguments a = call.arguments();
  const at::Tensor& grad = a[0].toTensor();
  const Payload* payload = cut_payload(grad);
  const std::optional<Slice> slice = payload ? slice_of(a) : std::nullopt;
  if (!slice || !is_cut_in(payload->spec(), slice->dim)) return nullptr;
  const DTensorSpec spec = cut_along_only(payload->spec(), WhichDims(grad.sizes().size(), true));
  WhichDims moved(grad.sizes().size(), false);
  moved[static_cast<std::size_t>(slice->dim)] = true;
  MovePlan plan = plan_for(call, spec, a[1].toIntVector(), moved);
  plan.add(slice->dim,
           [&](const Interval& run) { return std::vector<Interval>{slice->within(run)}; });
  return [plan, slice = *slice](Arguments arguments) {
    if (!plan.is_inside) return plan.result({});
    const at::Tensor part = plan.fetch(tile_at(arguments[0].toTensor(), plan.from, plan.world), 0);
    const Coordinate at = plan.to.mesh().coordinate_of(plan.world.rank()).value();
    const at::Tensor tile = new_tile(plan.to, at).zero_();
    if (part.size(slice.dim) > 0) {
      const Interval run = run_at(plan.to, slice.dim, at);
      const std::int64_t first = slice.begin + slice.within(run).begin * slice.step - run.begin;
      const std::int64_t end = first + (part.size(slice.dim) - 1) * slice.step + 1;
      tile.slice(slice.dim, first, end, slice.step).copy_(part);
    }
    return plan.result(tile);
  };
}

// Joins -----------------------------------------------------------------------------------------

// The part of a run of the result that comes from an operand which begins there.
Interval part_of(const Interval& run, std::int64_t begin, std::int64_t size) {
  const std::int64_t first = std::clamp<std::int64_t>(run.begin - begin, 0, size);
  const std::int64_t last = std::clamp<std::int64_t>(run.end() - begin, first, size);
  return {first, last - first};
}

// The operand whose cut the others follow: the largest that is cut along the dim.
const Payload* leading_operand(const Call& call, std::int64_t dim) {
  const Payload* leading = nullptr;
  for (const TensorPlace& place : call.tensors()) {
    const Payload* payload = place.payload ? cut_payload(place.tensor) : nullptr;
    if (!payload || !is_cut_in(payload->spec(), dim)) continue;
    const bool is_larger =
        !leading || payload->spec().meta().numel() > leading->spec().meta().numel();
    if (is_larger) leading = payload;
  }
  return leading;
}

// Whether two tensors are cut by the same axes, and all dims but one in the same way.
bool differ_in_one_cut(const DTensorSpec& a, const DTensorSpec& b, std::int64_t dim) {
  if (a.is_partial() || !(a.mesh() == b.mesh()) || a.shard_order() != b.shard_order()) return false;
  for (std::size_t k = 0; k < a.shape().size(); ++k) {
    const bool is_dim = static_cast<std::int64_t>(k) == dim;
    if (!is_dim && !(a.dim_cuts()[k] == b.dim_cuts()[k])) return false;
  }
  return true;
}

// An operand's spec: its own where only the joined dim is cut otherwise, else that of the leading
// operand.
DTensorSpec operand_spec(const TensorPlace& place, const DTensorSpec& leading, std::int64_t dim) {
  const WhichDims all(leading.shape().size(), true);
  const bool has_tile = place.payload && !place.payload->link();
  if (has_tile && differ_in_one_cut(place.payload->spec(), leading, dim)) {
    return cut_along_only(place.payload->spec(), all);
  }
  return cut_alike(leading, TensorMeta(place.tensor.sizes().vec(), leading.meta().dtype()), all);
}

struct Join {
  DTensorSpec to;
  World world;
  std::vector<MovePlan> operands;
};

// libtorch joins an empty vector to tensors of any dims, and leaves it out.
bool is_empty_vector(const at::Tensor& tensor) { return tensor.dim() == 1 && tensor.numel() == 0; }

bool has_empty_vectors_beside_others(const std::vector<TensorPlace>& tensors) {
  const auto is_empty = [](const TensorPlace& place) { return is_empty_vector(place.tensor); };
  const auto is_other = [&](const TensorPlace& place) { return place.tensor.dim() > 1; };
  const auto is_of_type = [&](const TensorPlace& place) {
    return place.tensor.scalar_type() == tensors.front().tensor.scalar_type();
  };
  return std::any_of(tensors.begin(), tensors.end(), is_empty) &&
         std::any_of(tensors.begin(), tensors.end(), is_other) &&
         std::all_of(tensors.begin(), tensors.end(), is_of_type);
}

Values cat_without_empty_vectors(Arguments a) {
  std::vector<at::Tensor> others;
  for (const c10::IValue& tensor : a[0].toListRef()) {
    if (!is_empty_vector(tensor.toTensor())) others.push_back(tensor.toTensor());
  }
  return {at::cat(others, a[1].toInt())};
}

Recipe make_cat(const Call& call) {
  const std::vector<TensorPlace>& tensors = call.tensors();
  if (has_empty_vectors_beside_others(tensors)) return cat_without_empty_vectors;
  const std::int64_t ndim = tensors.empty() ? 0 : tensors.front().tensor.dim();
  std::int64_t dim = call.arguments()[1].toInt();
  if (ndim == 0 || dim < -ndim || dim >= ndim) return nullptr;
  if (dim < 0) dim += ndim;
  Shape shape = tensors.front().tensor.sizes().vec();
  std::int64_t& joined = shape[static_cast<std::size_t>(dim)];
  joined = 0;
  for (const TensorPlace& place : tensors) {
    const at::Tensor& tensor = place.tensor;
    if (tensor.dim() != ndim || tensor.scalar_type() != tensors.front().tensor.scalar_type()) {
      return nullptr;
    }
    if (place.payload && !(place.payload->spec().mesh() == call.mesh())) return nullptr;
    for (std::int64_t k = 0; k < ndim; ++k) {
      if (k != dim && tensor.size(k) != shape[static_cast<std::size_t>(k)]) return nullptr;
    }
    joined += tensor.size(dim);
  }
  const Payload* leading = leading_operand(call, dim);
  if (!leading) return nullptr;
  const DTensorSpec spec =
      cut_along_only(leading->spec(), std::vector<bool>(static_cast<std::size_t>(ndim), true));
  WhichDims moved(shape.size(), false);
  moved[static_cast<std::size_t>(dim)] = true;
  const auto joins = std::make_shared<Join>(
      Join{cut_alike(spec, TensorMeta(shape, spec.meta().dtype()), moved), call.world(), {}});
  std::int64_t begin = 0;
  for (const TensorPlace& place : tensors) {
    const std::int64_t size = place.tensor.size(dim);
    MovePlan plan{operand_spec(place, spec, dim), joins->to, call.world(),
                  call.coordinate().has_value()};
    plan.add(dim, [begin, size](const Interval& run) {
      return std::vector<Interval>{part_of(run, begin, size)};
    });
    joins->operands.push_back(std::move(plan));
    begin += size;
  }
  return [joins, dim](Arguments a) -> Values {
    std::vector<at::Tensor> parts;
    const bool is_inside = joins->operands.front().is_inside;
    for (std::size_t k = 0; k < joins->operands.size() && is_inside; ++k) {
      const MovePlan& plan = joins->operands[k];
      const at::Tensor tile = tile_at(a[0].toListRef()[k].toTensor(), plan.from, plan.world);
      parts.push_back(plan.fetch(tile, 0));
    }
    return {
        result_of_tile(is_inside ? at::cat(parts, dim) : at::Tensor(), joins->to, joins->world)};
  };
}

// Made of other ops -------------------------------------------------------------------------------

// libtorch copies slices into a new tensor, which would be replicated.
Recipe make_circular_pad(const Call& call) {
  const at::Tensor& self = call.arguments()[0].toTensor();
  const std::vector<std::int64_t> pads = call.arguments()[1].toIntVector();
  const Payload* payload = cut_payload(self);
  const std::int64_t ndim = self.dim();
  if (!payload || pads.size() % 2 != 0 || static_cast<std::int64_t>(pads.size()) > 2 * ndim) {
    return nullptr;
  }
  // those of images with a batch and channels, not more than once round, as libtorch wants it
  if (static_cast<std::int64_t>(pads.size()) != 2 * (ndim - 2)) return nullptr;
  const Padding padding{pads};
  bool is_taken = false;
  for (std::int64_t dim = 0; dim < ndim; ++dim) {
    const std::int64_t before = padding.before(dim, ndim);
    const std::int64_t after = padding.after(dim, ndim);
    if (std::min(before, after) < 0 || std::max(before, after) > self.size(dim)) return nullptr;
    is_taken = is_taken || (is_cut_in(payload->spec(), dim) && before + after > 0);
  }
  if (!is_taken || self.numel() == 0) return nullptr;
  return [padding, ndim](Arguments a) -> Values {
    at::Tensor result = a[0].toTensor();
    for (std::int64_t dim = 0; dim < ndim; ++dim) {
      const std::int64_t before = padding.before(dim, ndim);
      const std::int64_t after = padding.after(dim, ndim);
      if (before + after == 0) continue;
      const std::int64_t size = result.size(dim);
      std::vector<at::Tensor> parts;
      if (before > 0) parts.push_back(result.narrow(dim, size - before, before));
      parts.push_back(result);
      if (after > 0) parts.push_back(result.narrow(dim, 0, after));
      result = at::cat(parts, dim);
    }
    return {result};
  };
}

// By definition a flip and a transposition.
Recipe make_rot90(const Call& call) {
  const at::Tensor& self = call.arguments()[0].toTensor();
  std::vector<std::int64_t> dims = call.arguments()[2].toIntVector();
  const Payload* payload = cut_payload(self);
  if (!payload || dims.size() != 2 || self.dim() < 2) return nullptr;
  for (std::int64_t& dim : dims) {
    if (dim < -self.dim() || dim >= self.dim()) return nullptr;
    if (dim < 0) dim += self.dim();
  }
  if (dims[0] == dims[1]) return nullptr;
  const std::int64_t turns = ((call.arguments()[1].toInt() % 4) + 4) % 4;
  if (turns == 0) return nullptr;
  return [turns, dims](Arguments a) -> Values {
    const at::Tensor& tensor = a[0].toTensor();
    if (turns == 2) return {at::flip(tensor, dims)};
    const std::int64_t flipped = turns == 1 ? dims[1] : dims[0];
    return {at::flip(tensor, {flipped}).transpose(dims[0], dims[1])};
  };
}

// What sends as much as the operand has is not done unasked.
template <MakeRecipe make>
Recipe unless_strict(const Call& call) {
  return StrictMode::is_on() ? nullptr : make(call);
}

}  // namespace

void moved_elements(const c10::OperatorHandle& op, OperatorNotes& notes) {
  static const std::map<std::string, MakeRecipe> table = {
      {"aten::_pad_circular", make_circular_pad},
      {"aten::cat", unless_strict<make_cat>},
      {"aten::constant_pad_nd", make_constant_pad},
      {"aten::flip", unless_strict<make_flip>},
      {"aten::reflection_pad1d", make_pad<Boundary::Reflect>},
      {"aten::reflection_pad2d", make_pad<Boundary::Reflect>},
      {"aten::reflection_pad3d", make_pad<Boundary::Reflect>},
      {"aten::reflection_pad1d_backward", make_pad_backward<Boundary::Reflect>},
      {"aten::reflection_pad2d_backward", make_pad_backward<Boundary::Reflect>},
      {"aten::reflection_pad3d_backward", make_pad_backward<Boundary::Reflect>},
      {"aten::replication_pad1d", make_pad<Boundary::Nearest>},
      {"aten::replication_pad2d", make_pad<Boundary::Nearest>},
      {"aten::replication_pad3d", make_pad<Boundary::Nearest>},
      {"aten::replication_pad1d_backward", make_pad_backward<Boundary::Nearest>},
      {"aten::replication_pad2d_backward", make_pad_backward<Boundary::Nearest>},
      {"aten::replication_pad3d_backward", make_pad_backward<Boundary::Nearest>},
      {"aten::roll", unless_strict<make_roll>},
      {"aten::rot90", unless_strict<make_rot90>},
      {"aten::slice_backward", make_slice_backward},
  };
  const auto found = table.find(toString(op.operator_name()));
  if (found != table.end()) notes.decomposition = found->second;
}

}  // namespace tegula::inner::families
