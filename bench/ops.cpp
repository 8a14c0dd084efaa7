// Operators along cut dims: what a convolution, a scan, a sort, a lookup cost when the dim that
// they work along, or the batch, is cut over two ranks of one thread each. A case counts when
// nothing is owed any more: results are whole sums, gradients lie as their leaves do. `plain` is
// the same work on the whole in one process with two threads. Every job first compares ours with
// the plain op on the whole; figures are medians over jobs.
//
// bench/peers/ops.py does the same work: change both.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>

#include "bench/groups.h"
#include "bench/processes.h"
#include "tegula/tensor/dtensor.h"

namespace tegula::bench {
namespace {

constexpr int kJobs = 3;
constexpr int kRanks = 2;
constexpr Repeats kRepeats{1, 15};
constexpr double kTolerance = 1e-4;  // of the greatest element
constexpr std::uint64_t kSeedOfGradient = 100;

using Tensors = std::vector<at::Tensor>;

enum class Role { Trained, Index };

struct Operand {
  Shape shape;
  Placement placement;
  Role role = Role::Trained;
  std::int64_t below = 0;  // of indices
};

struct Case {
  const char* name;
  std::vector<Operand> operands;
  Tensors (*op)(const Tensors&);  // the first result has the gradient
};

Tensors conv2d(const Tensors& in) { return {at::conv2d(in[0], in[1], in[2], 1, 1)}; }

Tensors batch_norm(const Tensors& in) {
  return {at::batch_norm(in[0], in[1], in[2], {}, {}, true, 0.1, 1e-5, false)};
}

Tensors cumsum(const Tensors& in) { return {at::cumsum(in[0], 0)}; }

Tensors sort(const Tensors& in) {
  auto [values, indices] = at::sort(in[0], 1);
  return {values, indices};
}

Tensors topk(const Tensors& in) {
  auto [values, indices] = at::topk(in[0], 64, 1);
  return {values, indices};
}

Tensors index_select(const Tensors& in) { return {at::index_select(in[0], 0, in[1])}; }

Tensors cross_entropy(const Tensors& in) { return {at::cross_entropy_loss(in[0], in[1])}; }

std::vector<Operand> image_and_kernel(const Shape& image, const Placement& placement) {
  return {{image, placement}, {{32, 32, 3, 3}, Replicate()}, {{32}, Replicate()}};
}

std::vector<Case> cases() {
  const Operand channels{{64}, Replicate()};
  return {
      {"conv2d batch-cut", image_and_kernel({8, 32, 64, 64}, Shard(0)), conv2d},
      {"conv2d height-cut", image_and_kernel({2, 32, 128, 128}, Shard(2)), conv2d},
      {"batch_norm batch-cut", {{{32, 64, 32, 32}, Shard(0)}, channels, channels}, batch_norm},
      {"cumsum along the cut", {{{4096, 512}, Shard(0)}}, cumsum},
      {"sort along the cut", {{{256, 2048}, Shard(1)}}, sort},
      {"topk along the cut", {{{32, 65536}, Shard(1)}}, topk},
      {"index_select by owners",
       {{{32768, 256}, Shard(0)}, {{4096}, Replicate(), Role::Index, 32768}},
       index_select},
      {"cross_entropy 32k classes cut",
       {{{256, 32768}, Shard(1)}, {{256}, Replicate(), Role::Index, 32768}},
       cross_entropy},
  };
}

std::string name_of(const Case& one, const char* part) {
  return std::string(one.name) + part + " " + std::to_string(kRanks) + " ranks";
}

// Numbers from -1 to 1, no two of them equal, in an order that the seed says: the same in every
// process and language.
at::Tensor shuffled_numbers(const Shape& shape, std::uint64_t seed) {
  const std::int64_t count = c10::multiply_integers(shape);
  return at::randperm(count, at::detail::createCPUGenerator(seed))
      .to(at::kFloat)
      .div_(count)
      .mul_(2)
      .sub_(1)
      .view(shape);
}

at::Tensor content_of(const Operand& operand, std::uint64_t seed) {
  if (operand.role == Role::Index)
    return at::randint(operand.below, operand.shape, at::detail::createCPUGenerator(seed),
                       at::kLong);
  return shuffled_numbers(operand.shape, seed).requires_grad_();
}

Tensors plain_operands(const Case& one) {
  Tensors operands;
  for (std::size_t k = 0; k < one.operands.size(); ++k)
    operands.push_back(
        content_of(one.operands[k], k).requires_grad_(one.operands[k].role == Role::Trained));
  return operands;
}

Tensors distributed_operands(const Case& one, const DeviceMesh& mesh) {
  Tensors operands = plain_operands(one);
  for (std::size_t k = 0; k < operands.size(); ++k)
    operands[k] =
        distribute_tensor(operands[k], mesh, {one.operands[k].placement}, kSameOnAllRanks);
  return operands;
}

// A result that is owed a reduction gets it.
Tensors settled(Tensors results) {
  for (at::Tensor& result : results) {
    if (is_dtensor(result) && owed_reduction(placements_of(result)[0]))
      result = redistribute(result, {Replicate()});
  }
  return results;
}

Tensors forward(const Case& one, const Tensors& operands) { return settled(one.op(operands)); }

// What comes back to the first result, which is placed as that is.
at::Tensor gradient_for(const at::Tensor& result) {
  const at::Tensor whole = shuffled_numbers(result.sizes().vec(), kSeedOfGradient);
  return is_dtensor(result)
             ? distribute_tensor(whole, mesh_of(result), placements_of(result), kSameOnAllRanks)
             : whole;
}

void forget_gradients(const Tensors& operands) {
  for (const at::Tensor& operand : operands) operand.mutable_grad().reset();
}

struct Times {
  double forward, both;
};

Times times_of(const Case& one, const Tensors& operands, const Group& group) {
  const at::Tensor gradient = gradient_for(forward(one, operands)[0]);
  const double both = time_of(group, kRepeats, [&] {
    forget_gradients(operands);
    forward(one, operands)[0].backward(gradient);
  });
  const at::NoGradGuard guard;
  return {time_of(group, kRepeats, [&] { forward(one, operands); }), both};
}

// Results and gradients of one pass, as whole tensors.
Tensors outcome_of(const Case& one, const Tensors& operands) {
  Tensors found = forward(one, operands);
  found[0].backward(gradient_for(found[0]));
  for (const at::Tensor& operand : operands) {
    if (operand.requires_grad()) found.push_back(operand.grad());
  }
  for (at::Tensor& tensor : found) {
    tensor = tensor.detach();
    if (is_dtensor(tensor)) tensor = full_tensor(tensor);
  }
  return found;
}

bool close(const at::Tensor& ours, const at::Tensor& plain) {
  if (ours.sizes() != plain.sizes() || ours.scalar_type() != plain.scalar_type()) return false;
  if (!plain.is_floating_point()) return at::equal(ours, plain);
  const double difference = (ours - plain).abs().max().item<double>();
  return difference <= kTolerance * plain.abs().max().item<double>();
}

double checksum_of(const Tensors& outcome) {
  double sum = 0;
  for (const at::Tensor& tensor : outcome) sum += tensor.abs().sum(at::kDouble).item<double>();
  return sum;
}

double checked_sum(const Case& one, const DeviceMesh& mesh) {
  const Tensors ours = outcome_of(one, distributed_operands(one, mesh));
  const Tensors plain = outcome_of(one, plain_operands(one));
  for (std::size_t k = 0; k < plain.size(); ++k) check(close(ours[k], plain[k]), one.name);
  return checksum_of(ours);
}

void record(const Case& one, const std::string& who, const Times& times,
            std::vector<Measurement>& found) {
  found.push_back({"ops", name_of(one, ""), who, times.forward / 1000, "ms"});
  found.push_back({"ops", name_of(one, " fwd+bwd"), who, times.both / 1000, "ms"});
}

std::vector<Measurement> measure_ours(const World& world) {
  const DeviceMesh mesh = world.mesh({{"tp", world.size()}});
  std::vector<Measurement> found;
  for (const Case& one : cases()) {
    found.push_back(
        {"ops", name_of(one, " checksum"), "tegula", checked_sum(one, mesh), kChecksum});
    record(one, "tegula", times_of(one, distributed_operands(one, mesh), world.group()), found);
  }
  return found;
}

std::vector<Measurement> measure_plain(const World& world) {
  std::vector<Measurement> found;
  for (const Case& one : cases())
    record(one, "plain", times_of(one, plain_operands(one), world.group()), found);
  return found;
}

}  // namespace

std::vector<Measurement> run_ops() {
  std::vector<std::vector<Measurement>> jobs;
  for (int job = 0; job < kJobs; ++job) {
    jobs.push_back(run_processes({kRanks}, measure_ours));
    const std::vector<Measurement> plain = run_processes({1, kRanks}, measure_plain);
    jobs.back().insert(jobs.back().end(), plain.begin(), plain.end());
  }
  return medians(jobs);
}

}  // namespace tegula::bench
