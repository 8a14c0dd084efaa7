// Adapters on a frozen model (LoRA): beside every frozen layer the product of two thin matrices
// learns. A plan splits both over tp. Only adapters have gradients, and that is all that travels
// over dp.
//
//   tegula run -n 4 lora
#include <tegula/base/table.h>
#include <tegula/tegula.h>
#include <torch/torch.h>

#include <iostream>

using namespace tegula;
namespace nn = torch::nn;

constexpr std::int64_t kWidth = 64, kHidden = 250, kThin = 4, kBatch = 30;

nn::Linear without_bias(std::int64_t in, std::int64_t out) {
  return nn::Linear(nn::LinearOptions(in, out).bias(false));
}

struct Adapted : nn::Module {
  Adapted(std::int64_t in, std::int64_t out)
      : frozen(register_module("frozen", nn::Linear(in, out))),
        narrow(register_module("narrow", without_bias(in, kThin))),
        widen(register_module("widen", without_bias(kThin, out))) {
    for (at::Tensor& parameter : frozen->parameters()) parameter.set_requires_grad(false);
    nn::init::zeros_(widen->weight);  // it begins as the frozen layer
  }
  at::Tensor forward(const at::Tensor& x) { return frozen(x) + widen(narrow(x)); }

  nn::Linear frozen, narrow, widen;
};

struct Model : nn::Module {
  at::Tensor forward(const at::Tensor& x) { return down->forward(at::gelu(up->forward(x))); }

  std::shared_ptr<Adapted> up = register_module("up", std::make_shared<Adapted>(kWidth, kHidden));
  std::shared_ptr<Adapted> down =
      register_module("down", std::make_shared<Adapted>(kHidden, kWidth));
};

// The hidden features are cut. What is not named is replicated.
const ParallelPlan kPlan = {{"up.frozen", Colwise()},
                            {"up.widen", Colwise()},
                            {"down.frozen", Rowwise()},
                            {"down.narrow", Rowwise()}};

std::shared_ptr<Model> build() {
  torch::manual_seed(7);  // the same weights wherever it is built
  return std::make_shared<Model>();
}

std::vector<at::Tensor> trained(const Model& model) {
  std::vector<at::Tensor> list;
  for (const at::Tensor& parameter : model.parameters()) {
    if (parameter.requires_grad()) list.push_back(parameter);
  }
  return list;
}

double step(Model& model, torch::optim::Optimizer& optimizer, const at::Tensor& x,
            const at::Tensor& y) {
  const at::Tensor loss = at::mse_loss(model.forward(x), y);
  optimizer.zero_grad();
  loss.backward();
  optimizer.step();
  return loss.item<double>();
}

// Prints the parameters and what this rank holds of them; true if those that learn, and no others,
// have gradients.
bool only_adapters_learn(const Model& model, const World& world) {
  Table table({"parameter", "placed", "bytes here", "gradient"});
  bool right = true;
  for (const auto& item : model.named_parameters()) {
    const bool has_gradient = item.value().grad().defined();
    right = right && has_gradient == (item.key().find("frozen") == std::string::npos);
    table.add({item.key(), to_string(spec_of(item.value())),
               in_thousands(static_cast<std::int64_t>(to_local(item.value()).nbytes())),
               has_gradient ? "yes" : "frozen"});
  }
  if (world.rank() == 0) table.print(std::cout);
  return right;
}

// A step gives the tiles of the adapters' gradients to the other ranks along dp, and no more.
bool only_adapters_travel(const Model& model, const CommLog& log, const World& world) {
  std::int64_t over_dp = 0, adapters = 0, all = 0;
  for (const CommEntry& entry : log.entries()) {
    if (entry.axis == "dp" && entry.op == "gradient of a leaf") over_dp += entry.bytes;
  }
  for (const at::Tensor& parameter : model.parameters()) {
    const auto bytes = static_cast<std::int64_t>(to_local(parameter).nbytes());
    all += bytes;
    if (parameter.requires_grad()) adapters += bytes;
  }
  if (world.rank() == 0) {
    std::cout << "\na step sends " << in_thousands(over_dp) << " bytes of gradients over dp; of "
              << in_thousands(all) << " bytes of parameters here " << in_thousands(adapters)
              << " learn\n\n"
              << log.summary() << '\n';
  }
  return over_dp == (mesh_of(model.parameters()[0])["dp"].size() > 1 ? adapters : 0);
}

bool run() {
  World world = World::from_env();
  const std::int64_t tp = world.size() % 2 == 0 ? 2 : 1;
  const DeviceMesh mesh = world.mesh({{"dp", world.size() / tp}, {"tp", tp}});
  const auto teacher = build(), plain = build(), model = build();
  for (const auto& part : {teacher->up, teacher->down}) nn::init::normal_(part->widen->weight);
  parallelize_module(*model, mesh["tp"], kPlan);
  replicate(*model, mesh["dp"]);
  torch::optim::AdamW plain_adam(trained(*plain), 0.01), adam(trained(*model), 0.01);

  bool right = true;
  for (int i = 1; i <= 60; ++i) {
    const at::Tensor x = at::randn({kBatch, kWidth}), y = teacher->forward(x).detach();
    const CommLog log(world);
    const double loss = step(*model, adam, shard_batch(x, mesh), shard_batch(y, mesh));
    const double expected = step(*plain, plain_adam, x, y);
    right = right && std::abs(loss - expected) <= 1e-3 * expected;
    if (i == 1) {
      right = only_adapters_learn(*model, world) && right;
      right = only_adapters_travel(*model, log, world) && right;
    }
    if (world.rank() == 0 && i % 15 == 0) {
      std::cout << "step " << i << "  loss " << loss << "  plain " << expected << '\n';
    }
  }
  if (world.rank() == 0) std::cout << (right ? "the same\n" : "NOT THE SAME\n");
  return right;
}

int main() {
  try {
    return run() ? 0 : 1;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
