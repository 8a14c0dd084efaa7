// Random states on random pairs of meshes: saved here, loaded there, equal to the bit; and saved
// again there, the same files.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "tegula/bridge/torch_types.h"
#include "tegula/files/safetensors_header.h"
#include "tegula/io/checkpoint.h"
#include "tests/io/memory_files.h"
#include "tests/tensor/as_plain.h"
#include "tests/tensor/mesh_forms.h"
#include "tests/tensor/random_place.h"

namespace tegula {
namespace random_states_test {

using test::Owed;
using test::random_place;
using test::RandomPlace;

const std::vector<std::string> kMeshes = {"1", "2", "3", "4", "2x2", "5", "2x3", "3x2", "6"};

std::string bytes_of(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.contiguous();
  return {static_cast<const char*>(dense.const_data_ptr()), dense.nbytes()};
}

// Any bits of any type; true or false for bool.
at::Tensor random_bits(Random& random, const Shape& shape, DType dtype) {
  const at::Tensor tensor = at::empty(shape, scalar_type_of(dtype));
  auto* bytes = static_cast<unsigned char*>(tensor.data_ptr());
  for (std::size_t k = 0; k < tensor.nbytes(); ++k) {
    bytes[k] = static_cast<unsigned char>(random.between(0, dtype == DType::Bool ? 1 : 255));
  }
  return tensor;
}

struct RandomTensor {
  std::string name;
  at::Tensor plain;
  bool may_owe;  // numbers that a sum with zeros leaves as they are
};

std::vector<RandomTensor> random_tensors(Random& random) {
  std::vector<RandomTensor> tensors;
  for (std::int64_t count = random.between(1, 7); count > 0; --count) {
    Shape shape;
    for (std::int64_t dims = random.between(0, 3); dims > 0; --dims) {
      shape.push_back(random.one_in(8) ? 0 : random.between(1, 9));
    }
    const std::string name = "x" + std::to_string(tensors.size());
    const bool may_owe = random.one_in(4);
    DType dtype = DType::F64;
    do {
      const auto number = static_cast<std::size_t>(random.between(3, 23));  // 22 and 23: as pairs
      dtype = number < 22 ? inner::file_dtypes()[number].dtype.value()
                          : (number == 22 ? DType::C32 : DType::C128);
    } while (!libtorch_has(dtype));
    at::Tensor plain = may_owe ? numbers(shape, static_cast<std::uint64_t>(random.between(1, 99)))
                               : random_bits(random, shape, dtype);
    if (plain.dim() == 2 && random.one_in(3)) plain = plain.t();
    tensors.push_back({name, plain, may_owe});
  }
  return tensors;
}

// Also cut in blocks, or by turns.
RandomPlace some_place(Random& random, const DeviceMesh& mesh, at::IntArrayRef shape, Owed owed) {
  RandomPlace place = random_place(random, mesh, shape, owed);
  if (shape.empty() || !random.one_in(5)) return place;
  place = {Placements(mesh.ndim(), Replicate()), {}};
  const auto dim = random.between(0, static_cast<std::int64_t>(shape.size()) - 1);
  const std::int64_t ranks = mesh.axes().back().size;
  place.placements.back() =
      random.one_in(2) ? Shard(dim, Cut::in_blocks(random.between(2, 3)))
                       : Shard(dim, Cut::ragged(random_sizes(
                                        random, shape[static_cast<std::size_t>(dim)], 3 * ranks)));
  return place;
}

class RandomStates : public testing::TestWithParam<int> {};

TEST_P(RandomStates, AreTheSameOnAnyMesh) {
  const auto seed = static_cast<std::uint64_t>(GetParam());
  Random outer(seed);
  const std::string from = outer.pick(kMeshes), to = outer.pick(kMeshes);
  const auto files = std::make_shared<MemoryFiles>();
  const SaveOptions saving{.step = 1,
                           .most_file_bytes = static_cast<std::uint64_t>(outer.between(100, 4000)),
                           .chunk_bytes = static_cast<std::uint64_t>(outer.between(50, 3000)),
                           .files = files};
  std::map<std::string, std::string> truth;
  std::string specs;
  run_impatient(ranks_of(from), [&](World& world) {
    Random random(seed + 1000);
    const DeviceMesh mesh = world.mesh(axes_of(from));
    State state(world);
    for (const RandomTensor& one : random_tensors(random)) {
      const RandomPlace place =
          some_place(random, mesh, one.plain.sizes(), one.may_owe ? Owed::Allowed : Owed::Never);
      const bool stays_plain = random.one_in(8);
      const at::Tensor tensor = stays_plain
                                    ? one.plain.clone()
                                    : distribute_tensor(one.plain.clone(), mesh, place.placements,
                                                        {std::nullopt, place.order});
      state.add(one.name, tensor);
      const at::Tensor whole = stays_plain ? tensor : full_tensor(tensor);
      if (world.rank() != 0) continue;
      truth[one.name] = bytes_of(whole);
      specs += one.name + " " + (stays_plain ? "plain" : to_string(spec_of(tensor))) + "\n";
    }
    if (seed % 2 == 0) return save("run", state, saving);
    AsyncSaver saver(static_cast<std::uint64_t>(outer.between(0, 2000)));
    saver.save("run", state, saving);
    saver.wait();
  });
  const auto again = std::make_shared<MemoryFiles>();
  run_impatient(ranks_of(to), [&](World& world) {
    Random random(seed + 1000);
    const DeviceMesh mesh = world.mesh(axes_of(to));
    State state(world);
    std::vector<std::pair<std::string, at::Tensor>> loaded;
    Random other(seed + 2000);
    for (const RandomTensor& one : random_tensors(random)) {
      const RandomPlace place = some_place(other, mesh, one.plain.sizes(), Owed::Never);
      at::Tensor tensor = at::zeros_like(one.plain);
      if (!other.one_in(8)) {
        tensor = distribute_tensor(tensor, mesh, place.placements, {std::nullopt, place.order});
      }
      loaded.emplace_back(one.name, tensor);
      state.add(one.name, tensor);
    }
    load("run", state, {.files = files});
    for (const auto& [name, tensor] : loaded) {
      const std::string bytes = bytes_of(is_dtensor(tensor) ? full_tensor(tensor) : tensor);
      EXPECT_TRUE(bytes == truth.at(name))
          << from << " to " << to << ", " << name << "\n"
          << specs << " loaded as " << (is_dtensor(tensor) ? to_string(spec_of(tensor)) : "plain");
    }
    SaveOptions saving_again = saving;
    saving_again.files = again;
    save("run", state, saving_again);
  });
  EXPECT_TRUE(again->contents() == files->contents());
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomStates, testing::Range(0, 60));

}  // namespace random_states_test
}  // namespace tegula
