// Normalization over dims that are cut: means and variances are totals of all ranks, and so are the
// sums that gradients need.
#include <ATen/ATen.h>

#include <algorithm>

#include "tegula/families/recipes.h"
#include "tegula/families/recut.h"
#include "tegula/families/totals.h"
#include "tegula/operators/call.h"
#include "tegula/payload/guards.h"

namespace tegula::inner::families {
namespace {

// What libtorch gives means in: the weights' type where that is wider.
at::ScalarType statistics_type(const at::Tensor& input, const c10::IValue& weight) {
  return is_given(weight) ? weight.toTensor().scalar_type() : input.scalar_type();
}

struct Normalized {
  at::Tensor values;
  at::Tensor mean;
  at::Tensor rstd;  // one over the standard deviation
};

// The input owes nothing: what is subtracted from it is rounded as it is.
Normalized normalized(const at::Tensor& input, at::IntArrayRef dims, double eps) {
  const at::Tensor mean = with_sum_paid(at::mean(input, dims, true));
  const at::Tensor off = input - mean;
  const at::Tensor rstd = at::rsqrt(at::mean(at::square(off), dims, true) + eps);
  return {off * rstd, mean, rstd};
}

// Of what was normalized, given the gradient of the normalized values.
at::Tensor gradient_through(const at::Tensor& grad, const at::Tensor& values,
                            const at::Tensor& rstd, at::IntArrayRef dims) {
  const at::Tensor mean = at::mean(grad, dims, true);
  const at::Tensor along = at::mean(grad * values, dims, true);
  return (grad - mean - values * along) * rstd;
}

at::Tensor sum_over(const at::Tensor& tensor, at::IntArrayRef dims) {
  return dims.empty() ? tensor : at::sum(tensor, dims);
}

// Over the last dims ------------------------------------------------------------------------------

// Per dim of the input: whether it is normalized.
Dims last_dims(const at::Tensor& input, const c10::IValue& normalized_shape) {
  const auto dims = static_cast<std::size_t>(input.dim());
  const std::size_t count = normalized_shape.toIntVector().size();
  Dims last(dims, false);
  for (std::size_t k = 0; k < count && k < dims; ++k) last[dims - 1 - k] = true;
  return last;
}

// (input, normalized_shape, weight?, bias?, eps) -> output, mean, rstd
Values layer_norm(Arguments a) {
  const at::Tensor& input = tensor_at(a, 0);
  const std::vector<std::int64_t> dims = listed(last_dims(input, a[1]));
  const Normalized made = normalized(to_add_up(with_sum_paid(input)), dims, a[4].toDouble());
  at::Tensor output = made.values;
  if (is_given(a[2])) output = output * to_add_up(tensor_at(a, 2));
  if (is_given(a[3])) output = output + to_add_up(tensor_at(a, 3));
  const at::ScalarType type = statistics_type(input, a[2]);
  return {in_type(output, input.scalar_type()), in_type(made.mean, type), in_type(made.rstd, type)};
}

// Whether the dims are there, as libtorch asks, and one of them is cut.
bool normalizes_cut_dims(const at::Tensor& input, const c10::IValue& normalized_shape) {
  const std::vector<std::int64_t> shape = normalized_shape.toIntVector();
  const auto count = static_cast<std::int64_t>(shape.size());
  if (count == 0 || input.dim() < count || input.numel() == 0) return false;
  if (input.sizes().slice(static_cast<std::size_t>(input.dim() - count)) !=
      at::IntArrayRef(shape)) {
    return false;
  }
  const Dims dims = last_dims(input, normalized_shape);
  // of one element there is no more than rounding, which is libtorch's
  return at::isFloatingType(input.scalar_type()) && count_of(input, dims) > 1 &&
         is_cut(input, dims);
}

// Whether rows are so short that they travel for less than their totals would, to ranks that have
// whole rows then.
bool has_short_rows(const at::Tensor& input, const c10::IValue& normalized_shape) {
  const std::optional<std::int64_t> cut = only_cut_dim(input);
  if (!cut || StrictMode::is_on()) return false;
  const Dims dims = last_dims(input, normalized_shape);
  const DTensorSpec& spec = payload_in(input)->spec();
  const std::int64_t ranks = spec.mesh().axes()[*only_axis_along(input, *cut)].size;
  bool can_move = false;
  for (std::size_t dim = 0; dim < dims.size(); ++dim) {
    can_move = can_move || (!dims[dim] && spec.shape()[dim] >= ranks);
  }
  return can_move && count_of(input, dims) < 2 * ranks;
}

bool has_shape_if_given(const c10::IValue& weight, const c10::IValue& shape) {
  return !is_given(weight) || weight.toTensor().sizes() == at::IntArrayRef(shape.toIntVector());
}

// Weights that are cut meet what is normalized, of which each rank takes its slice.
Values layer_norm_by_cut_weights(Arguments a) {
  auto [output, mean, rstd] =
      at::native_layer_norm(tensor_at(a, 0), a[1].toIntVector(), {}, {}, a[4].toDouble());
  if (is_given(a[2])) output = output * tensor_at(a, 2);
  if (is_given(a[3])) output = output + tensor_at(a, 3);
  return {output, mean, rstd};
}

// Whether the axes that cut the weight leave the input whole.
bool is_sliced_by(const c10::IValue& weight, const at::Tensor& input) {
  if (!is_given(weight) || !is_spread(weight.toTensor())) return false;
  const DTensorSpec& of_weight = payload_in(weight.toTensor())->spec();
  const DTensorSpec& of_input = payload_in(input)->spec();
  if (!(of_weight.mesh() == of_input.mesh()) || of_weight.is_partial()) return false;
  for (std::size_t axis = 0; axis < of_weight.placements().size(); ++axis) {
    const bool is_cut = as_shard(of_weight.placements()[axis]) != nullptr;
    if (is_cut && of_input.placements()[axis] != Placement(Replicate())) return false;
  }
  return true;
}

bool has_cut_weights(Arguments a) {
  const at::Tensor& input = tensor_at(a, 0);
  if (!has_tile(input) || sum_type(input.scalar_type()) != input.scalar_type()) return false;
  for (const std::size_t k : {std::size_t{2}, std::size_t{3}}) {
    if (is_given(a[k]) && tensor_at(a, k).scalar_type() != input.scalar_type()) return false;
    if (is_given(a[k]) && is_spread(tensor_at(a, k)) && !is_sliced_by(a[k], input)) return false;
  }
  return is_sliced_by(a[2], input) || is_sliced_by(a[3], input);
}

Recipe make_layer_norm(const Call& call) {
  const Arguments a = call.arguments();
  const bool fits = has_shape_if_given(a[2], a[1]) && has_shape_if_given(a[3], a[1]);
  if (!fits) return nullptr;
  if (normalizes_cut_dims(tensor_at(a, 0), a[1])) {
    return has_short_rows(tensor_at(a, 0), a[1]) ? nullptr : layer_norm;
  }
  return has_cut_weights(a) ? layer_norm_by_cut_weights : nullptr;
}

// (grad, input, normalized_shape, mean, rstd, weight?, bias?, mask) -> of input, weight, bias
Values layer_norm_backward(Arguments a) {
  const at::Tensor grad = to_add_up(tensor_at(a, 0));
  const at::Tensor& input = tensor_at(a, 1);
  Dims dims = last_dims(input, a[2]);
  const at::Tensor rstd = to_add_up(tensor_at(a, 4));
  const at::Tensor values = (to_add_up(with_sum_paid(input)) - to_add_up(tensor_at(a, 3))) * rstd;
  const c10::List<bool> wanted = a[7].toBoolList();
  const at::Tensor weighted = is_given(a[5]) ? grad * to_add_up(tensor_at(a, 5)) : grad;
  at::Tensor of_input;
  if (wanted[0]) {
    of_input = in_type(gradient_through(weighted, values, rstd, listed(dims)), input.scalar_type());
  }
  dims.flip();
  const auto of_parameter = [&](const at::Tensor& gradient) {
    return rounded_to(sum_over(gradient, listed(dims)), statistics_type(input, a[5]));
  };
  return {of_input, wanted[1] ? of_parameter(grad * values) : at::Tensor(),
          wanted[2] ? of_parameter(grad) : at::Tensor()};
}

Recipe make_layer_norm_backward(const Call& call) {
  const Arguments a = call.arguments();
  const bool fits = tensor_at(a, 0).sizes() == tensor_at(a, 1).sizes() &&
                    has_shape_if_given(a[5], a[2]) && has_shape_if_given(a[6], a[2]);
  return fits && normalizes_cut_dims(tensor_at(a, 1), a[2]) ? layer_norm_backward : nullptr;
}

// Over groups of channels -------------------------------------------------------------------------

// [n, c, ...] as [n, groups, c / groups, ...]
at::Tensor in_groups(const at::Tensor& tensor, std::int64_t groups) {
  std::vector<std::int64_t> shape = tensor.sizes().vec();
  shape[1] /= groups;
  shape.insert(shape.begin() + 1, groups);
  return tensor.view(shape);
}

// Of a tensor in groups: all that is normalized together.
std::vector<std::int64_t> dims_of_group(const at::Tensor& grouped) {
  std::vector<std::int64_t> dims;
  for (std::int64_t dim = 2; dim < grouped.dim(); ++dim) dims.push_back(dim);
  return dims;
}

// One per channel, to be broadcast to [n, c, ...].
at::Tensor per_channel(const at::Tensor& weight, const at::Tensor& input) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(input.dim() - 1), 1);
  shape[0] = input.size(1);
  return to_add_up(weight).view(shape);
}

// One per group [n, groups], to be broadcast to a tensor in groups.
at::Tensor per_group(const at::Tensor& statistic, const at::Tensor& grouped) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(grouped.dim()), 1);
  shape[0] = grouped.size(0);
  shape[1] = grouped.size(1);
  return to_add_up(statistic).view(shape);
}

// (input [n, c, ...], weight [c]?, bias [c]?, n, c, rest, groups, eps) -> output, mean and rstd
// [n, groups]
Values group_norm(Arguments a) {
  const at::Tensor& input = tensor_at(a, 0);
  const at::Tensor grouped = in_groups(to_add_up(with_sum_paid(input)), a[6].toInt());
  const std::vector<std::int64_t> dims = dims_of_group(grouped);
  const Normalized made = normalized(grouped, dims, a[7].toDouble());
  at::Tensor output = made.values.view(input.sizes());
  if (is_given(a[1])) output = output * per_channel(tensor_at(a, 1), input);
  if (is_given(a[2])) output = output + per_channel(tensor_at(a, 2), input);
  const at::ScalarType type = statistics_type(input, a[1]);
  return {in_type(output, input.scalar_type()), in_type(made.mean.squeeze(dims), type),
          in_type(made.rstd.squeeze(dims), type)};
}

// Whether some of what is normalized is cut, and tiles have whole groups if channels are, or parts
// of the only one.
bool can_group(const at::Tensor& input, std::int64_t groups) {
  if (input.dim() < 3 || input.numel() == 0) return false;
  Dims all_but_batch(static_cast<std::size_t>(input.dim()), true);
  all_but_batch[0] = false;
  if (!is_cut(input, all_but_batch)) return false;
  if (!at::isFloatingType(input.scalar_type()) || groups < 1 || input.size(1) % groups != 0) {
    return false;
  }
  if (!is_cut(input, 1) || groups == 1) return true;
  const std::vector<std::int64_t> sizes = shard_sizes(*payload_of(input), 1);
  const std::int64_t in_group = input.size(1) / groups;
  return std::all_of(sizes.begin(), sizes.end(),
                     [&](std::int64_t size) { return size % in_group == 0; });
}

Recipe make_group_norm(const Call& call) {
  const Arguments a = call.arguments();
  const at::Tensor& input = tensor_at(a, 0);
  return can_group(input, a[6].toInt()) && input.is_contiguous() ? group_norm : nullptr;
}

// (grad, input, mean, rstd, weight?, n, c, rest, groups, mask) -> of input, weight, bias
Values group_norm_backward(Arguments a) {
  const at::Tensor grad = to_add_up(tensor_at(a, 0));
  const at::Tensor& input = tensor_at(a, 1);
  const std::int64_t groups = a[8].toInt();
  const at::Tensor grouped = in_groups(to_add_up(with_sum_paid(input)), groups);
  const at::Tensor rstd = per_group(tensor_at(a, 3), grouped);
  const at::Tensor values = (grouped - per_group(tensor_at(a, 2), grouped)) * rstd;
  const c10::List<bool> wanted = a[9].toBoolList();
  const at::Tensor weighted = is_given(a[4]) ? grad * per_channel(tensor_at(a, 4), input) : grad;
  at::Tensor of_input;
  if (wanted[0]) {
    const at::Tensor gradient =
        gradient_through(in_groups(weighted, groups), values, rstd, dims_of_group(grouped));
    of_input = in_type(gradient.view(input.sizes()), input.scalar_type());
  }
  Dims all_but_channels(static_cast<std::size_t>(input.dim()), true);
  all_but_channels[1] = false;
  const auto of_parameter = [&](const at::Tensor& gradient) {
    return rounded_to(at::sum(gradient, listed(all_but_channels)), statistics_type(input, a[4]));
  };
  return {of_input, wanted[1] ? of_parameter(grad * values.view(input.sizes())) : at::Tensor(),
          wanted[2] ? of_parameter(grad) : at::Tensor()};
}

Recipe make_group_norm_backward(const Call& call) {
  const Arguments a = call.arguments();
  const at::Tensor& input = tensor_at(a, 1);
  const bool fits = tensor_at(a, 0).sizes() == input.sizes() && input.is_contiguous() &&
                    tensor_at(a, 0).is_contiguous();
  return fits && can_group(input, a[8].toInt()) ? group_norm_backward : nullptr;
}

}  // namespace

const RecipeTable& normalization_recipes() {
  static const RecipeTable table = {
      {"native_layer_norm", make_layer_norm},
      {"native_layer_norm_backward", make_layer_norm_backward},
      {"native_group_norm", make_group_norm},
      {"native_group_norm_backward", make_group_norm_backward},
  };
  return table;
}

}  // namespace tegula::inner::families
