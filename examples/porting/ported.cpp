// plain.cpp on several ranks, data and tensor parallel; docs/porting.md goes through the edits.
//
//   tegula run -n 4 ported
#include <tegula/tegula.h>
#include <torch/torch.h>

#include <cstdio>

using namespace tegula;

constexpr std::int64_t kBatch = 24, kTime = 6, kFeatures = 4, kWidth = 32;

struct NetImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& sequences) {
    const at::Tensor scale = torch::linspace(0.5, 1.5, kFeatures, sequences.options());
    const ImplicitReplication scale_is_the_same_on_all_ranks;
    const at::Tensor x = sequences * scale;
    at::Tensor state = x.new_zeros({x.size(0), kWidth});
    for (std::int64_t t = 0; t < kTime; ++t) {
      state = state + down(torch::relu(up(read(x.select(1, t)) + state)));
    }
    return head(norm(state)).squeeze(1);
  }

  torch::nn::Linear read{register_module("read", torch::nn::Linear(kFeatures, kWidth))};
  torch::nn::Linear up{register_module("up", torch::nn::Linear(kWidth, 2 * kWidth))};
  torch::nn::Linear down{register_module("down", torch::nn::Linear(2 * kWidth, kWidth))};
  torch::nn::LayerNorm norm{
      register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})))};
  torch::nn::Linear head{register_module("head", torch::nn::Linear(kWidth, 1))};
};
TORCH_MODULE(Net);

// The file that the plain program writes.
void save(const Net& net, const World& world) {
  const at::NoGradGuard no_grad;
  Net whole;
  for (const auto& item : net->named_parameters()) {
    whole->named_parameters()[item.key()].copy_(full_tensor(item.value()));
  }
  if (world.rank() == 0) torch::save(whole, "rising.pt");
}

int main() {
  World world = World::from_env();
  const std::int64_t tp = world.size() % 2 == 0 ? 2 : 1;
  const DeviceMesh mesh = world.mesh({{"dp", world.size() / tp}, {"tp", tp}});

  torch::manual_seed(1);  // on every rank the same weights and data
  Net net;
  distribute_module(*net, mesh,
                    {{"up.*", {Replicate(), Shard(0)}},          // each rank: some of the outputs
                     {"down.weight", {Replicate(), Shard(1)}}},  // ... some of the inputs
                    kSameOnAllRanks);
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(0.01));

  const at::Tensor x = torch::randn({kBatch, kTime, kFeatures});
  const at::Tensor y = (x.select(1, kTime - 1).sum(1) > x.select(1, 0).sum(1)).to(at::kFloat);
  for (int step = 1; step <= 30; ++step) {
    const CommLog log(world);
    const at::Tensor loss =
        torch::binary_cross_entropy_with_logits(net(shard_batch(x, mesh)), shard_batch(y, mesh));
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    const double value = loss.item<double>();
    if (world.rank() != 0) continue;
    if (step % 5 == 0) std::printf("step %d  loss %.4f\n", step, value);
    if (step == 30) std::printf("%zu collectives, %ld bytes a step\n", log.size(), log.bytes());
  }
  save(net, world);
}
