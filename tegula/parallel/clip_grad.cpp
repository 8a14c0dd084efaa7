// The idea: a rank counts the elements of a tile if it is the first of those that hold it; then the
// ranks' sums of powers add up to that of all elements.
#include "tegula/parallel/clip_grad.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tegula/base/error.h"
#include "tegula/comm/comm_log.h"
#include "tegula/parallel/parameter_gradients.h"
#include "tegula/tensor/dtensor.h"

namespace tegula {

using namespace inner;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Whether this rank is the first of those that hold the same tile.
bool counts_here(const at::Tensor& gradient) {
  const World world = world_of(gradient);
  const DeviceMesh mesh = mesh_of(gradient);
  const std::optional<Coordinate> at = mesh.coordinate_of(world.rank());
  if (!at || mesh.fiber_of(world.rank()) != 0) return false;
  const Placements placements = placements_of(gradient);
  for (std::size_t axis = 0; axis < placements.size(); ++axis) {
    if (is_replicate(placements[axis]) && (*at)[axis] != 0) return false;
  }
  return true;
}

ReduceOp reduction_of(double order) {
  if (order == kInfinity) return ReduceOp::Max;
  return order == -kInfinity ? ReduceOp::Min : ReduceOp::Sum;
}

// Of no elements.
double nothing(double order) { return order == -kInfinity ? kInfinity : 0; }

// What the elements of a tensor contribute: the sum of their powers, or the extreme one.
double part_of(const at::Tensor& tile, double order) {
  if (tile.numel() == 0) return nothing(order);
  const double norm = at::linalg_vector_norm(
                          tile, order, std::nullopt, /*keepdim=*/false,
                          at::isComplexType(tile.scalar_type()) ? at::kComplexDouble : at::kDouble)
                          .item<double>();
  return std::isinf(order) || order == 0 || order == 1 ? norm : std::pow(norm, order);
}

double joined(double one, double other, double order) {
  switch (reduction_of(order)) {
    case ReduceOp::Max:
      return std::isnan(one) || one > other ? one : other;
    case ReduceOp::Min:
      return std::isnan(one) || one < other ? one : other;
    default:
      return one + other;
  }
}

double root_of(double total, double order) {
  return std::isinf(order) || order == 0 || order == 1 ? total : std::pow(total, 1 / order);
}

double norm_of(const std::vector<at::Tensor>& gradients, const NormOptions& options) {
  const std::optional<Group> group = options.among ? options.among : group_of_meshes(gradients);
  const bool counts_plain = !group || group->index() == 0;
  double part = nothing(options.order);
  for (const at::Tensor& gradient : gradients) {
    const bool is_ours = is_dtensor(gradient);
    if (is_ours ? counts_here(gradient) : counts_plain) {
      part = joined(part, part_of(is_ours ? to_local(gradient) : gradient, options.order),
                    options.order);
    }
  }
  if (group) {
    const CommLabel label("norm of gradients");
    part = group->all_reduce(at::full({}, part, at::kDouble), reduction_of(options.order))
               .item<double>();
  }
  return root_of(part, options.order);
}

void check_limit(double most) {
  if (most >= 0) return;
  throw UsageError("gradients cannot be clipped to a negative size")
      .fact("most", std::to_string(most))
      .hint("give 0 or more");
}

}  // namespace

double grad_norm(const std::vector<at::Tensor>& parameters, const NormOptions& options) {
  const at::NoGradGuard no_grad;
  return norm_of(gradients_of(parameters), options);
}

double clip_grad_norm_(const std::vector<at::Tensor>& parameters, double most,
                       const NormOptions& options) {
  check_limit(most);
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> gradients = gradients_of(parameters);
  const double norm = norm_of(gradients, options);
  constexpr double kNotZero = 1e-6;  // as libtorch has it
  const double scale = most / (norm + kNotZero);
  // NaN scales, so that a norm that is none is seen in every gradient, as in plain libtorch
  if (!(scale >= 1)) {
    for (const at::Tensor& gradient : gradients) gradient.mul_(scale);
  }
  return norm;
}

void clip_grad_value_(const std::vector<at::Tensor>& parameters, double most) {
  check_limit(most);
  const at::NoGradGuard no_grad;
  for (const at::Tensor& gradient : gradients_of(parameters)) gradient.clamp_(-most, most);
}

}  // namespace tegula
