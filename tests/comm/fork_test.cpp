// A child that a rank forks, as data loaders do, leaves the rank alone however it ends.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <cstdlib>
#include <functional>
#include <optional>

#include "tegula/base/error.h"
#include "tegula/comm/buffers.h"
#include "tegula/comm/shm/blocks.h"
#include "tests/comm/ranks.h"

namespace tegula {

using namespace inner;

namespace fork_test {

// The exit code of a child that runs the body; -1 if a signal ended it, as one that hangs.
int child_of(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    body();
    std::exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void expect_all_well(const std::vector<RankEnd>& ends) {
  for (const RankEnd& end : ends) EXPECT_EQ(end.exit_code, 0) << end.error;
}

// A world with everything that it can have: threads that wait, results in shared memory.
struct Used {
  World world = World::from_env();
  Group gloo = world.group({0, 1}, {"tcp", "gloo", std::nullopt});
  at::Tensor large = world.group().all_reduce(at::ones({1 << 20}), ReduceOp::Sum);
  at::Tensor small = world.group().all_reduce(at::ones({8}), ReduceOp::Sum);

  void call() const {
    const int peer = 1 - world.rank();
    for (const Group& group : {world.group(), gloo}) {
      const Pending got = group.recv_async(at::empty({3}), peer);
      group.send(at::full({3}, world.rank(), at::kFloat), peer);
      require(got.wait()[0].item<int>() == peer, "a wrong message");
      const at::Tensor sum = group.all_reduce_async(at::ones({1 << 20}), ReduceOp::Sum).wait();
      require(at::all(sum == 2).item<bool>(), "a wrong sum");
    }
    require(at::all(large == 2).item<bool>() && at::all(small == 2).item<bool>(),
            "a result has changed");
  }
};

TEST(Fork, AChildThatExitsLeavesItsParentInPeace) {
  expect_all_well(run_processes(2, [](World&) {
    static std::optional<Used> used(std::in_place);  // destroyed by exit()
    for (int i = 0; i < 3; ++i) {
      used->call();
      require(child_of([] {}) == 0, "exit() did not end well");
      require(child_of([] { _exit(0); }) == 0, "_exit() did not end well");
      used->call();
    }
  }));
}

TEST(Fork, AChildThatDropsAllItHasLeavesItsParentInPeace) {
  expect_all_well(run_processes(2, [](World&) {
    std::optional<Used> used(std::in_place);
    used->call();
    require(child_of([&] { used.reset(); }) == 0, "the child did not end well");
    used->call();
  }));
}

// No unused memory is kept here: what is given back goes to the kernel.
TEST(Fork, AChildThatFreesAResultLeavesItToItsParent) {
  const std::shared_ptr<shm::Board> board = shm::Board::create(1);
  comm::Buffers buffers(std::make_shared<shm::Blocks>(board), 0);
  at::Tensor result = buffers.empty({1 << 20}, at::kFloat).fill_(7);
  EXPECT_EQ(child_of([&] { result.reset(); }), 0);
  EXPECT_TRUE(at::all(result == 7).item<bool>());
}

TEST(Fork, AChildCannotCallOnTheWorldOfItsParent) {
  expect_all_well(run_processes(2, [](World& world) {
    const Group group = world.group();
    const c10::intrusive_ptr<c10d::Backend> backend = group.backend();
    group.barrier();
    const auto is_refused = [](const std::function<void()>& call) {
      return child_of([&] {
               try {
                 call();
               } catch (const UsageError& error) {
                 const std::string want =
                     "tegula: a forked child has no part in its parent's world\n  hint    call on "
                     "the world in the process that made it; fork before, or start a new program";
                 _exit(error.what() == want ? 7 : 8);
               }
             }) == 7;
    };
    require(is_refused([&] { group.barrier(); }), "a collective");
    require(is_refused([&] { backend->barrier()->wait(); }), "a collective of c10d");
    require(is_refused([&] { group.barrier_async(); }), "a collective, asynchronous");
    require(is_refused([&] { group.send(at::ones({1}), 1 - world.rank()); }), "a message");
    require(is_refused([&] { world.group({0, 1}, {"new", "", std::nullopt}); }), "a new group");
    require(is_refused([&] { world.abort("enough"); }), "an abort of the world");
    require(is_refused([&] { group.abort("enough"); }), "an abort of the group");
    require(is_refused([&] { world.recover(); }), "a recovery");
    group.barrier();
  }));
}

}  // namespace fork_test
}  // namespace tegula
