#include "tests/tensor/random_programs.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/tensor/mesh_forms.h"
#include "tests/tensor/rank_processes.h"

namespace tegula::test {
namespace random_programs_test {

// TEGULA_SEED=17 runs that program alone, as a failure names it; TEGULA_LONG=1 runs many.
struct Seeds {
  std::uint64_t first;
  std::uint64_t count;
};

Seeds seeds_from(std::uint64_t first) {
  if (const char* seed = std::getenv("TEGULA_SEED")) return {std::strtoull(seed, nullptr, 10), 1};
  return {first, std::getenv("TEGULA_LONG") ? 400ULL : 17ULL};
}

// A mesh by its form. "2x2:b" is a slice of one; "2+2" is one of two meshes of two ranks each, that
// which this rank is in.
DeviceMesh mesh_of_form(const World& world, const std::string& form) {
  if (form == "2+2") {
    const bool is_odd = world.rank() % 2 == 1;
    return world.mesh({{"a", 2}},
                      is_odd ? std::vector<std::int64_t>{3, 1} : std::vector<std::int64_t>{0, 2});
  }
  const std::size_t colon = form.find(':');
  const DeviceMesh whole = world.mesh(axes_of(form.substr(0, colon)));
  return colon == std::string::npos ? whole : whole[form.substr(colon + 1)];
}

int ranks_of_form(const std::string& form) {
  return form == "2+2" ? 4 : ranks_of(form.substr(0, form.find(':')));
}

// Ranks that do not meet run other programs at the same time.
std::uint64_t own_seed(const World& world, const DeviceMesh& mesh, std::uint64_t seed) {
  const bool meets_rank_0 = mesh.fiber_of(world.rank()) == mesh.fiber_of(0);
  return meets_rank_0 ? seed : seed + 1'000'000;
}

void run_programs(World& world, const std::string& form, const Seeds& seeds) {
  const DeviceMesh mesh = mesh_of_form(world, form);
  for (std::uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    run_random_program(mesh, own_seed(world, mesh, seed));
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
    EXPECT_NO_THROW(run_ranks(ranks_of_form(GetParam()), body, patient_world()));
  }
}

TEST_P(RandomPrograms, GiveWhatPlainTensorsGiveInProcesses) {
  const Seeds seeds = seeds_from(100'001);
  const std::string argument =
      GetParam() + " " + std::to_string(seeds.first) + " " + std::to_string(seeds.count);
  EXPECT_NO_THROW(kPrograms.run(ranks_of_form(GetParam()), argument,
                                200 + 2 * static_cast<double>(seeds.count)));
}

std::string name_of_form(const std::string& form) {
  std::string name = "Of";
  for (char c : form) name += c == ':' ? "Slice" : c == '+' ? "And" : std::string(1, c);
  return name;
}

INSTANTIATE_TEST_SUITE_P(OnMesh, RandomPrograms,
                         testing::Values("2", "3", "2x2", "2x2:a", "2x2:b", "2+2"),
                         [](const auto& mesh) { return name_of_form(mesh.param); });

}  // namespace random_programs_test
}  // namespace tegula::test
