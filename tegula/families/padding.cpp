// Padding along cut dims: what lies beyond the border is outside, a neighbour's element, or a
// mirrored one.
#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <memory>

#include "tegula/families/families.h"
#include "tegula/families/fetch_plan.h"
#include "tegula/payload/local_call.h"
#include "tegula/plan/boundary.h"
#include "tegula/redistribute/tile_layout.h"

namespace tegula::inner::families {
namespace {

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
  FetchPlan plan;
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
  Dims moved(shape.size(), false);
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
  PaddingPlan result{fetch_plan(call, spec, shape, moved), local_pads};
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
    const FetchPlan& plan = padding->plan;
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
    const FetchPlan& plan = padding->plan;
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
    const FetchPlan& plan = padding->plan;
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

}  // namespace

void padding(const c10::OperatorHandle& op, OperatorNotes& notes) {
  static const std::map<std::string, MakeRecipe> table = {
      {"aten::_pad_circular", make_circular_pad},
      {"aten::constant_pad_nd", make_constant_pad},
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
  };
  const auto found = table.find(toString(op.operator_name()));
  if (found != table.end()) notes.decomposition = found->second;
}

}  // namespace tegula::inner::families
