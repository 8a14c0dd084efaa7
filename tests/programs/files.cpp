// Files beside Python's safetensors, which tests/python/files_test.py calls.
//
//   files copy IN OUT      reads every tensor of IN and writes it to OUT
//   files load_hf FOLDER   weights of 320 MiB, by ranks that may have less memory than that
//   files save FOLDER      a checkpoint of tensors that are placed in many ways; by any number of
//   ranks
//   files adamw FROM TO    two steps of AdamW on a model of two layers, from the checkpoint FROM
//   (-: from the beginning) to the checkpoint TO
#include <ATen/ATen.h>
#include <sys/resource.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>

#include <fstream>
#include <iostream>

#include "tegula/tegula.h"

namespace {

using namespace tegula;

int copy(const std::string& from, const std::string& to) {
  const SafetensorsFile file(from);
  std::map<std::string, at::Tensor> tensors;
  for (const std::string& name : file.names()) {
    try {
      tensors[name] = file.tensor(name);
    } catch (const UsageError& error) {
      std::cout << name << ": " << error.sentence() << '\n';
    }
  }
  save_safetensors(to, tensors, file.metadata());
  return 0;
}

int save_many(const std::string& folder) {
  const World world = World::from_env();
  const DeviceMesh mesh = world.mesh({{"a", world.size()}});
  State state(world);
  const auto numbers = [](at::IntArrayRef shape, at::ScalarType type) {
    return at::arange(c10::multiply_integers(shape)).reshape(shape).to(type);
  };
  for (const Placement& placement :
       {Placement(Replicate()), Placement(Shard(0)), Placement(Shard(1))}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kLong, at::kByte, at::kBool}) {
      state.add(to_string(placement) + "." + at::toString(type),
                distribute_tensor(numbers({5, 7}, type), mesh, {placement}, kSameOnAllRanks));
    }
  }
  state.add("none", distribute_tensor(at::empty({0, 3}), mesh, {Shard(0)}, kSameOnAllRanks));
  state.add("one", distribute_tensor(at::full({}, 3.5), mesh, {Replicate()}, kSameOnAllRanks));
  save(folder, state, {.step = 1, .most_file_bytes = 500});
  return 0;
}

int step_by_adamw(const std::string& from, const std::string& to) {
  const World world = World::from_env();
  const DeviceMesh mesh = world.mesh({{"dp", world.size()}});
  torch::nn::Sequential model(torch::nn::Linear(4, 6), torch::nn::Linear(6, 2));
  model->to(at::kDouble);
  {
    const at::NoGradGuard no_grad;
    for (at::Tensor& one : model->parameters()) {
      one.copy_(at::arange(one.numel(), at::kDouble).reshape(one.sizes()) / 10);
    }
  }
  distribute_module(*model, mesh,
                    [](const std::string&, const at::Tensor&) { return Placements{Shard(0)}; });
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(0.1));
  std::int64_t steps = 0;
  State state(world);
  state.add("model", *model).add("optimizer", optimizer, *model).add("steps", steps);
  if (from != "-") load(from, state);
  for (int k = 0; k < 2; ++k, ++steps) {
    for (at::Tensor& one : model->parameters()) one.mutable_grad() = one.detach() / 2 + 1;
    optimizer.step();
  }
  save(to, state, {.step = steps});
  return 0;
}

constexpr int kWeights = 20;
constexpr std::int64_t kMiB = std::int64_t{1} << 20;

// 16 MiB each, on the meta device.
struct Weights : torch::nn::Module {
  Weights() {
    for (int k = 0; k < kWeights; ++k) {
      register_parameter("x" + std::to_string(k),
                         at::empty({1024, 4096}, at::TensorOptions(at::kFloat).device(at::kMeta)));
    }
  }
};

// Memory that this process may have from now on, beside what it has.
void limit_memory(std::int64_t more) {
  std::ifstream status("/proc/self/status");
  std::string word;
  std::int64_t kilobytes = 0;
  while (status >> word && word != "VmData:") {
  }
  status >> kilobytes;
  const auto bytes = static_cast<rlim_t>(kilobytes * 1024 + more);
  const rlimit limit{bytes, bytes};
  if (kilobytes == 0 || setrlimit(RLIMIT_DATA, &limit) != 0) throw std::runtime_error("no limit");
}

bool can_hold_all() {
  try {
    at::empty({kWeights * 16 * kMiB}, at::kByte);
    return true;
  } catch (const c10::Error&) {
    return false;
  }
}

int load_under_a_limit(const std::string& folder) {
  const World world = World::from_env();
  const DeviceMesh mesh = world.mesh({{"tp", world.size()}});
  world.group().barrier();
  Weights weights;
  limit_memory(kWeights * 16 * kMiB / world.size() + 144 * kMiB);  // tiles; rows on their way
  distribute_module(weights, mesh, [](const std::string& name, const at::Tensor&) {
    return Placements{Shard(name.back() % 2)};
  });
  load_hf(weights, folder, mesh);
  const at::NoGradGuard no_grad;
  double sum = 0;
  for (const at::Tensor& weight : weights.parameters()) sum += weight.sum().item<double>();
  if (world.rank() == 0) {
    std::cout << "sum " << sum << (can_hold_all() ? ", without a limit\n" : ", under a limit\n");
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() == 3 && words[0] == "copy") return copy(words[1], words[2]);
  if (words.size() == 2 && words[0] == "save") return save_many(words[1]);
  if (words.size() == 2 && words[0] == "load_hf") return load_under_a_limit(words[1]);
  if (words.size() == 3 && words[0] == "adamw") return step_by_adamw(words[1], words[2]);
  std::cerr << "usage: files copy IN OUT | files load_hf FOLDER | files save FOLDER | files adamw "
               "FROM TO\n";
  return 2;
}
