// Pooling over spatial dims that are cut (windows.h): the input's borders travel. Batch and
// channels may be cut in any way.
//
// A maximum is told where it is in the whole plane, so positions are counted anew on the way from a
// tile's plane to the whole one and back. An average is a sum over the window, divided by how many
// elements it counts there; that is a product of one number per dim.
#include <ATen/ATen.h>

#include <limits>
#include <map>
#include <memory>

#include "tegula/base/error.h"
#include "tegula/bridge/torch_types.h"
#include "tegula/families/families.h"
#include "tegula/families/operand_tiles.h"
#include "tegula/families/totals.h"
#include "tegula/families/windows.h"
#include "tegula/operators/call.h"
#include "tegula/payload/local_call.h"
#include "tegula/redistribute/tile_layout.h"

namespace tegula::inner::families {
namespace {

// Where the arguments of an op stand.
struct PoolingOp {
  std::size_t windows;  // dims that are pooled
  std::size_t self;
  std::optional<std::size_t> dilation;
  std::size_t ceil_mode;
};

// What is known of a kind of call.
struct PoolPlan {
  PoolingOp op;
  std::vector<Window> windows;
  DTensorSpec input;
  DTensorSpec output;
  World world;
  std::optional<CutWindows> cut;  // none on a rank outside of the mesh

  std::size_t first() const { return input.shape().size() - windows.size(); }
  DTensorSpec indices() const {
    const TensorMeta& meta = output.meta();
    return output.with_meta(TensorMeta(meta.shape(), meta.stride(), DType::I64));
  }
  bool has_outputs() const {
    for (const std::int64_t size :
         local_shape(output, output.mesh().coordinate_of(world.rank()).value())) {
      if (size == 0) return false;
    }
    return true;
  }
};

// As libtorch counts them; 0 if it would refuse.
std::int64_t outputs_of(const Window& window, std::int64_t inputs, bool ceil_mode) {
  const std::int64_t room = inputs + 2 * window.padding - window.reach() - 1;
  if (room < 0 || inputs < 1) return 0;
  std::int64_t outputs = (room + (ceil_mode ? window.stride - 1 : 0)) / window.stride + 1;
  // with ceil_mode the last window begins within the input or its left padding
  if (ceil_mode && (outputs - 1) * window.stride >= inputs + window.padding) --outputs;
  return outputs;
}

std::optional<std::vector<Window>> windows_of(const PoolingOp& op, Arguments a) {
  const auto list = [&](std::size_t index, const std::vector<std::int64_t>& otherwise) {
    return per_window(a[index].toIntVector(), op.windows, otherwise);
  };
  const std::vector<std::int64_t> ones(op.windows, 1);
  const std::vector<std::int64_t> kernel = list(op.self + 1, {});
  const std::vector<std::int64_t> stride = list(op.self + 2, kernel);
  const std::vector<std::int64_t> padding = list(op.self + 3, {});
  const std::vector<std::int64_t> dilation = op.dilation ? list(*op.dilation, ones) : ones;
  std::vector<Window> windows;
  for (const auto* values : {&kernel, &stride, &padding, &dilation}) {
    if (values->size() != op.windows) return std::nullopt;
  }
  for (std::size_t k = 0; k < op.windows; ++k) {
    windows.push_back({kernel[k], stride[k], padding[k], dilation[k]});
    const Window& window = windows.back();
    if (window.kernel < 1 || window.stride < 1 || window.padding < 0 || window.dilation < 1 ||
        window.padding > window.kernel / 2) {
      return std::nullopt;
    }
  }
  return windows;
}

// Null if no spatial dim of the input is cut, or the call is none that libtorch takes.
std::shared_ptr<const PoolPlan> plan_for(const Call& call, const PoolingOp& op) {
  const Arguments a = call.arguments();
  const at::Tensor& self = a[op.self].toTensor();
  const Payload* payload = payload_in(self);
  const auto ndim = static_cast<std::size_t>(self.dim());
  const std::size_t first = ndim - op.windows;
  if (!payload || payload->link() || (ndim != op.windows + 1 && ndim != op.windows + 2) ||
      self.numel() == 0 || !is_cut_from(payload->spec(), first)) {
    return nullptr;
  }
  for (const TensorPlace& place : call.tensors()) {
    if (place.payload && !(place.payload->spec().mesh() == call.mesh())) return nullptr;
  }
  const std::optional<std::vector<Window>> windows = windows_of(op, a);
  if (!windows) return nullptr;
  Shape shape = self.sizes().vec();
  for (std::size_t k = 0; k < op.windows; ++k) {
    shape[first + k] = outputs_of((*windows)[k], shape[first + k], a[op.ceil_mode].toBool());
    if (shape[first + k] < 1) return nullptr;
  }
  const DTensorSpec from = cut_along_only(payload->spec(), std::vector<bool>(ndim, true));
  const at::MemoryFormat format =
      ndim == op.windows + 2 ? self.suggest_memory_format() : at::MemoryFormat::Contiguous;
  const DTensorSpec to =
      cut_alike(from, image_meta(shape, format, from.meta().dtype()), dims_from(first, ndim));
  PoolPlan plan{op, *windows, from, to, call.world(), std::nullopt};
  if (call.coordinate()) plan.cut.emplace(call.world(), from, to, first, *windows);
  return std::make_shared<const PoolPlan>(std::move(plan));
}

// The op's arguments for what this rank has fetched.
Values arguments_for(const PoolPlan& plan, Arguments a, const at::Tensor& fetched) {
  Values arguments(a.begin(), a.end());
  arguments[plan.op.self] = fetched;
  std::vector<std::int64_t> padding;
  for (const Window& window : plan.windows) padding.push_back(window.padding);
  arguments[plan.op.self + 3] = plan.cut->where_not_cut(padding);
  return arguments;
}

bool fits(const at::Tensor& tensor, const PoolPlan& plan) {
  return tensor.sizes() == plan.output.shape();
}

// Maxima ------------------------------------------------------------------------------------------

constexpr PoolingOp maximum_of(std::size_t windows, std::size_t self) {
  return {windows, self, self + 4, self + 5};
}

// Positions in a plane of these sizes, as one number and per dim.
std::vector<at::Tensor> unravelled(at::Tensor positions, at::IntArrayRef sizes) {
  std::vector<at::Tensor> per_dim(sizes.size());
  for (std::size_t k = sizes.size(); k-- > 0;) {
    per_dim[k] = positions.remainder(sizes[k]);
    positions = positions.div(sizes[k], "floor");
  }
  return per_dim;
}

at::Tensor raveled(const std::vector<at::Tensor>& per_dim, at::IntArrayRef sizes) {
  at::Tensor positions = per_dim.front();
  for (std::size_t k = 1; k < sizes.size(); ++k) positions = positions * sizes[k] + per_dim[k];
  return positions;
}

// Where nothing in a window is greater than what is padded (minus infinity), libtorch points to the
// first element that is there.
at::Tensor in_whole_dim(const at::Tensor& position, std::int64_t begin, const Window& window) {
  const at::Tensor there = position + begin;
  const at::Tensor missing = there.neg().clamp_min(0);
  const std::int64_t step = window.dilation;
  return there + (missing + (step - 1)).div(step, "floor") * step;
}

at::Tensor in_whole_plane(const at::Tensor& indices, const PoolPlan& plan,
                          at::IntArrayRef fetched) {
  std::vector<at::Tensor> per_dim = unravelled(indices, fetched.slice(plan.first()));
  const std::vector<std::int64_t> begins = plan.cut->input_begins();
  for (std::size_t k = 0; k < per_dim.size(); ++k) {
    per_dim[k] = in_whole_dim(per_dim[k], begins[k], plan.windows[k]);
  }
  return raveled(per_dim, at::IntArrayRef(plan.input.shape()).slice(plan.first()));
}

at::Tensor in_fetched_plane(const at::Tensor& indices, const PoolPlan& plan,
                            at::IntArrayRef fetched) {
  std::vector<at::Tensor> per_dim =
      unravelled(indices, at::IntArrayRef(plan.input.shape()).slice(plan.first()));
  const std::vector<std::int64_t> begins = plan.cut->input_begins();
  const at::IntArrayRef sizes = fetched.slice(plan.first());
  for (std::size_t k = 0; k < per_dim.size(); ++k) {
    per_dim[k] = per_dim[k] - begins[k];
    if (at::logical_and(per_dim[k].ge(0), per_dim[k].lt(sizes[k])).all().item<bool>()) continue;
    throw UsageError("an index of pooled maxima points outside of its window")
        .hint("pass the indices that the pooling gave");
  }
  return raveled(per_dim, sizes);
}

// What every other value exceeds, or equals.
at::Scalar lowest(at::ScalarType type) {
  if (at::isFloatingType(type)) return -std::numeric_limits<double>::infinity();
  const std::size_t bits = 8 * c10::elementSize(type);
  if (type == at::kByte) return 0;
  return std::numeric_limits<std::int64_t>::min() >> (64 - bits);
}

Values maxima(const c10::OperatorHandle& op, const PoolPlan& plan, Arguments a) {
  Values tiles{at::Tensor(), at::Tensor()};
  if (plan.cut) {
    const at::Tensor& self = a[0].toTensor();
    const at::Tensor fetched =
        plan.cut->fetch(tile_at(self, plan.input, plan.world), lowest(self.scalar_type()));
    const Coordinate at = plan.output.mesh().coordinate_of(plan.world.rank()).value();
    if (plan.has_outputs()) {
      tiles = call_plain(op, arguments_for(plan, a, fetched));
      tiles[1] = in_whole_plane(tiles[1].toTensor(), plan, fetched.sizes());
    } else {
      tiles = {new_tile(plan.output, at), new_tile(plan.indices(), at)};
    }
  }
  return {result_of_tile(tiles[0].toTensor(), plan.output, plan.world),
          result_of_tile(tiles[1].toTensor(), plan.indices(), plan.world)};
}

template <std::size_t dims>
Recipe make_maxima(const Call& call) {
  const at::ScalarType type = call.arguments()[0].toTensor().scalar_type();
  if (type == at::kBool || at::isComplexType(type)) return nullptr;
  const std::shared_ptr<const PoolPlan> plan = plan_for(call, maximum_of(dims, 0));
  if (!plan) return nullptr;
  return [op = call.op(), plan](Arguments arguments) { return maxima(op, *plan, arguments); };
}

Values maxima_backward(const c10::OperatorHandle& op, const PoolPlan& plan, Arguments a) {
  at::Tensor tile;
  if (plan.cut) {
    const at::Tensor grad = tile_at(a[0].toTensor(), plan.output, plan.world);
    const at::Tensor indices = tile_at(a[7].toTensor(), plan.indices(), plan.world);
    const at::Tensor fetched =
        plan.cut->empty_like_fetched(tile_at(a[1].toTensor(), plan.input, plan.world));
    at::Tensor given = at::zeros_like(fetched);
    if (plan.has_outputs()) {
      Values arguments = arguments_for(plan, a, fetched);
      arguments[0] = grad;
      arguments[7] = in_fetched_plane(indices, plan, fetched.sizes());
      given = call_plain(op, std::move(arguments)).front().toTensor();
    }
    tile = plan.cut->add_up(given);
  }
  return {result_of_tile(tile, plan.input, plan.world)};
}

template <std::size_t dims>
Recipe make_maxima_backward(const Call& call) {
  const Arguments a = call.arguments();
  const std::shared_ptr<const PoolPlan> plan = plan_for(call, maximum_of(dims, 1));
  const bool same_type = a[0].toTensor().scalar_type() == a[1].toTensor().scalar_type();
  if (!plan || !same_type || !fits(a[0].toTensor(), *plan) || !fits(a[7].toTensor(), *plan)) {
    return nullptr;
  }
  return
      [op = call.op(), plan](Arguments arguments) { return maxima_backward(op, *plan, arguments); };
}

// Averages ----------------------------------------------------------------------------------------

constexpr PoolingOp average_of(std::size_t windows, std::size_t self) {
  return {windows, self, std::nullopt, self + 4};
}

// How many elements along a dim the windows of these outputs count.
at::Tensor counted(const Window& window, const Interval& outputs, std::int64_t inputs,
                   bool counts_padding) {
  std::vector<std::int64_t> counts;
  for (std::int64_t output = outputs.begin; output < outputs.end(); ++output) {
    std::int64_t begin = output * window.stride - window.padding;
    std::int64_t end = std::min(begin + window.kernel, inputs + window.padding);
    if (!counts_padding) {
      begin = std::max<std::int64_t>(begin, 0);
      end = std::min(end, inputs);
    }
    counts.push_back(end - begin);
  }
  return at::tensor(counts, at::kLong);
}

// By what this rank's sums are divided: one number, or one per output.
at::Tensor divisors(const PoolPlan& plan, Arguments a) {
  const c10::IValue& given = a[plan.op.ceil_mode + 2];
  if (!given.isNone()) return at::scalar_tensor(given.toInt(), at::kLong);
  const bool counts_padding = a[plan.op.ceil_mode + 1].toBool();
  at::Tensor product = at::ones({}, at::kLong);
  for (std::size_t k = 0; k < plan.windows.size(); ++k) {
    product = product.unsqueeze(-1) * counted(plan.windows[k], plan.cut->outputs()[k],
                                              plan.input.shape()[plan.first() + k], counts_padding);
  }
  return product;
}

at::Tensor divided(const at::Tensor& sums, const at::Tensor& by) {
  return at::isIntegralType(sums.scalar_type(), false) ? sums.div(by, "trunc")
                                                       : sums / by.to(sums.scalar_type());
}

// Sums instead of averages.
Values summing(const PoolPlan& plan, Arguments a, const at::Tensor& fetched) {
  Values arguments = arguments_for(plan, a, fetched);
  arguments[plan.op.ceil_mode + 2] = std::int64_t{1};
  return arguments;
}

Values averages(const c10::OperatorHandle& op, const PoolPlan& plan, Arguments a) {
  at::Tensor tile;
  if (plan.cut) {
    const at::Tensor self = tile_at(a[0].toTensor(), plan.input, plan.world);
    const at::Tensor fetched = plan.cut->fetch(self, 0).to(sum_type(self.scalar_type()));
    if (plan.has_outputs()) {
      const Values sums = call_plain(op, summing(plan, a, fetched));
      tile = divided(sums.front().toTensor(), divisors(plan, a)).to(self.scalar_type());
    } else {
      tile = new_tile(plan.output, plan.output.mesh().coordinate_of(plan.world.rank()).value());
    }
  }
  return {result_of_tile(tile, plan.output, plan.world)};
}

Values averages_backward(const c10::OperatorHandle& op, const PoolPlan& plan, Arguments a) {
  at::Tensor tile;
  if (plan.cut) {
    const at::Tensor grad = tile_at(a[0].toTensor(), plan.output, plan.world);
    const at::ScalarType type = grad.scalar_type();
    const at::Tensor self = tile_at(a[1].toTensor(), plan.input, plan.world);
    const at::Tensor fetched = plan.cut->empty_like_fetched(self).to(sum_type(type));
    at::Tensor given = at::zeros_like(fetched);
    if (plan.has_outputs()) {
      Values arguments = summing(plan, a, fetched);
      arguments[0] = divided(grad.to(sum_type(type)), divisors(plan, a));
      given = call_plain(op, std::move(arguments)).front().toTensor();
    }
    tile = plan.cut->add_up(given).to(type);
  }
  return {result_of_tile(tile, plan.input, plan.world)};
}

bool has_usable_divisor(const c10::IValue& divisor) {
  return divisor.isNone() || divisor.toInt() != 0;
}

template <std::size_t dims>
Recipe make_averages(const Call& call) {
  const std::shared_ptr<const PoolPlan> plan = plan_for(call, average_of(dims, 0));
  const bool is_taken = plan && has_usable_divisor(call.arguments()[6]) &&
                        !at::isComplexType(call.arguments()[0].toTensor().scalar_type());
  if (!is_taken) return nullptr;
  return [op = call.op(), plan](Arguments arguments) { return averages(op, *plan, arguments); };
}

template <std::size_t dims>
Recipe make_averages_backward(const Call& call) {
  const Arguments a = call.arguments();
  const std::shared_ptr<const PoolPlan> plan = plan_for(call, average_of(dims, 1));
  const bool same_type = a[0].toTensor().scalar_type() == a[1].toTensor().scalar_type();
  if (!plan || !same_type || !fits(a[0].toTensor(), *plan) || !has_usable_divisor(a[7])) {
    return nullptr;
  }
  return [op = call.op(), plan](Arguments arguments) {
    return averages_backward(op, *plan, arguments);
  };
}

// Windows drawn at random -------------------------------------------------------------------------

// The first rank's tensor on all ranks of the mesh, along one axis after the other.
at::Tensor from_first_rank(at::Tensor tensor, const DeviceMesh& mesh, const World& world) {
  for (std::size_t axis = 0; axis < mesh.ndim(); ++axis) {
    if (mesh.axes()[axis].size > 1) tensor = world.group(mesh, axis).broadcast(tensor, 0);
  }
  return tensor;
}

// libtorch's functions and modules draw plain numbers that say where windows begin, and each rank
// draws others: those of the first rank count.
template <std::size_t dims>
Recipe make_random_windows(const Call& call) {
  if (payload_in(call.arguments()[3].toTensor())) return nullptr;
  const bool is_on_mesh = call.coordinate().has_value();
  return [mesh = call.mesh(), world = call.world(), is_on_mesh](Arguments a) -> Values {
    const at::Tensor drawn = a[3].toTensor().contiguous();
    const at::Tensor samples =
        replicated(is_on_mesh ? from_first_rank(drawn, mesh, world) : drawn, mesh, world);
    const at::Tensor& self = a[0].toTensor();
    const std::vector<std::int64_t> kernel = a[1].toIntVector();
    const std::vector<std::int64_t> outputs = a[2].toIntVector();
    auto [values, indices] = dims == 2 ? at::fractional_max_pool2d(self, kernel, outputs, samples)
                                       : at::fractional_max_pool3d(self, kernel, outputs, samples);
    return {values, indices};
  };
}

// Without a gradient libtorch reads memory itself here; with one it takes this way, too.
Values max_pool1d(Arguments a) {
  return {std::get<0>(at::max_pool1d_with_indices(a[0].toTensor(), a[1].toIntVector(),
                                                  a[2].toIntVector(), a[3].toIntVector(),
                                                  a[4].toIntVector(), a[5].toBool()))};
}

Recipe make_max_pool1d(const Call&) { return max_pool1d; }

}  // namespace

void pooling(const c10::OperatorHandle& op, OperatorNotes& notes) {
  static const std::map<std::string, MakeRecipe> table = {
      {"aten::max_pool1d", make_max_pool1d},
      {"aten::max_pool2d_with_indices", make_maxima<2>},
      {"aten::max_pool3d_with_indices", make_maxima<3>},
      {"aten::max_pool2d_with_indices_backward", make_maxima_backward<2>},
      {"aten::max_pool3d_with_indices_backward", make_maxima_backward<3>},
      {"aten::avg_pool2d", make_averages<2>},
      {"aten::avg_pool3d", make_averages<3>},
      {"aten::avg_pool2d_backward", make_averages_backward<2>},
      {"aten::avg_pool3d_backward", make_averages_backward<3>},
      {"aten::fractional_max_pool2d", make_random_windows<2>},
      {"aten::fractional_max_pool3d", make_random_windows<3>},
  };
  const auto found = table.find(toString(op.operator_name()));
  if (found != table.end()) notes.decomposition = found->second;
}

}  // namespace tegula::inner::families
