// The idea: a program that trains as a user's would, by public functions alone, beside one that
// knows nothing of ranks. Mutants change single lines of the first.
#include "tests/composition/train.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <memory>

#include "tegula/base/error.h"
#include "tegula/parallel/clip_grad.h"
#include "tegula/parallel/fully_shard.h"
#include "tegula/parallel/parallelize_module.h"
#include "tegula/parallel/replicate.h"
#include "tests/composition/network.h"

namespace tegula::composition {
namespace {

constexpr int kSteps = 5;
constexpr double kMostNorm = 0.05;  // less than any gradient's

// bf16 where libtorch finds it good.
class Autocast {
 public:
  explicit Autocast(Numbers numbers) {
    set(numbers == Numbers::BF16);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::set_autocast_cache_enabled(false);  // it would outlive a step
  }
  ~Autocast() { set(false); }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  static void set(bool enabled) { at::autocast::set_autocast_enabled(at::kCPU, enabled); }
};

at::Tensor logits_of(Network& network, const Batch& batch, const Settings& settings) {
  const Autocast autocast(settings.numbers);
  const at::Tensor logits = network.logits(batch.inputs);
  return logits.scalar_type() == at::kBFloat16 ? logits.to(at::kFloat) : logits;
}

at::Tensor mean_loss(Network& network, const Batch& batch, const Settings& settings) {
  return at::cross_entropy_loss(logits_of(network, batch, settings), batch.targets.reshape({-1}));
}

std::unique_ptr<torch::optim::Optimizer> optimizer_for(std::vector<at::Tensor> parameters,
                                                       const Settings& settings) {
  if (settings.net == Net::Transformer) {
    return std::make_unique<torch::optim::SGD>(std::move(parameters),
                                               torch::optim::SGDOptions(0.1).momentum(0.9));
  }
  // an epsilon with which a gradient's size matters
  return std::make_unique<torch::optim::AdamW>(std::move(parameters),
                                               torch::optim::AdamWOptions(0.01).eps(0.1));
}

// On many ranks ----------------------------------------------------------------------------------

DeviceMesh mesh_for(const Settings& settings, const World& world) {
  if (world.size() != settings.size()) {
    throw UsageError("these settings are for another number of ranks")
        .fact("settings", to_string(settings))
        .fact("ranks", std::to_string(world.size()))
        .hint("start " + std::to_string(settings.size()));
  }
  std::vector<MeshAxis> axes;
  if (settings.dp > 0) axes.push_back({"dp", settings.dp});
  if (settings.fsdp > 0) axes.push_back({"fsdp", settings.fsdp});
  if (settings.model_ranks() > 1) axes.push_back({"tp", settings.model_ranks()});
  return world.mesh(axes);
}

// Tiles of a tensor of this shape, whatever they hold.
FromLocalOptions unchecked(const at::Tensor& like) {
  FromLocalOptions options;
  options.shape = spec_of(like).meta().shape();
  options.check = false;
  return options;
}

// What is owed along tp taken for what it adds up to.
at::Tensor as_if_reduced(const at::Tensor& x) {
  if (!is_dtensor(x)) return x;
  const DeviceMesh mesh = mesh_of(x);
  Placements placements = placements_of(x);
  placements[mesh.axis_index("tp")] = Replicate();
  return from_local(to_local(x), mesh, placements, unchecked(x));
}

Moves moves_for(const Settings& settings, Mutant mutant) {
  Moves moves;
  const Placement cut = Shard(sequence_dim(settings));
  const auto to = [](const Placement& placement) {
    return [placement](const at::Tensor& x) { return placed(x, "tp", placement); };
  };
  if (settings.tp > 0) moves.enter = moves.leave = to(Replicate());
  if (settings.sp > 0) moves.begin = moves.leave = to(cut);
  if (settings.sp > 0 && settings.loss > 0) moves.head = to(Replicate());
  if (mutant == Mutant::SkipTpReduction) {
    moves.leave = [right = moves.leave](const at::Tensor& x) { return right(as_if_reduced(x)); };
  }
  return moves;
}

void distribute(Network& network, const DeviceMesh& mesh, const Settings& settings) {
  if (settings.model_ranks() > 1) {
    parallelize_module(network, mesh["tp"], plan_of(settings), kSameOnAllRanks);
  }
  if (settings.dp > 0 && settings.zero == 3) {
    fully_shard(network, mesh[{"dp", "fsdp"}], hybrid());
    return;
  }
  if (settings.dp > 0) replicate(network, mesh["dp"]);
  const std::array levels = {zero_1, zero_2, zero_3};
  if (settings.fsdp > 0) {
    const auto level = levels.at(static_cast<std::size_t>(settings.zero - 1));
    fully_shard(network, mesh["fsdp"], level());
  }
}

at::Tensor cut_by_samples(const at::Tensor& tensor, const DeviceMesh& mesh) {
  Placements placements;
  for (const MeshAxis& axis : mesh.axes()) {
    placements.push_back(axis.name == "tp" ? Placement(Replicate()) : Placement(Shard(0)));
  }
  return distribute_tensor(tensor, mesh, placements, kSameOnAllRanks);
}

at::Tensor mean_of_means(Network& network, const Batch& batch, const Settings& settings) {
  const at::Tensor targets = batch.targets.reshape({-1});
  const at::Tensor each =
      at::cross_entropy_loss(logits_of(network, batch, settings), targets, {}, at::Reduction::None);
  const at::Tensor mine = to_local(targets);
  const double weight = 1.0 / static_cast<double>(settings.data_ranks()) /
                        static_cast<double>(std::max<std::int64_t>(mine.numel(), 1));
  const at::Tensor weights = at::full(mine.sizes(), weight, each.options().device(at::kCPU));
  return (each * from_local(weights, mesh_of(targets), placements_of(targets))).sum();
}

// Gradients wait for the last micro-batch.
std::unique_ptr<GradientPolicyGuard> held(const DeviceMesh& mesh, const Settings& settings,
                                          int part, Mutant mutant) {
  if (settings.data_ranks() == 1) return nullptr;
  const bool is_last = part + 1 == settings.accumulate;
  if (is_last && mutant != Mutant::SkipDpReduction) return nullptr;
  std::vector<std::string> axes;
  if (settings.dp > 0) axes.emplace_back("dp");
  if (settings.fsdp > 0) axes.emplace_back("fsdp");
  return std::make_unique<GradientPolicyGuard>(no_sync(mesh.slice(axes)));
}

void spoil_gradients(Network& network, const std::vector<at::Tensor>& parameters, Mutant mutant) {
  if (mutant == Mutant::TieCountsTwice) {
    std::map<c10::TensorImpl*, int> uses;
    for (const at::Tensor& one : network.parameters()) {
      if (++uses[one.unsafeGetTensorImpl()] == 2) at::Tensor(one.grad()).mul_(2);
    }
  } else if (mutant == Mutant::SkipDpReduction) {
    for (const at::Tensor& one : parameters) {
      const at::Tensor grad = one.grad();
      at::Tensor(one).mutable_grad() =
          from_local(to_local(grad), mesh_of(one), placements_of(one), unchecked(one));
    }
  }
}

void clip(const std::vector<at::Tensor>& parameters, Mutant mutant) {
  if (mutant != Mutant::ClipPerMesh) {
    clip_grad_norm_(parameters, kMostNorm);
    return;
  }
  std::map<std::string, std::vector<at::Tensor>> alike;
  for (const at::Tensor& one : parameters) alike[to_string(placements_of(one))].push_back(one);
  for (const auto& [placements, some] : alike) clip_grad_norm_(some, kMostNorm);
}

std::vector<Batch> batches_of(const Settings& settings, int step) {
  std::vector<Batch> batches;
  for (int part = 0; part < settings.accumulate; ++part) {
    batches.push_back(batch_of(settings, step, part));
  }
  return batches;
}

double samples_in(const std::vector<Batch>& batches) {
  std::int64_t samples = 0;
  for (const Batch& batch : batches) samples += batch.targets.size(0);
  return static_cast<double>(samples);
}

// Gradients of one step; gives the loss.
double accumulate(Network& network, const DeviceMesh& mesh, const Settings& settings, int step,
                  Mutant mutant) {
  const std::vector<Batch> batches = batches_of(settings, step);
  double total = 0;
  for (int part = mutant == Mutant::DropMicroBatch ? 1 : 0; part < settings.accumulate; ++part) {
    const auto guard = held(mesh, settings, part, mutant);
    const Batch& whole = batches[static_cast<std::size_t>(part)];
    const Batch batch{cut_by_samples(whole.inputs, mesh), cut_by_samples(whole.targets, mesh)};
    const at::Tensor mean = mutant == Mutant::UnweightedMean
                                ? mean_of_means(network, batch, settings)
                                : mean_loss(network, batch, settings);
    const at::Tensor loss =
        mean * (static_cast<double>(whole.targets.size(0)) / samples_in(batches));
    loss.backward();
    total += loss.item<double>();
  }
  return total;
}

std::vector<at::Tensor> in_double(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> whole;
  for (const at::Tensor& one : tensors) {
    const at::Tensor value = one.detach();
    whole.push_back((is_dtensor(value) ? full_tensor(value) : value).to(at::kDouble).clone());
  }
  return whole;
}

}  // namespace

Trained train(const Settings& settings, const World& world, Mutant mutant) {
  const DeviceMesh mesh = mesh_for(settings, world);
  const std::shared_ptr<Network> network = make_network(settings, moves_for(settings, mutant));
  distribute(*network, mesh, settings);
  const std::vector<at::Tensor> parameters = distinct_parameters(*network);
  const auto optimizer = optimizer_for(parameters, settings);
  Trained trained;
  for (int step = 0; step < kSteps; ++step) {
    optimizer->zero_grad();
    trained.losses.push_back(accumulate(*network, mesh, settings, step, mutant));
    spoil_gradients(*network, parameters, mutant);
    if (settings.clip) clip(parameters, mutant);
    optimizer->step();
  }
  trained.parameters = in_double(parameters);
  return trained;
}

Trained train_alone(const Settings& settings) {
  const std::shared_ptr<Network> network = make_network(settings);
  const std::vector<at::Tensor> parameters = distinct_parameters(*network);
  const auto optimizer = optimizer_for(parameters, settings);
  Trained trained;
  for (int step = 0; step < kSteps; ++step) {
    optimizer->zero_grad();
    std::vector<at::Tensor> inputs, targets;
    for (const Batch& batch : batches_of(settings, step)) {
      inputs.push_back(batch.inputs);
      targets.push_back(batch.targets);
    }
    const at::Tensor loss = mean_loss(*network, {at::cat(inputs), at::cat(targets)}, settings);
    loss.backward();
    trained.losses.push_back(loss.item<double>());
    if (settings.clip) torch::nn::utils::clip_grad_norm_(parameters, kMostNorm);
    optimizer->step();
  }
  trained.parameters = in_double(parameters);
  return trained;
}

double difference(const Trained& got, const Trained& want, const Settings& settings) {
  const std::vector<at::Tensor> start = in_double(distinct_parameters(*make_network(settings)));
  double way = 0, apart = 0, losses = 0;
  for (std::size_t k = 0; k < start.size(); ++k) {
    way = std::max(way, (want.parameters[k] - start[k]).abs().max().item<double>());
    const double here = (got.parameters[k] - want.parameters[k]).abs().max().item<double>();
    if (!std::isfinite(here)) return std::numeric_limits<double>::infinity();
    apart = std::max(apart, here);
  }
  for (std::size_t k = 0; k < want.losses.size(); ++k) {
    const double here = std::abs(got.losses[k] - want.losses[k]) / std::abs(want.losses[k]);
    if (!std::isfinite(here)) return std::numeric_limits<double>::infinity();
    losses = std::max(losses, here);
  }
  return std::max(apart / way, losses);
}

double tolerance(const Settings& settings) {
  switch (settings.numbers) {
    case Numbers::F64:
      return 1e-9;
    case Numbers::F32:
      return 1e-4;
    case Numbers::BF16:
      return 0.1;
  }
  return 0;
}

}  // namespace tegula::composition
