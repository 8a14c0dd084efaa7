#include "tests/comm/suite.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <optional>
#include <tuple>

#include "tegula/base/error.h"

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

// All of 1 to 8 in the long suite.
std::vector<int> rank_counts() {
  if (std::getenv("TEGULA_LONG") != nullptr) return {1, 2, 3, 4, 5, 6, 7, 8};
  return {1, 2, 3, 8};
}

std::string name_of_case(const testing::TestParamInfo<Case>& info) {
  std::ostringstream text;
  text << std::get<0>(info.param) << std::get<1>(info.param) << std::get<2>(info.param);
  return text.str();
}

INSTANTIATE_TEST_SUITE_P(Shm, EveryEngine,
                         testing::Combine(testing::ValuesIn(names()),
                                          testing::Values(Way::Threads, Way::Processes),
                                          testing::ValuesIn(rank_counts())),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Gloo, EveryEngine,
                         testing::Combine(testing::ValuesIn(names()),
                                          testing::Values(Way::GlooProcesses),
                                          testing::ValuesIn(rank_counts())),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(GlooThreads, EveryEngine,
                         testing::Combine(testing::ValuesIn(names()),
                                          testing::Values(Way::GlooThreads),
                                          testing::Values(1, 2, 3)),
                         name_of_case);

// In the long suite, where there is memory for it.
TEST(EngineAndHugeTensors, MoreThan4GiBArrive) {
  constexpr std::int64_t kBytes = (std::int64_t{1} << 32) + 12'345;
  struct sysinfo host{};
  sysinfo(&host);
  const auto memory = static_cast<std::int64_t>(host.totalram * host.mem_unit);
  if (std::getenv("TEGULA_LONG") == nullptr || memory < 4 * kBytes) GTEST_SKIP();
  for (const Way way : {Way::Processes, Way::GlooProcesses}) {
    run_in(way, 2, [](World& world) {
      const at::Tensor tensor = at::zeros({kBytes}, at::kByte);
      const std::vector<std::int64_t> marks = {0, std::int64_t{1} << 31, std::int64_t{1} << 32,
                                               kBytes - 1};
      for (int round = 1; round <= 2; ++round) {
        if (world.rank() == 0) {
          for (const std::int64_t mark : marks) tensor[mark] = round;
        }
        const int peer = 1 - world.rank();
        if (round == 2) {
          world.group().broadcast_(tensor, 0);
        } else if (world.rank() == 0) {
          world.group().send(tensor, peer);
        } else {
          world.group().recv(tensor, peer);
        }
        for (const std::int64_t mark : marks) {
          require(tensor[mark].item<int>() == round, "a byte did not arrive");
        }
        require(at::count_nonzero(tensor).item<std::int64_t>() == 4, "bytes went elsewhere");
      }
    });
  }
}

// mpirun starts this program again, as ranks that run the whole suite.
class Mpi : public testing::TestWithParam<int> {};

std::string why_there_is_no_mpi() {
  if (!TEGULA_TEST_MPI) return "built without MPI";
  if (std::system("mpirun --version >/dev/null 2>&1") == 0) return "";
  return "no mpirun: apt-get install openmpi-bin libopenmpi-dev";
}

struct MpiEnd {
  int status = 0;
  std::string output;
};

MpiEnd run_mpi(int ranks, const std::string& arguments) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  const std::string command = "timeout 100 mpirun --allow-run-as-root --oversubscribe -n " +
                              std::to_string(ranks) + " " + program + " " + arguments + " 2>&1";
  MpiEnd end;
  std::FILE* pipe = popen(command.c_str(), "r");
  char text[4096];
  while (std::fgets(text, sizeof(text), pipe) != nullptr) end.output += text;
  end.status = pclose(pipe);
  return end;
}

TEST_P(Mpi, GivesWhatAPlainComputationGives) {
  if (const std::string why = why_there_is_no_mpi(); !why.empty()) GTEST_SKIP() << why;
  const MpiEnd end = run_mpi(GetParam(), "--suite mpi");
  EXPECT_EQ(end.status, 0) << end.output;
}

TEST(MpiFault, AKilledRankAndATimeoutAreErrors) {
  if (const std::string why = why_there_is_no_mpi(); !why.empty()) GTEST_SKIP() << why;
  const int repetitions = std::getenv("TEGULA_LONG") != nullptr ? 50 : 3;
  for (int i = 0; i < repetitions; ++i) {
    const MpiEnd killed = run_mpi(2, "--fault killed");
    EXPECT_NE(killed.status, 0);
    EXPECT_NE(killed.output.find("signal 9"), std::string::npos) << killed.output;
    const MpiEnd stopped = run_mpi(2, "--fault stopped");
    EXPECT_NE(stopped.status, 0);
    EXPECT_NE(stopped.output.find("the mpi engine failed: no answer within 500 ms"),
              std::string::npos)
        << stopped.output;
  }
}

TEST(MpiFault, AMemberThatDoesNotMakeTheGroupIsATimeout) {
  if (const std::string why = why_there_is_no_mpi(); !why.empty()) GTEST_SKIP() << why;
  const MpiEnd end = run_mpi(2, "--fault absent");
  EXPECT_NE(end.status, 0);
  EXPECT_NE(end.output.find("rank 1 did not make the group within 500 ms"), std::string::npos)
      << end.output;
}

TEST(MpiFault, AMessageThatComesTooLateIsWrittenToNobodysMemory) {
  if (const std::string why = why_there_is_no_mpi(); !why.empty()) GTEST_SKIP() << why;
  const MpiEnd end = run_mpi(2, "--fault late");
  EXPECT_NE(end.output.find("other memory is as it was"), std::string::npos) << end.output;
}

TEST(MpiFault, AWorldThatGoesWithCallsPendingDoesNotHang) {
  if (const std::string why = why_there_is_no_mpi(); !why.empty()) GTEST_SKIP() << why;
  const MpiEnd end = run_mpi(2, "--fault pending");
  EXPECT_NE(end.output.find("the world went"), std::string::npos) << end.output;
  EXPECT_NE(WEXITSTATUS(end.status), 124) << "it hangs: " << end.output;
}

INSTANTIATE_TEST_SUITE_P(Engine, Mpi, testing::ValuesIn(rank_counts()));

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

// Rank 1 is killed or stopped; the others call on.
void call_on(World& world, int signal) {
  world.group().barrier();
  if (world.rank() == 1) raise(signal);
  world.group().set_timeout(std::chrono::milliseconds(500));
  world.group().all_reduce(at::ones({4}), ReduceOp::Sum);
}

void make_group_alone(World& world) {
  world.group().barrier();
  if (world.rank() == 1) raise(SIGSTOP);
  world.group({0, 1}, {"pair", "mpi", std::chrono::milliseconds(500)});
}

// Rank 1 sends when rank 0 has given up and uses its memory for something else.
void send_late(World& world) {
  const Group group = world.group({0, 1}, {"late", "mpi", std::chrono::milliseconds(500)});
  const Group other = world.group({0, 1}, {"other", "mpi", std::nullopt});
  if (world.rank() == 1) {
    other.barrier();
    group.send(at::full({1000}, 5, at::kInt), 0);
    return other.barrier();
  }
  EXPECT_THROW(group.recv(at::zeros({1000}, at::kInt), 1), CommError);
  std::vector<at::Tensor> reused;
  for (int i = 0; i < 100; ++i) reused.push_back(at::full({1000}, 7, at::kInt));
  other.barrier();
  other.barrier();
  for (const at::Tensor& tensor : reused) {
    require(at::all(tensor == 7).item<bool>(), "a late message came into other memory");
  }
  std::cout << "other memory is as it was" << std::endl;
}

// Rank 1 is there until rank 0 is gone, and makes no call over MPI.
void go_with_calls_pending(std::optional<World> world) {
  const Group watch = world->group({0, 1}, {"watch", "shm", std::nullopt});
  {
    const Group group = world->group();
    group.barrier();
    if (world->rank() == 0) {
      group.recv_async(at::ones({4}), 1);
      group.all_reduce_async(at::ones({4}), ReduceOp::Sum);
    }
  }
  watch.barrier();
  if (world->rank() == 1) {
    EXPECT_THROW(while (true) watch.barrier(), CommError);
  } else {
    world.reset();
    std::cout << "the world went" << std::endl;
  }
}

int run_fault(const std::string& fault) {
  try {
    World world = World::from_env({"mpi", std::nullopt});
    if (fault == "killed") call_on(world, SIGKILL);
    if (fault == "stopped") call_on(world, SIGSTOP);
    if (fault == "absent") make_group_alone(world);
    if (fault == "late") send_late(world);
    if (fault == "pending") go_with_calls_pending(std::move(world));
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
  if (argc == 3 && std::string(argv[1]) == "--fault") return tegula::run_fault(argv[2]);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
