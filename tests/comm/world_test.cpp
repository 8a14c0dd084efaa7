#include "tegula/comm/world.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <future>
#include <limits>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "tegula/base/error.h"
#include "tests/comm/ranks.h"

namespace tegula {
namespace world_test {

TEST(World, AloneIsAWorldOfOne) {
  const World world = World::alone();
  EXPECT_EQ(world.size(), 1);
  const at::Tensor x = at::arange(6).reshape({2, 3});
  EXPECT_TRUE(at::equal(world.group().all_reduce(x, ReduceOp::Sum), x));
  EXPECT_TRUE(at::equal(world.group().all_gather(x, 1), x));
  EXPECT_TRUE(at::equal(world.group().all_to_all(x, 0, 1), x));
}

TEST(World, AProcessCanHoldSeveral) {
  const auto ends = run_processes(2, [](World& first) {
    const World second = World::from_env();
    const at::Tensor a = first.group().all_reduce(at::ones({3}), ReduceOp::Sum);
    const at::Tensor b = second.group().all_reduce(at::ones({4}), ReduceOp::Sum);
    require(a.size(0) == 3 && b.size(0) == 4 && b[0].item<float>() == 2,
            "two worlds mixed up their calls");
  });
  for (const RankEnd& end : ends) EXPECT_EQ(end.exit_code, 0) << end.error;
}

TEST(World, GroupsAreMadeByTheirMembersAlone) {
  run_ranks(4, [](World& world) {
    if (world.rank() >= 2) return;  // the others take no part
    const Group pair = world.group({0, 1}, {"pair", "", std::nullopt});
    require(pair.index() == world.rank() && pair.size() == 2 && pair.engine() == "shm",
            "a wrong group");
    require(pair.all_reduce(at::ones({1}), ReduceOp::Sum).item<float>() == 2, "a wrong sum");
  });
}

TEST(World, ServesMoreRanksThanTheHostHasProcessors) {
  constexpr int kRanks = 24;
  const auto ends = run_processes(kRanks, [](World& world) {
    const Group group = world.group();
    const int me = world.rank();
    const at::Tensor ranks = at::arange(kRanks);
    require(at::equal(group.all_gather(at::full({1}, me), 0), ranks), "a wrong gather");
    require(at::equal(group.all_to_all(at::full({kRanks}, me), 0, 0), ranks), "a wrong exchange");
    for (const std::int64_t count : {8, 100'000}) {
      const at::Tensor sum = group.all_reduce(at::full({count}, me), ReduceOp::Sum);
      require(at::all(sum == kRanks * (kRanks - 1) / 2).item<bool>(), "a wrong sum");
    }
    const Pending got = group.recv_async(at::zeros({1}, at::kLong), (me + kRanks - 1) % kRanks);
    group.send(at::full({1}, me), (me + 1) % kRanks);
    require(got.wait().item<int>() == (me + kRanks - 1) % kRanks, "a wrong message");
  });
  for (const RankEnd& end : ends) EXPECT_EQ(end.exit_code, 0) << end.error;
}

TEST(World, ServesHundredsOfGroups) {
  const auto ends = run_processes(2, [](World& world) {
    for (int i = 0; i < 300; ++i) {
      const Group group = world.group({0, 1}, {"group " + std::to_string(i), "", std::nullopt});
      require(group.all_reduce(at::ones({3}), ReduceOp::Sum)[0].item<float>() == 2, "a wrong sum");
    }
  });
  for (const RankEnd& end : ends) EXPECT_EQ(end.exit_code, 0) << end.error;
}

TEST(World, MayLiveUntilItsProgramEnds) {
  const auto ends = run_processes(2, [](World& world) {
    static const World kept = world;
    static const Pending sum = kept.group().all_reduce_async(at::ones({3}), ReduceOp::Sum);
    sum.wait();
    std::exit(0);  // ends what is static
  });
  for (const RankEnd& end : ends) EXPECT_EQ(end.exit_code, 0) << end.error << end.signal;
}

TEST(World, RanksThatRepeatOrDoNotExistAreRefused) {
  const World world = World::fake(4, 1);
  EXPECT_THROW(world.group({0, 0, 1}), UsageError);
  EXPECT_THROW(world.group({1, 4}), UsageError);
  EXPECT_THROW(world.group({0, 2}), UsageError);
  EXPECT_THROW(World::fake(4, 4), UsageError);
}

TEST(World, ATimeoutThatIsNoneIsRefused) {
  const auto refuses = [](std::chrono::milliseconds timeout) {
    const auto nothing = [](World&) {};
    try {
      run_ranks(1, nothing, {"", timeout});
    } catch (const UsageError& error) {
      return error.sentence() ==
             "a rank cannot wait " + std::to_string(timeout.count()) + " ms for another";
    }
    return false;
  };
  for (const std::int64_t wrong : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{1} << 60}) {
    EXPECT_TRUE(refuses(std::chrono::milliseconds(wrong))) << wrong;
  }
  EXPECT_FALSE(refuses(std::chrono::milliseconds(1)));
  const World world = World::alone();
  EXPECT_THROW(world.group({0}, {"g", "", std::chrono::milliseconds(0)}), UsageError);
  EXPECT_THROW(world.group().set_timeout(std::chrono::milliseconds(-1)), UsageError);
}

TEST(World, AnImaginedOneGivesShapes) {
  const World world = World::fake(4096, 7);
  const Group group = world.group();
  const at::Tensor x = at::empty({2, 3}, at::device(at::kMeta));
  EXPECT_EQ(group.all_gather(x, 0).sizes(), at::IntArrayRef({8192, 3}));
  EXPECT_EQ(group.all_reduce(x, ReduceOp::Sum).sizes(), x.sizes());
  EXPECT_EQ(group.engine(), "fake");
}

TEST(World, AnUnknownOrMissingBackendSaysWhatToDo) {
  const World world = World::alone();
  try {
    world.group({0}, {"", "carrier pigeon", std::nullopt});
    FAIL() << "nothing was thrown";
  } catch (const UsageError& error) {
    EXPECT_STREQ(
        error.what(),
        "tegula: there is no backend \"carrier pigeon\"\n  hint    choose shm, gloo, mpi or nccl");
  }
  try {
    world.group({0}, {"", "nccl", std::nullopt});
    FAIL() << "nothing was thrown";
  } catch (const UsageError& error) {
    EXPECT_EQ(error.sentence(), "this Tegula was built without NCCL");
  }
}

TEST(Group, CallsThatCannotBeRightAreRefusedBeforeAnythingIsSent) {
  run_ranks(2, [](World& world) {
    const Group group = world.group();
    const at::Tensor x = at::ones({3, 2});
    EXPECT_THROW(group.all_gather(x, 2), UsageError);
    EXPECT_THROW(group.all_gather(at::ones({}), 0), UsageError);
    EXPECT_THROW(group.all_gather(x, 0, {1, 2, 3}), UsageError);
    EXPECT_THROW(group.all_gather(x, 0, {1, 2}), UsageError);
    EXPECT_THROW(group.reduce_scatter(x, 0, ReduceOp::Sum), UsageError);
    EXPECT_THROW(group.reduce_scatter(x, 0, ReduceOp::Sum, {1, 1}), UsageError);
    EXPECT_THROW(group.broadcast(x, 2), UsageError);
    EXPECT_THROW(group.send(x, world.rank()), UsageError);
    EXPECT_THROW(group.permute(x, {0, 0}), UsageError);
    EXPECT_THROW(group.permute(x, {0}), UsageError);
    EXPECT_THROW(group.permute(x, {1, 0}, Group::Sizes{-3, -2}), UsageError);
    constexpr std::int64_t kHuge = std::int64_t{1} << 62;
    EXPECT_THROW(group.permute(x, {1, 0}, Group::Sizes{kHuge, kHuge}), UsageError);
    EXPECT_THROW(group.all_gather(x, 0, {3, kHuge}), UsageError);
    EXPECT_THROW(group.reduce_scatter(x, 0, ReduceOp::Sum, {-1, 4}), UsageError);
    EXPECT_THROW(group.all_to_all(x, 0, 0, {1, 2}, {kHuge, kHuge}), UsageError);
    EXPECT_THROW(group.all_reduce(x.to_sparse(), ReduceOp::Sum), UsageError);
    group.barrier();
  });
}

TEST(Group, SizesThatAddUpByOverflowAreRefused) {
  constexpr std::int64_t kHalf = std::numeric_limits<std::int64_t>::max() / 2 + 1;
  const Group group = World::fake(5, 0).group();
  const Group::Sizes around{kHalf, kHalf, kHalf, kHalf, 3};  // 3 in 64 bits
  EXPECT_THROW(group.reduce_scatter(at::ones({3}), 0, ReduceOp::Sum, around), UsageError);
  try {
    group.all_gather(at::ones({3, 2}), 0, {3, kHalf, kHalf, 0, 0});
    FAIL() << "nothing was thrown";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "tegula: no tensor has the shape that the result would have\n"
                 "  shape   [9223372036854775807, 2]\n"
                 "  hint    it would have more bytes than 63 bits count");
  }
  EXPECT_EQ(group.all_gather(at::ones({3, 0}), 0, {3, 0, 0, 0, 4}).sizes(),
            at::IntArrayRef({7, 0}));
}

TEST(Group, AbortBreaksItForAllMembers) {
  EXPECT_THROW(run_ranks(2,
                         [](World& world) {
                           if (world.rank() == 0) world.group().abort("enough");
                           world.group().barrier();
                         }),
               CommError);
}

// Rank 0 makes the pair only after rank 1, whose other thread waits for it, has used the world.
TEST(World, WhileAGroupIsMadeItsWorldServesOtherThreads) {
  for (const std::string backend : {"shm", "gloo"}) {
    std::promise<void> used;
    run_ranks(2, [&](World& world) {
      world.group().barrier();
      const auto make_pair = [&world, &backend] {
        world.group({0, 1}, {"pair", backend, std::nullopt}).barrier();
      };
      if (world.rank() == 0) {
        used.get_future().wait_for(std::chrono::seconds(20));
        return make_pair();
      }
      std::thread maker(make_pair);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // it waits for rank 0 by then
      world.group({1}, {"alone", "", std::nullopt}).barrier();
      EXPECT_NE(&world.part<std::string>(), nullptr);
      EXPECT_EQ(world.group().size(), 2);
      used.set_value();
      maker.join();
    });
  }
}

TEST(World, ThreadsMayMakeGroupsInAnyOrder) {
  for (const std::string backend : {"shm", "gloo"}) {
    run_ranks(2, [&](World& world) {
      const auto make = [&](const std::string& name) {
        const Group group = world.group({0, 1}, {name, backend, std::nullopt});
        EXPECT_EQ(group.all_reduce(at::ones({1}), ReduceOp::Sum).item<float>(), 2);
      };
      // rank 1 makes the second only when the first is there, and rank 0 has begun with that
      if (world.rank() == 1) {
        make("a");
        return make("b");
      }
      std::thread maker([&] { make("b"); });
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      make("a");
      maker.join();
    });
  }
}

TEST(World, AnAbortEndsTheMakingOfAGroupAndBreaksThoseMadeLater) {
  for (const std::string backend : {"shm", "gloo"}) {
    std::promise<void> aborted;
    EXPECT_THROW(run_ranks(2,
                           [&](World& world) {
                             if (world.rank() == 0)
                               return void(aborted.get_future().wait_for(std::chrono::seconds(20)));
                             std::thread maker([&] {
                               EXPECT_THROW(world.group({0, 1}, {"pair", backend, std::nullopt}),
                                            CommError);
                             });
                             std::this_thread::sleep_for(std::chrono::milliseconds(20));
                             world.abort("enough");
                             maker.join();
                             aborted.set_value();
                             world.group({1}, {"later", backend, std::nullopt}).barrier();
                           }),
                 CommError);
  }
}

template <int>
struct Numbered {
  std::thread::id maker = std::this_thread::get_id();
};

template <int... n>
std::vector<const void*> parts_of(const World& world, std::integer_sequence<int, n...>) {
  return {&world.part<Numbered<n>>()...};
}

TEST(World, KeepsOnePartOfEachTypeHoweverManyTypesThereAre) {
  constexpr int kMany = static_cast<int>(inner::comm::WorldHead::kSlots) + 20;
  const auto numbers = std::make_integer_sequence<int, kMany>();
  const World world = World::alone();
  const World other = World::alone();
  const std::vector<const void*> parts = parts_of(world, numbers);
  EXPECT_EQ(std::set<const void*>(parts.begin(), parts.end()).size(), parts.size());
  EXPECT_EQ(parts_of(world, numbers), parts);
  EXPECT_NE(parts_of(other, numbers), parts);
}

TEST(World, ThreadsThatAskForAPartTogetherGetTheSame) {
  const World world = World::alone();
  std::vector<const void*> got(8);
  std::vector<std::thread> threads;
  for (const void*& part : got) {
    threads.emplace_back([&] { part = &world.part<Numbered<-1>>(); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::set<const void*>(got.begin(), got.end()).size(), 1U);
}

}  // namespace world_test
}  // namespace tegula
