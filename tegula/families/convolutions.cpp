// Convolutions of images whose spatial dims are cut (windows.h): the input's borders travel. The
// batch may be cut, too; channels and weights are brought whole first. Of the gradients, the
// input's is added up over the borders, and those of weight and bias are sums owed by the axes that
// cut the images.
#include <ATen/ATen.h>

#include <memory>

#include "tegula/bridge/torch_types.h"
#include "tegula/families/families.h"
#include "tegula/families/operand_tiles.h"
#include "tegula/families/windows.h"
#include "tegula/operators/call.h"
#include "tegula/payload/local_call.h"
#include "tegula/redistribute/tile_layout.h"
#include "tegula/spec/placed_otherwise.h"
#include "tegula/spec/slices.h"

namespace tegula::inner::families {
namespace {

constexpr std::size_t kFirst = 2;  // of the spatial dims; before them the batch and the channels

// The arguments that forward and backward have in common, from `stride` on.
struct Geometry {
  std::vector<std::int64_t> stride;
  std::vector<std::int64_t> padding;
  std::vector<std::int64_t> dilation;
  std::vector<std::int64_t> output_padding;
  bool is_transposed = false;
  std::int64_t groups = 1;
};

Geometry geometry_from(Arguments a, std::size_t stride, std::size_t windows) {
  const auto list = [&](std::size_t index) {
    return per_window(a[index].toIntVector(), windows, {});
  };
  return {list(stride),     list(stride + 1),       list(stride + 2),
          list(stride + 4), a[stride + 3].toBool(), a[stride + 5].toInt()};
}

bool makes_sense(const Geometry& geometry, std::size_t windows) {
  const auto all_at_least = [&](std::int64_t least, const std::vector<std::int64_t>& values) {
    if (values.size() != windows) return false;
    for (const std::int64_t value : values) {
      if (value < least) return false;
    }
    return true;
  };
  return all_at_least(1, geometry.stride) && all_at_least(0, geometry.padding) &&
         all_at_least(1, geometry.dilation) && all_at_least(0, geometry.output_padding) &&
         geometry.groups >= 1;
}

std::vector<Window> windows_of(const Geometry& geometry, at::IntArrayRef weight) {
  std::vector<Window> windows;
  for (std::size_t k = 0; k < geometry.stride.size(); ++k) {
    windows.push_back({weight[kFirst + k], geometry.stride[k], geometry.padding[k],
                       geometry.dilation[k], geometry.is_transposed});
  }
  return windows;
}

std::int64_t outputs_of(const Window& window, std::int64_t inputs, std::int64_t output_padding) {
  const std::int64_t padded = 2 * window.padding;
  return window.is_transposed
             ? (inputs - 1) * window.stride - padded + window.reach() + output_padding + 1
             : (inputs + padded - window.reach() - 1) / window.stride + 1;
}

// None if libtorch would refuse the call.
std::optional<Shape> output_shape(const Geometry& geometry, const std::vector<Window>& windows,
                                  at::IntArrayRef input, at::IntArrayRef weight) {
  const std::int64_t channels = weight[geometry.is_transposed ? 0 : 1];
  const bool channels_fit =
      geometry.is_transposed
          ? channels == input[1] && channels % geometry.groups == 0
          : channels * geometry.groups == input[1] && weight[0] % geometry.groups == 0;
  if (!channels_fit || input[0] == 0) return std::nullopt;
  Shape shape{input[0], geometry.is_transposed ? weight[1] * geometry.groups : weight[0]};
  for (std::size_t k = 0; k < windows.size(); ++k) {
    const Window& window = windows[k];
    const std::int64_t inputs = input[kFirst + k];
    const std::int64_t gap = std::max(window.stride, window.dilation);
    const bool fits = window.is_transposed ? geometry.output_padding[k] < gap
                                           : inputs + 2 * window.padding > window.reach();
    const std::int64_t outputs = fits ? outputs_of(window, inputs, geometry.output_padding[k]) : 0;
    if (inputs < 1 || window.kernel < 1 || outputs < 1) return std::nullopt;
    shape.push_back(outputs);
  }
  return shape;
}

at::MemoryFormat image_format(const at::Tensor& input, const at::Tensor& weight) {
  const at::MemoryFormat format = input.suggest_memory_format();
  return format == at::MemoryFormat::Contiguous ? weight.suggest_memory_format() : format;
}

// What is known of a kind of call.
struct Plan {
  Geometry geometry;
  DTensorSpec input;
  DTensorSpec output;
  World world;
  std::optional<CutWindows> windows;  // none on a rank outside of the mesh

  DTensorSpec whole(const at::Tensor& tensor) const {
    return replicated_spec(input.mesh(), dense(meta_of(tensor)));
  }
  // Of what every rank adds up over its own outputs.
  DTensorSpec owed(const TensorMeta& meta) const {
    Placements placements = output.placements();
    for (Placement& placement : placements) {
      if (as_shard(placement)) placement = Partial(ReduceOp::Sum);
    }
    return {output.mesh(), placements, meta};
  }
  // The arguments for what this rank has fetched, from `stride` on.
  void put_geometry(Values& arguments, std::size_t stride) const {
    arguments[stride] = geometry.stride;
    arguments[stride + 1] = windows->where_not_cut(geometry.padding);
    arguments[stride + 2] = geometry.dilation;
    arguments[stride + 4] = windows->where_not_cut(geometry.output_padding);
  }
};

bool is_on(const at::Tensor& tensor, const DeviceMesh& mesh) {
  const Payload* payload = payload_in(tensor);
  return !payload || payload->spec().mesh() == mesh;
}

// Null if no spatial dim of the input is cut, or the call is none that libtorch takes.
std::shared_ptr<const Plan> plan_for(const Call& call, std::size_t first_tensor,
                                     std::size_t stride) {
  const Arguments a = call.arguments();
  const at::Tensor& input = a[first_tensor].toTensor();
  const at::Tensor& weight = a[first_tensor + 1].toTensor();
  const Payload* payload = payload_in(input);
  if (!payload || payload->link() || input.dim() <= static_cast<std::int64_t>(kFirst) ||
      weight.dim() != input.dim() || weight.scalar_type() != input.scalar_type() ||
      !is_cut_from(payload->spec(), kFirst)) {
    return nullptr;
  }
  for (const TensorPlace& place : call.tensors()) {
    if (!is_on(place.tensor, call.mesh())) return nullptr;
  }
  const std::size_t count = static_cast<std::size_t>(input.dim()) - kFirst;
  const Geometry geometry = geometry_from(a, stride, count);
  if (!makes_sense(geometry, count)) return nullptr;
  const std::vector<Window> windows = windows_of(geometry, weight.sizes());
  const std::optional<Shape> shape = output_shape(geometry, windows, input.sizes(), weight.sizes());
  if (!shape) return nullptr;
  std::vector<bool> cut_dims(static_cast<std::size_t>(input.dim()), true);
  cut_dims[1] = false;  // channels
  const DTensorSpec from = cut_along_only(payload->spec(), cut_dims);
  const DTensorSpec to =
      cut_alike(from, image_meta(*shape, image_format(input, weight), from.meta().dtype()),
                dims_from(kFirst, count + kFirst));
  Plan plan{geometry, from, to, call.world(), std::nullopt};
  if (call.coordinate()) plan.windows.emplace(call.world(), from, to, kFirst, windows);
  return std::make_shared<const Plan>(std::move(plan));
}

// The convolution ---------------------------------------------------------------------------------

at::Tensor convolved_tile(const c10::OperatorHandle& op, const Plan& plan, Arguments a) {
  const at::Tensor tile = plan.windows->fetch(tile_at(a[0].toTensor(), plan.input, plan.world), 0);
  Values arguments(a.begin(), a.end());
  arguments[0] = tile;
  for (const std::size_t k : {1U, 2U}) {
    if (!a[k].isTensor() || !a[k].toTensor().defined()) continue;
    const at::Tensor& tensor = a[k].toTensor();
    arguments[k] = tile_at(tensor, plan.whole(tensor), plan.world);
  }
  plan.put_geometry(arguments, 3);
  const Coordinate at = plan.output.mesh().coordinate_of(plan.world.rank()).value();
  at::Tensor empty = new_tile(plan.output, at);
  if (empty.numel() == 0) return empty;
  return plan.windows->wanted_of(call_plain(op, std::move(arguments)).front().toTensor());
}

Recipe make_convolution(const Call& call) {
  const Arguments a = call.arguments();
  const std::shared_ptr<const Plan> plan = plan_for(call, 0, 3);
  if (!plan) return nullptr;
  if (a[2].isTensor() && a[2].toTensor().defined()) {
    const at::Tensor& bias = a[2].toTensor();
    const bool fits = bias.dim() == 1 && bias.size(0) == plan->output.shape()[1] &&
                      dtype_of(bias.scalar_type()) == plan->output.meta().dtype();
    if (!fits) return nullptr;
  }
  return [op = call.op(), plan](Arguments arguments) -> Values {
    const at::Tensor tile = plan->windows ? convolved_tile(op, *plan, arguments) : at::Tensor();
    return {result_of_tile(tile, plan->output, plan->world)};
  };
}

// Its gradients -----------------------------------------------------------------------------------

// Of what was fetched, of weight and of bias; zeros where this rank has no outputs.
Values gradients_of_tile(const c10::OperatorHandle& op, const Plan& plan, Arguments a) {
  const at::Tensor grad = tile_at(a[0].toTensor(), plan.output, plan.world);
  const at::Tensor input = tile_at(a[1].toTensor(), plan.input, plan.world);
  const bool needs_input = a[10].toBoolList().get(1);  // only the weight's gradient reads it
  const at::Tensor fetched =
      needs_input ? plan.windows->fetch(input, 0) : plan.windows->empty_like_fetched(input);
  const at::Tensor weight = tile_at(a[2].toTensor(), plan.whole(a[2].toTensor()), plan.world);
  if (grad.numel() == 0) {
    return {at::zeros_like(fetched), at::zeros_like(weight),
            at::zeros({plan.output.shape()[1]}, weight.options())};
  }
  Values arguments(a.begin(), a.end());
  arguments[0] = plan.windows->with_unwanted(grad);
  arguments[1] = fetched;
  arguments[2] = weight;
  plan.put_geometry(arguments, 4);
  return call_plain(op, std::move(arguments));
}

Values convolution_backward(const c10::OperatorHandle& op, const Plan& plan, Arguments a) {
  const c10::List<bool> mask = a[10].toBoolList();
  Values tiles(3);
  if (plan.windows) {
    tiles = gradients_of_tile(op, plan, a);
    if (mask.get(0)) tiles[0] = plan.windows->add_up(tiles[0].toTensor());
  }
  const DTensorSpec specs[] = {
      plan.input, plan.owed(dense(meta_of(a[2].toTensor()))),
      plan.owed(TensorMeta({plan.output.shape()[1]}, plan.output.meta().dtype()))};
  Values results;
  for (std::size_t k = 0; k < 3; ++k) {
    const at::Tensor tile = tiles[k].isTensor() ? tiles[k].toTensor() : at::Tensor();
    results.emplace_back(mask.get(k) ? result_of_tile(tile, specs[k], plan.world) : at::Tensor());
  }
  return results;
}

Recipe make_convolution_backward(const Call& call) {
  const std::shared_ptr<const Plan> plan = plan_for(call, 1, 4);
  if (!plan) return nullptr;
  const at::Tensor& grad = call.arguments()[0].toTensor();
  if (grad.sizes() != plan->output.shape() ||
      dtype_of(grad.scalar_type()) != plan->output.meta().dtype()) {
    return nullptr;
  }
  return [op = call.op(), plan](Arguments arguments) {
    return convolution_backward(op, *plan, arguments);
  };
}

// (..., groups, and switches of libraries that compute it)
Values without_switches(Arguments a) {
  const std::optional<at::Tensor> bias = a[2].toOptional<at::Tensor>();
  return {at::convolution(a[0].toTensor(), a[1].toTensor(), bias, a[3].toIntVector(),
                          a[4].toIntVector(), a[5].toIntVector(), a[6].toBool(), a[7].toIntVector(),
                          a[8].toInt())};
}

Recipe make_without_switches(const Call&) { return without_switches; }

}  // namespace

void convolutions(const c10::OperatorHandle& op, OperatorNotes& notes) {
  const std::string name = toString(op.operator_name());
  if (name == "aten::convolution") notes.decomposition = make_convolution;
  if (name == "aten::_convolution") notes.decomposition = make_without_switches;
  if (name == "aten::convolution_backward") notes.decomposition = make_convolution_backward;
}

}  // namespace tegula::inner::families
