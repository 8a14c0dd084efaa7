// After an error that some ranks met, all of them recover, and the world is as good as new.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <latch>
#include <stdexcept>
#include <thread>

#include "tegula/base/error.h"
#include "tegula/comm/recovery.h"
#include "tests/comm/ranks.h"

namespace tegula {
namespace recovery_test {

using namespace std::chrono_literals;
using inner::comm::note_error;

void check_sum(const Group& group) {
  const at::Tensor sum =
      group.all_reduce(at::full({1000}, group.index() + 1, at::kInt), ReduceOp::Sum);
  require(at::all(sum == group.size() * (group.size() + 1) / 2).item<bool>(), "a wrong sum");
}

class Recovery : public testing::TestWithParam<Way> {};

TEST_P(Recovery, AfterARefusedCallTheWorldIsUsableAgain) {
  run_in(GetParam(), 3, [](World& world) {
    const Group group = world.group();
    check_sum(group);
    for (std::uint32_t round = 1; round <= 3; ++round) {
      const std::string error = error_of([&] {
        if (world.rank() == 1) throw UsageError("a mistake of this rank alone");
        check_sum(group);
      });
      require(!error.empty() || world.rank() != 1, "nothing was thrown");
      world.recover();
      require(world.epoch() == round, "a wrong epoch");
      check_sum(group);
      check_sum(world.group({0, 1, 2}, {"another", "", std::nullopt}));
    }
  });
}

TEST_P(Recovery, CallsUnderWayEndWithAnErrorAndChangeNothingAfterwards) {
  run_in(GetParam(), 2, [](World& world) {
    const Group group = world.group();
    check_sum(group);
    const at::Tensor mine = at::ones({300'000});
    if (world.rank() == 0) {
      const Pending sum = group.all_reduce_async(mine, ReduceOp::Sum);
      world.recover();
      require(!error_of([&] { sum.wait(); }).empty(), "a call of the old epoch succeeded");
    } else {
      world.recover();
    }
    check_sum(group);
    require(at::all(mine == 1).item<bool>(), "memory of the old epoch was written");
  });
}

INSTANTIATE_TEST_SUITE_P(Ways, Recovery,
                         testing::Values(Way::Threads, Way::Processes, Way::GlooThreads,
                                         Way::GlooProcesses),
                         testing::PrintToStringParamName());

TEST(RecoveryOfAWorld, EndsTheWaitingOfRanksThatHaveMetNoError) {
  run_in(Way::Processes, 3, [](World& world) {
    check_sum(world.group());
    if (world.rank() != 1) {
      const std::string error = error_of([&] { check_sum(world.group()); });
      require(contains(error, "rank 1 began to recover from an error"), error);
    }
    world.recover();
    check_sum(world.group());
  });
}

TEST_P(Recovery, TellsTheOthersWhatThisRankCaught) {
  run_in(GetParam(), 3, [](World& world) {
    check_sum(world.group());
    try {
      if (world.rank() == 1) throw std::runtime_error("the user's own mistake");
      check_sum(world.group());
    } catch (const std::exception& error) {
      const std::string told = error.what();
      require(
          world.rank() == 1 || told.starts_with("tegula: rank 1 failed: the user's own mistake"),
          told);
      world.recover();
    }
    check_sum(world.group());
  });
}

// It is stopped at any place of a collective, the others give up and begin anew, and it goes on.
TEST(RecoveryOfAWorld, ARankThatWasStoppedWritesNothingIntoTheNewEpoch) {
  const auto ends = run_processes(3, [](World& world) {
    const Group group = world.group();
    const at::Tensor ids = group.all_gather(at::full({1}, getpid(), at::kInt), 0);
    const auto stopped = ids[1].item<int>();
    for (int round = 0; round < 5; ++round) {
      group.set_timeout(200ms);
      std::thread stopper;
      if (world.rank() == 0) {
        stopper = std::thread([&] {
          std::this_thread::sleep_for(std::chrono::microseconds(1700 * (round + 1)));
          kill(stopped, SIGSTOP);
        });
      }
      const std::string error = error_of([&] {
        for (;;) group.all_reduce(at::full({400'000}, 1e6, at::kInt), ReduceOp::Sum);
      });
      if (stopper.joinable()) stopper.join();
      if (world.rank() == 0) {  // it goes on while the others have recovered, as far as they can
        stopper = std::thread([&] {
          std::this_thread::sleep_for(30ms);
          kill(stopped, SIGCONT);
        });
      }
      world.recover();
      if (stopper.joinable()) stopper.join();
      group.set_timeout(60s);
      std::vector<at::Tensor> sums;
      for (int i = 1; i <= 30; ++i) {
        sums.push_back(group.all_reduce(at::full({400'000}, i, at::kInt), ReduceOp::Sum));
      }
      for (int i = 1; i <= 30; ++i) {
        require(at::all(sums[static_cast<std::size_t>(i - 1)] == 3 * i).item<bool>(),
                "a result of the new epoch was written: " + error);
      }
    }
  });
  for (const RankEnd& end : ends) EXPECT_EQ(end.exit_code, 0) << end.error << end.signal;
}

TEST(RecoveryOfAWorld, LeavesTimeoutsThatWereSet) {
  std::latch has_thrown(1);
  run_in(Way::Threads, 2, [&](World& world) {
    const Group group = world.group();
    check_sum(group);
    group.set_timeout(100ms);
    world.recover();
    if (world.rank() == 0) {
      const std::string error = error_of([&] { check_sum(group); });
      has_thrown.count_down();
      require(contains(error, "within 0.1 s"), error);
    } else {
      has_thrown.wait();
    }
    world.recover();
    group.set_timeout(60s);
    check_sum(group);
  });
}

TEST(RecoveryOfAWorld, FailsIfARankIsGone) {
  const auto ends = run_processes(3, [](World& world) {
    check_sum(world.group());
    if (world.rank() == 1) raise(SIGKILL);
    const std::string error = error_of([&] { check_sum(world.group()); });
    require(contains(error, "rank 1 died"), error);
    const std::string again = error_of([&] { world.recover(); });
    require(contains(again, "cannot recover: rank 1 of this host died"), again);
  });
  for (const int rank : {0, 2}) {
    EXPECT_EQ(ends[static_cast<std::size_t>(rank)].exit_code, 0)
        << ends[static_cast<std::size_t>(rank)].error;
  }
}

TEST(RecoveryOfAWorld, GivesTheMemoryOfOldGroupsBack) {
  run_in(Way::Processes, 2, [](World& world) {
    const auto blocks = [] {
      std::int64_t total = 0;
      if (std::FILE* file = std::fopen("/proc/self/smaps_rollup", "r")) {
        char line[256];
        while (std::fgets(line, sizeof(line), file) != nullptr) {
          long long kilobytes = 0;
          if (std::sscanf(line, "Pss_Shmem: %lld", &kilobytes) == 1) total = kilobytes;
        }
        std::fclose(file);
      }
      return total;
    };
    check_sum(world.group());
    world.recover();
    check_sum(world.group());
    const std::int64_t before = blocks();
    for (int i = 0; i < 50; ++i) {
      world.recover();
      check_sum(world.group());
    }
    require(blocks() < before + 4096, "the memory grows");
  });
}

// What libtorch's ops throw is counted by the kernel; here the count itself is looked at.
TEST(ErrorsOfOneRank, ReachTheOthersAtTheirNextCommunication) {
  run_in(Way::Processes, 3, [](World& world) {
    check_sum(world.group());
    if (world.rank() == 1) {
      note_error(world, {0, 1, 2}, "aten::embedding: index out of range");
      std::this_thread::sleep_for(100ms);  // it is there, and makes no call
    } else {
      const std::string error = error_of([&] { check_sum(world.group()); });
      require(contains(error, "rank 1 failed: aten::embedding: index out of range"), error);
    }
    world.recover();
    check_sum(world.group());
  });
}

// However soon it makes the call that the others wait for, or one just like it.
TEST_P(Recovery, AnErrorOfARankThatGoesOnEndsOnAll) {
  run_in(GetParam(), 3, [](World& world) {
    const Group group = world.group();
    check_sum(group);
    for (int round = 0; round < 3; ++round) {
      note_error(world, {0, 1, 2}, "what all of them met");
      check_sum(group);
      if (world.rank() == 1) note_error(world, {0, 1, 2}, "aten::embedding: index out of range");
      note_error(world, {0, 1, 2}, "what all of them met");  // so that all compare
      const std::string error = error_of([&] {
        for (int i = 0; i < 3; ++i) check_sum(group);
      });
      require(contains(error, "rank 1 failed: "), error);
      world.recover();
      check_sum(group);
    }
  });
}

TEST(ErrorsOfOneRank, ReachTheOthersThoughItGoesOnAtOnce) {
  run_in(Way::Processes, 3, [](World& world) {
    check_sum(world.group());
    if (world.rank() == 1) note_error(world, {0, 1, 2}, "aten::embedding: index out of range");
    const std::string error = error_of([&] { check_sum(world.group()); });
    require(contains(error, "rank 1 failed: aten::embedding: index out of range"), error);
    world.recover();
    check_sum(world.group());
  });
}

TEST(ErrorsOfOneRank, AreNamedByTheRankOfTheWorld) {
  for (const Way way : {Way::Threads, Way::GlooThreads}) {
    run_in(way, 3, [](World& world) {
      if (world.rank() == 0) return;
      const Group pair = world.group({2, 1});
      check_sum(pair);
      if (world.rank() == 1) note_error(world, {1, 2}, "its own");
      note_error(world, {1, 2}, "what both met");
      const std::string error = error_of([&] { check_sum(pair); });
      require(contains(error, "rank 1 failed: "), error);
    });
  }
}

TEST(ErrorsOfOneRank, ThatAllRanksMeetAreHarmless) {
  run_in(Way::Threads, 4, [](World& world) {
    for (int i = 0; i < 250; ++i) {
      for (int k = 0; k < 4; ++k) note_error(world, {0, 1, 2, 3}, "the same for all");
      if (world.rank() == i % 4) std::this_thread::sleep_for(1ms);
      check_sum(world.group());
    }
  });
}

TEST(ErrorsOfOneRank, AreNoBusinessOfRanksThatTakeNoPart) {
  run_in(Way::Threads, 4, [](World& world) {
    const std::vector<std::int64_t> stage =
        world.rank() < 2 ? std::vector<std::int64_t>{0, 1} : std::vector<std::int64_t>{2, 3};
    for (int i = 0; i < 20; ++i) {
      if (world.rank() < 2) note_error(world, stage, "both ranks of this stage catch it");
      if (world.rank() < 2) std::this_thread::sleep_for(50ms);  // the others wait and look around
      check_sum(world.group());
    }
  });
}

TEST(ErrorsOfOneRank, DoNotEndCallsThatItsWorkerWillMake) {
  run_in(Way::Threads, 2, [](World& world) {
    const Group group = world.group();
    for (int i = 0; i < 50; ++i) {
      std::vector<Pending> pending;
      for (int k = 0; k < 5; ++k) {
        pending.push_back(group.all_reduce_async(at::ones({200'000}), ReduceOp::Sum));
      }
      note_error(world, {0, 1}, "the same for both");
      for (const Pending& one : pending) one.wait();
    }
  });
}

}  // namespace recovery_test
}  // namespace tegula
