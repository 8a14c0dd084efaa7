// Files beside Python's safetensors, which tests/python/files_test.py calls.
//
//   files copy IN OUT      reads every tensor of IN and writes it to OUT
//   files save FOLDER      a checkpoint of tensors that are placed in many ways; by any number of
//   ranks
#include <ATen/ATen.h>

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

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() == 3 && words[0] == "copy") return copy(words[1], words[2]);
  if (words.size() == 2 && words[0] == "save") return save_many(words[1]);
  std::cerr << "usage: files copy IN OUT | files save FOLDER\n";
  return 2;
}
