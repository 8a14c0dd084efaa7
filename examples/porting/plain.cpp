// A small libtorch program on one machine: a recurrent net learns which sequences rise. The same
// program on several ranks is ported.cpp; docs/porting.md goes through the edits.
#include <torch/torch.h>

#include <cstdio>

constexpr std::int64_t kBatch = 24, kTime = 6, kFeatures = 4, kWidth = 32;

struct NetImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& sequences) {
    const at::Tensor scale = torch::linspace(0.5, 1.5, kFeatures, sequences.options());
    const at::Tensor x = sequences * scale;
    at::Tensor state = torch::zeros({x.size(0), kWidth}, x.options());
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

int main() {
  torch::manual_seed(1);
  Net net;
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(0.01));

  const at::Tensor x = torch::randn({kBatch, kTime, kFeatures});
  const at::Tensor y = (x.select(1, kTime - 1).sum(1) > x.select(1, 0).sum(1)).to(at::kFloat);
  for (int step = 1; step <= 30; ++step) {
    const at::Tensor loss = torch::binary_cross_entropy_with_logits(net(x), y);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    const double value = loss.item<double>();
    if (step % 5 == 0) std::printf("step %d  loss %.4f\n", step, value);
  }
  torch::save(net, "rising.pt");
}
