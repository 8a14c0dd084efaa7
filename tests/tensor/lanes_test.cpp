// Threads of one rank that communicate at the same time: on lanes of their own, or not at all.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <chrono>
#include <latch>
#include <thread>

#include "tegula/tegula.h"
#include "tests/tensor/as_plain.h"

namespace tegula {
namespace lanes_test {

TEST(Lanes, LetThreadsOfARankWorkOnOneMeshAndItsTensorsAtTheSameTime) {
  run_ranks(2, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor whole = at::arange(24, at::kDouble).reshape({6, 4});
    const at::Tensor x = distribute_tensor(whole, mesh, {Shard(0)});
    std::vector<std::string> errors(3);
    std::vector<std::thread> threads;
    for (std::size_t k = 0; k < 3; ++k) {
      threads.emplace_back([&, k] {
        errors[k] = error_of([&] {
          const Lane lane("thread " + std::to_string(k));
          for (int i = 0; i < 50; ++i) {
            const auto factor = static_cast<double>(k * 100 + static_cast<std::size_t>(i));
            const at::Tensor constant = at::full({4}, factor, at::kDouble);  // ranks agree on it
            const at::Tensor got = full_tensor((x * constant).sum(0));
            EXPECT_TRUE(at::equal(got, (whole * factor).sum(0)));
          }
        });
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::string& error : errors) EXPECT_EQ(error, "nothing was thrown");
  });
}

TEST(Lanes, ErrorsThatAllRanksMeetOnOneAreNoBusinessOfOthers) {
  run_ranks(2, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor x = ones({6, 4}, mesh, {Shard(0)});
    std::string of_trials;
    std::latch has_thrown(1);
    std::thread thrower([&] {
      const Lane lane("trials");
      // the ranks throw at different times
      if (world.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(150));
      for (int i = 0; i < 5; ++i) EXPECT_NE(error_of([&] { x.view({7}); }), "nothing was thrown");
      of_trials = error_of([&] { full_tensor(x); });
      has_thrown.count_down();
    });
    const Lane lane("training");
    // rank 0 waits for rank 1, which has thrown more often
    if (world.rank() == 1) has_thrown.wait();
    EXPECT_EQ(error_of([&] { full_tensor(x); }), "nothing was thrown");
    thrower.join();
    EXPECT_EQ(of_trials, "nothing was thrown");
  });
}

TEST(Lanes, WithoutThemASecondThreadInAGroupIsRefused) {
  std::latch is_refused(1);
  run_ranks(2, [&](World& world) {
    const Group group = world.group();
    if (world.rank() == 1) {
      is_refused.wait();
      group.barrier();
      return;
    }
    std::latch has_begun(1);
    std::thread first([&] {
      has_begun.count_down();
      group.barrier();  // waits for rank 1, which waits for the refusal
    });
    has_begun.wait();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    // a group that nobody else is in would make the call and wait: it is the other thread's
    const std::string error = error_of([&] { group.barrier(); });
    EXPECT_TRUE(contains(error, "two threads of this rank") && contains(error, "Lane")) << error;
    is_refused.count_down();
    first.join();
  });
}

}  // namespace lanes_test
}  // namespace tegula
