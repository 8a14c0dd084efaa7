#include "tests/comm/suite.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <tuple>

namespace tegula {
namespace {

using Case = std::tuple<std::string, Way, int>;

class EveryEngine : public testing::TestWithParam<Case> {};

TEST_P(EveryEngine, GivesWhatAPlainComputationGives) {
  const auto& [body, way, ranks] = GetParam();
  EXPECT_NO_THROW(run_in(way, ranks, suite().at(body)));
}

std::vector<std::string> names() {
  std::vector<std::string> result;
  for (const auto& [name, body] : suite()) result.push_back(name);
  return result;
}

std::string name_of_case(const testing::TestParamInfo<Case>& info) {
  std::ostringstream text;
  text << std::get<0>(info.param) << std::get<1>(info.param) << std::get<2>(info.param);
  return text.str();
}

INSTANTIATE_TEST_SUITE_P(Shm, EveryEngine,
                         testing::Combine(testing::ValuesIn(names()),
                                          testing::Values(Way::Threads, Way::Processes),
                                          testing::Values(1, 2, 3, 4, 8)),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Gloo, EveryEngine,
                         testing::Combine(testing::ValuesIn(names()),
                                          testing::Values(Way::GlooThreads, Way::GlooProcesses),
                                          testing::Values(1, 2, 3)),
                         name_of_case);

// mpirun starts this program again, as ranks that run the whole suite.
class Mpi : public testing::TestWithParam<int> {};

TEST_P(Mpi, GivesWhatAPlainComputationGives) {
  if (std::system("mpirun --version >/dev/null 2>&1") != 0) {
    GTEST_SKIP() << "no mpirun: apt-get install openmpi-bin libopenmpi-dev";
  }
  if (!TEGULA_TEST_MPI) GTEST_SKIP() << "built without MPI";
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  const std::string command = "mpirun --allow-run-as-root --oversubscribe -n " +
                              std::to_string(GetParam()) + " " + program + " --suite mpi 2>&1";
  EXPECT_EQ(std::system(command.c_str()), 0);
}

INSTANTIATE_TEST_SUITE_P(Engine, Mpi, testing::Values(1, 2, 3, 4));

// A rank that another program started: the world comes from the environment.
int run_suite(const std::string& backend) {
  try {
    World world = World::from_env({backend, std::nullopt});
    for (const auto& [name, body] : suite()) {
      body(world);
      world.group().barrier();
    }
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    return 1;
  }
}

}  // namespace
}  // namespace tegula

int main(int argc, char** argv) {
  at::set_num_threads(1);
  if (argc == 3 && std::string(argv[1]) == "--suite") return tegula::run_suite(argv[2]);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
