#include "bench/trainer.h"

#include <ATen/ATen.h>
#include <torch/nn.h>

#include <functional>

#include "bench/optimizers.h"
#include "tegula/parallel/fully_shard.h"
#include "tegula/parallel/replicate.h"
#include "tegula/tensor/module.h"

namespace tegula::bench {
namespace {

bool cuts_batch(Split split) { return split == Split::Batch || split == Split::Full; }

void distribute(Network& network, Split split, const DeviceMesh& mesh) {
  if (split == Split::Batch) return replicate(network, mesh);
  if (split == Split::Full) return fully_shard(network, mesh);
  const auto place = [&](const std::string& name, const at::Tensor&) {
    return Placements{network.place(name, split)};
  };
  distribute_module(network, mesh, place, kSameOnAllRanks);
}

Data distributed(const Data& data, Split split, const DeviceMesh& mesh) {
  const auto placed = [&](const at::Tensor& tensor, const Placement& placement) {
    if (!tensor.defined()) return tensor;
    return distribute_tensor(tensor, mesh, {placement}, kSameOnAllRanks);
  };
  const Placement examples = cuts_batch(split) ? Placement(Shard(0)) : Placement(Replicate());
  return {placed(data.input, examples), placed(data.target, examples),
          placed(data.numbers, Replicate())};
}

}  // namespace

struct Trainer::State {
  std::shared_ptr<Network> network;
  Data data;
  std::function<void()> update;
  at::Tensor loss;

  State(std::shared_ptr<Network> what, Data from)
      : network(std::move(what)),
        data(std::move(from)),
        update(adamw_fused(network->parameters())) {}
};

Trainer::Trainer(Model model) {
  const std::shared_ptr<Network> plain = network(model, Split::Batch);
  state_ = std::make_unique<State>(plain, plain->data());
}

Trainer::Trainer(Model model, Split split, const DeviceMesh& mesh) {
  const std::shared_ptr<Network> ours = network(model, split);
  distribute(*ours, split, mesh);
  state_ = std::make_unique<State>(ours, distributed(ours->data(), split, mesh));
}

Trainer::~Trainer() = default;

void Trainer::step() {
  state_->network->zero_grad();
  const at::Tensor loss = state_->network->loss(state_->data);
  loss.backward();
  state_->update();
  state_->loss = loss.detach();
}

double Trainer::loss() const {
  const at::Tensor& loss = state_->loss;
  return (is_dtensor(loss) ? full_tensor(loss) : loss).item<double>();
}

}  // namespace tegula::bench
