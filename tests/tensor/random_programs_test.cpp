#include "tests/tensor/random_programs.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/tensor/mesh_forms.h"
#include "tests/tensor/rank_processes.h"

namespace tegula {
namespace {

// TEGULA_SEED=17 runs that program alone, as a failure names it; TEGULA_LONG=1 runs many.
struct Seeds {
  std::uint64_t first;
  std::uint64_t count;
};

Seeds seeds_from(std::uint64_t first) {
  if (const char* seed = std::getenv("TEGULA_SEED")) return {std::strtoull(seed, nullptr, 10), 1};
  return {first, std::getenv("TEGULA_LONG") ? 400ULL : 17ULL};
}

void run_programs(World& world, const std::string& form, const Seeds& seeds) {
  const DeviceMesh mesh = world.mesh(axes_of(form));
  for (std::uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    run_random_program(mesh, seed);
  }
}

// The argument is "2x2 1000 17": the mesh's form, the first seed and how many.
const RankProgram kPrograms("random programs", [](World& world, const std::string& argument) {
  std::istringstream words(argument);
  std::string form;
  Seeds seeds{};
  words >> form >> seeds.first >> seeds.count;
  run_programs(world, form, seeds);
});

class RandomPrograms : public testing::TestWithParam<std::string> {};

TEST_P(RandomPrograms, GiveWhatPlainTensorsGiveOnThreads) {
  const Seeds seeds = seeds_from(1);
  for (std::uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    const auto body = [&](World& world) { run_programs(world, GetParam(), {seed, 1}); };
    EXPECT_NO_THROW(run_ranks(ranks_of(GetParam()), body, patient_world()));
  }
}

TEST_P(RandomPrograms, GiveWhatPlainTensorsGiveInProcesses) {
  const Seeds seeds = seeds_from(100'001);
  const std::string argument =
      GetParam() + " " + std::to_string(seeds.first) + " " + std::to_string(seeds.count);
  EXPECT_NO_THROW(
      kPrograms.run(ranks_of(GetParam()), argument, 30 + static_cast<double>(seeds.count)));
}

INSTANTIATE_TEST_SUITE_P(OnMesh, RandomPrograms, testing::Values("2", "3", "2x2"),
                         [](const auto& mesh) { return "Of" + mesh.param; });

}  // namespace
}  // namespace tegula
