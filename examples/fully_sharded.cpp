// Fully sharded training of a model that no rank could hold: parameters, gradients and optimizer
// state are cut over all ranks, and a layer is whole only while it is used. The model is built in
// pieces, so that the whole never exists. Each rank may take no more memory than its share and some
// room beside it: the kernel refuses the rest.
//
//   tegula run -n 4 fully_sharded
#include <malloc.h>
#include <sys/resource.h>
#include <tegula/base/table.h>
#include <tegula/tegula.h>
#include <torch/torch.h>

#include <fstream>
#include <iostream>

using namespace tegula;
namespace nn = torch::nn;

constexpr std::int64_t kLayers = 32, kWidth = 768, kBatch = 12, kSteps = 5;
constexpr std::int64_t kRoom = 64 << 20;  // for layers in use, activations, threads and caches
constexpr std::int64_t kWhole =
    4 * 4 * kLayers * kWidth * kWidth;  // weights, gradients, two moments
constexpr double kLastLoss = 0.473265;  // on any number of ranks

struct Model : nn::Module {
  Model() {
    for (std::int64_t i = 0; i < kLayers; ++i) layers->push_back(nn::Linear(kWidth, kWidth));
    register_module("layers", layers);
  }
  at::Tensor forward(at::Tensor x) {
    for (const auto& layer : *layers) x = x + 0.2 * at::tanh(layer->as<nn::Linear>()->forward(x));
    return x;
  }
  nn::ModuleList layers;
};

// Of what counts against RLIMIT_DATA.
std::int64_t bytes_of_data() {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;) {
    std::int64_t kilobytes = 0;
    if (word == "VmData:" && file >> kilobytes) return 1024 * kilobytes;
  }
  throw std::runtime_error("/proc/self/status has no line VmData");
}

void allow_at_most(std::int64_t bytes) {
  const auto limit = static_cast<rlim_t>(bytes);
  const rlimit both{limit, limit};
  mallopt(M_MMAP_THRESHOLD, 1 << 20);  // what is larger goes back to the system when it is freed
  if (setrlimit(RLIMIT_DATA, &both) != 0) throw std::runtime_error("cannot limit memory");
}

bool fits(std::int64_t bytes) {
  try {
    return at::empty({bytes}, at::kByte).defined();
  } catch (const std::exception&) {
    return false;
  }
}

double step(Model& model, torch::optim::Optimizer& optimizer, const at::Tensor& x) {
  const at::Tensor loss = at::mse_loss(model.forward(x), x.flip(1));
  optimizer.zero_grad();
  loss.backward();
  optimizer.step();
  return loss.item<double>();
}

bool run() {
  at::set_num_threads(1);  // each has a stack, which counts
  World world = World::from_env();
  const DeviceMesh mesh = world.mesh({{"dp", world.size()}});
  const std::int64_t before = bytes_of_data();
  const std::int64_t most = kWhole / world.size() + kRoom;
  allow_at_most(before + most);
  if (world.rank() == 0) {
    std::cout << "weights, gradients and state: " << in_thousands(kWhole)
              << " bytes; a rank may take " << in_thousands(most)
              << (fits(kWhole) ? "" : ", in which the whole does not fit") << '\n';
  }

  manual_seed(world, 7);
  std::shared_ptr<Model> model;
  {
    const BuildDistributed in_pieces(mesh, [](at::IntArrayRef) { return Placements{Shard(0)}; });
    model = std::make_shared<Model>();
  }
  fully_shard(*model, mesh, zero_3(), {.most_bytes = 8 << 20});
  torch::optim::Adam adam(model->parameters(), 3e-4);

  torch::manual_seed(8);
  const at::Tensor x = shard_batch(at::randn({kBatch, kWidth}), mesh);
  double loss = 0;
  for (int i = 1; i <= kSteps; ++i) {
    loss = step(*model, adam, x);
    if (world.rank() == 0) {
      std::cout << "step " << i << "  loss " << loss << "  "
                << in_thousands(bytes_of_data() - before) << " bytes on rank 0\n";
    }
  }
  // Random numbers belong to elements, not to ranks, so all begin with the same model.
  const bool right = std::abs(loss - kLastLoss) <= 1e-3 * kLastLoss;
  if (world.rank() == 0) std::cout << (right ? "the same\n" : "NOT THE SAME\n");
  return right && (world.size() == 1 || !fits(kWhole));
}

int main() {
  try {
    return run() ? 0 : 1;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
