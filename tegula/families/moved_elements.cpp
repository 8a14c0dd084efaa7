// Flips, rolls, and slices put into zeros, along a cut dim.
#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <memory>

#include "tegula/families/families.h"
#include "tegula/families/fetch_plan.h"
#include "tegula/families/recut.h"
#include "tegula/payload/local_call.h"
#include "tegula/plan/boundary.h"
#include "tegula/redistribute/tile_layout.h"
#include "tegula/spec/placed_otherwise.h"

namespace tegula::inner::families {
namespace {

// Where elements only change places, what is owed stays owed.
Recipe make_flip(const Call& call) {
  const at::Tensor& self = call.arguments()[0].toTensor();
  const Payload* payload = cut_payload(self);
  if (!payload) return nullptr;
  const DTensorSpec spec = densely(payload->spec());
  std::vector<std::int64_t> dims = call.arguments()[1].toIntVector();
  Dims flipped(spec.shape().size(), false);
  bool is_taken = false;
  for (std::int64_t& dim : dims) {
    if (dim < -self.dim() || dim >= self.dim()) return nullptr;
    if (dim < 0) dim += self.dim();
    if (flipped[static_cast<std::size_t>(dim)]) return nullptr;
    flipped[static_cast<std::size_t>(dim)] = true;
    is_taken = is_taken || is_cut_in(spec, dim);
  }
  if (!is_taken) return nullptr;
  FetchPlan plan = fetch_plan(call, spec, spec.shape(), flipped);
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
  const DTensorSpec spec = densely(payload->spec());
  std::vector<std::int64_t> local_shifts = shifts;         // of dims that are not cut
  std::map<std::int64_t, std::int64_t> shift_of_cut_dims;  // a dim may be listed twice
  Dims moved(spec.shape().size(), false);
  for (std::size_t k = 0; k < dims.size(); ++k) {
    if (dims[k] < -self.dim() || dims[k] >= self.dim()) return nullptr;
    if (dims[k] < 0) dims[k] += self.dim();
    if (!is_cut_in(spec, dims[k])) continue;
    moved[static_cast<std::size_t>(dims[k])] = true;
    shift_of_cut_dims[dims[k]] += shifts[k] % self.size(dims[k]);
    local_shifts[k] = 0;
  }
  if (shift_of_cut_dims.empty()) return nullptr;
  FetchPlan plan = fetch_plan(call, spec, spec.shape(), moved);
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
  const DTensorSpec spec = cut_along_only(payload->spec(), Dims(grad.sizes().size(), true));
  Dims moved(grad.sizes().size(), false);
  moved[static_cast<std::size_t>(slice->dim)] = true;
  FetchPlan plan = fetch_plan(call, spec, a[1].toIntVector(), moved);
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

// Made of other ops -------------------------------------------------------------------------------

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

}  // namespace

void moved_elements(const c10::OperatorHandle& op, OperatorNotes& notes) {
  static const std::map<std::string, MakeRecipe> table = {
      {"aten::flip", unless_strict<make_flip>},
      {"aten::roll", unless_strict<make_roll>},
      {"aten::rot90", unless_strict<make_rot90>},
      {"aten::slice_backward", make_slice_backward},
  };
  const auto found = table.find(toString(op.operator_name()));
  if (found != table.end()) notes.decomposition = found->second;
}

}  // namespace tegula::inner::families
