// A rank that fails in any way ends in a clear error on all others, with nothing left behind; and
// again in the next call. That nobody waits for the world's timeout of minutes shows in what the
// error says, and in that the test ends: no clock decides.
#include <ATen/ATen.h>
#include <dirent.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <latch>
#include <thread>

#include "tegula/base/error.h"
#include "tests/comm/ranks.h"

namespace tegula {
namespace fault_test {

using namespace std::chrono_literals;

int repetitions() { return std::getenv("TEGULA_LONG") != nullptr ? 50 : 3; }

std::vector<std::string> files_in_shared_memory() {
  std::vector<std::string> names;
  DIR* folder = opendir("/dev/shm");
  while (const dirent* entry = readdir(folder)) {
    const std::string name = entry->d_name;
    if (name.find("tegula") != std::string::npos) names.push_back(name);
  }
  closedir(folder);
  return names;
}

void expect_nothing_left() {
  EXPECT_EQ(files_in_shared_memory(), std::vector<std::string>());
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a child process is left";
}

// Calls twice; the second call must throw what the first did, word for word: an error of its own
// would say another number of the call.
void call_and_fail_again(const std::function<void()>& call) {
  std::string first;
  try {
    call();
    throw std::runtime_error("nothing was thrown");
  } catch (const CommError& error) {
    first = error.what();
  }
  try {
    call();
  } catch (const CommError& error) {
    require(error.what() == first,
            "the second call threw something else: " + std::string(error.what()));
    throw;
  }
  throw std::runtime_error("the second call threw nothing");
}

struct Expectation {
  int failing = 1;                 // this rank is not looked at
  std::vector<std::string> texts;  // in every other rank's error
};

void expect_failures(int ranks, const RankBody& body, const Expectation& want,
                     const WorldOptions& options = {}) {
  for (int i = 0; i < repetitions(); ++i) {
    const std::vector<RankEnd> ends = run_processes(ranks, body, options);
    for (int rank = 0; rank < ranks; ++rank) {
      if (rank == want.failing) continue;
      const RankEnd& end = ends[static_cast<std::size_t>(rank)];
      EXPECT_EQ(end.exit_code, 1) << "rank " << rank << ", signal " << end.signal;
      for (const std::string& text : want.texts)
        EXPECT_TRUE(contains(end.error, text)) << end.error;
    }
    expect_nothing_left();
  }
}

void limit(decltype(RLIMIT_AS) resource, rlim_t bytes) {
  const rlimit wanted{bytes, bytes};
  require(setrlimit(resource, &wanted) == 0, "cannot set a limit");
}

void sum(const World& world, std::int64_t count = 8) {
  world.group().all_reduce(at::ones({count}), ReduceOp::Sum);
}

TEST(Fault, AKilledRankIsNoticedByTheOthers) {
  for (std::int64_t count : {8, 3'000'000}) {
    expect_failures(3,
                    [count](World& world) {
                      sum(world, count);
                      if (world.rank() == 1) raise(SIGKILL);
                      call_and_fail_again([&] { sum(world, count); });
                    },
                    {1,
                     {"rank 1 died", "all_reduce(f32[" + std::to_string(count) + "], sum), call 1",
                      "absent  [1]", "world"}});
  }
}

TEST(Fault, AKilledRankIsNoticedInTheMiddleOfACall) {
  expect_failures(2,
                  [](World& world) {
                    sum(world);
                    std::thread killer;
                    if (world.rank() == 1) {
                      killer = std::thread([] {
                        std::this_thread::sleep_for(20ms);
                        raise(SIGKILL);
                      });
                    }
                    while (true) sum(world, 2'000'000);
                  },
                  {1, {"rank 1 died"}});
}

TEST(Fault, AStoppedRankIsATimeoutThatNamesGroupCallAndRank) {
  expect_failures(3,
                  [](World& world) {
                    sum(world);
                    if (world.rank() == 1) raise(SIGSTOP);
                    world.group().set_timeout(2s);
                    call_and_fail_again([&] { world.group().barrier(); });
                  },
                  {1,
                   {"rank 1 did not come within 2.0 s", "world [0, 1, 2]", "barrier(), call 1",
                    "absent  [1]"}});
}

TEST(Fault, ARankThatExitsEarlyIsNoticed) {
  expect_failures(3,
                  [](World& world) {
                    sum(world);
                    if (world.rank() == 1) _exit(7);
                    call_and_fail_again([&] { sum(world); });
                  },
                  {1, {"rank 1 died"}});
}

TEST(Fault, ARankThatThrowsIsNoticed) {
  expect_failures(3,
                  [](World& world) {
                    sum(world);
                    if (world.rank() == 1) throw std::runtime_error("its own business");
                    call_and_fail_again([&] { sum(world); });
                  },
                  {1, {"rank 1 left"}});
}

TEST(Fault, ARankThatLeavesBeforeAGroupIsMadeIsNoticed) {
  expect_failures(3,
                  [](World& world) {
                    if (world.rank() == 0) _exit(7);
                    world.group();
                  },
                  {0, {"rank 0 is gone and never made the group"}});
}

TEST(Fault, DifferentCallsThrowOnEveryRankAtOnceAndNameBoth) {
  const auto mismatch = [](const std::function<void(const Group&)>& other,
                           const std::string& text) {
    expect_failures(
        3,
        [&](World& world) {
          sum(world);
          call_and_fail_again([&] {
            if (world.rank() == 2) {
              other(world.group());
            } else {
              world.group().all_reduce(at::ones({4, 2}), ReduceOp::Sum);
            }
          });
        },
        {-1, {"different calls", "rank 0  all_reduce(f32[4, 2], sum), call 1", "rank 2  " + text}});
  };
  mismatch([](const Group& group) { group.barrier(); }, "barrier(), call 1");
  mismatch([](const Group& group) { group.all_reduce(at::ones({2, 4}), ReduceOp::Sum); },
           "all_reduce(f32[2, 4]");
  mismatch(
      [](const Group& group) { group.all_reduce(at::ones({4, 2}, at::kDouble), ReduceOp::Sum); },
      "all_reduce(f64[4, 2]");
  mismatch([](const Group& group) { group.all_reduce(at::ones({4, 2}), ReduceOp::Max); },
           "all_reduce(f32[4, 2], max)");
  mismatch([](const Group& group) { group.all_reduce(at::ones({500'000}), ReduceOp::Sum); },
           "all_reduce(f32[500000], sum)");
  mismatch([](const Group& group) { group.broadcast(at::ones({4, 2}), 1); },
           "broadcast(f32[4, 2], root 1)");
  mismatch([](const Group& group) { group.all_gather(at::ones({4, 2}), 0); },
           "all_gather(f32[12, 2], dim 0)");
}

TEST(Fault, TheLastCallsOfAllRanksAreWrittenWhenTheyDisagreeOrOneDoesNotCome) {
  char name[] = "/tmp/tegula-flights-XXXXXX";
  close(mkstemp(name));
  setenv("TEGULA_RECORDER", name, 1);
  const auto written = [&] {
    std::ifstream file(name);
    std::string text((std::istreambuf_iterator<char>(file)), {});
    std::ofstream(name, std::ios::trunc);
    return text;
  };
  run_processes(2, [](World& world) {
    sum(world);
    world.group().all_gather(at::ones({2 + world.rank()}), 0);
  });
  const std::string mismatch = written();
  for (const char* part :
       {"  rank 0\n    all_reduce(f32[8], sum)", "  rank 1\n    all_reduce(f32[8], sum)",
        "all_gather(f32[4], dim 0", "all_gather(f32[6], dim 0", "of world", "s ago, under way"}) {
    EXPECT_TRUE(contains(mismatch, part)) << part << " is not in\n" << mismatch;
  }
  EXPECT_EQ(mismatch.find("the last calls"), mismatch.rfind("the last calls")) << "written twice";
  run_processes(2, [](World& world) {
    sum(world);
    if (world.rank() == 1) raise(SIGSTOP);
    world.group().set_timeout(300ms);
    world.group().barrier();
  });
  EXPECT_TRUE(contains(written(), "barrier(), of world"));
  unsetenv("TEGULA_RECORDER");
  unlink(name);
}

TEST(Fault, ACallThatOneRankRefusesThrowsOnTheOthersAtOnce) {
  for (bool goes_on : {false, true}) {
    expect_failures(3,
                    [goes_on](World& world) {
                      sum(world);
                      if (world.rank() == 1) {
                        EXPECT_THROW(world.group().all_gather(at::ones({4}), 3), UsageError);
                        if (!goes_on) raise(SIGSTOP);  // there, and makes no call
                      }
                      call_and_fail_again([&] { world.group().all_gather(at::ones({4}), 0); });
                    },
                    {goes_on ? -1 : 1,
                     {"all_gather(f32[12], dim 0",
                      goes_on ? "rank" : "rank 1  all_gather, refused: there is no dim 3"}});
  }
}

TEST(Fault, ACallThatOneRankHasNoMemoryForThrowsOnTheOthersAtOnce) {
  for (bool in_input : {false, true}) {
    expect_failures(
        2,
        [in_input](World& world) {
          sum(world);
          if (world.rank() == 1) {
            const at::Tensor one = at::ones({1});
            const std::int64_t count = std::int64_t{1} << 46;
            if (in_input) {  // there is no contiguous copy of it
              EXPECT_ANY_THROW(world.group().all_reduce(one.expand({count}), ReduceOp::Sum));
            } else {
              EXPECT_ANY_THROW(world.group().all_gather(one, 0, {count, 1}));
            }
            raise(SIGSTOP);  // there, and makes no call
          }
          call_and_fail_again([&] { sum(world); });
        },
        {1,
         {"rank 1 refused a call that others made", "all_reduce(f32[8], sum), call 1",
          in_input ? "rank 1  all_reduce, refused: " : "not enough memory for a result"}});
  }
}

// As many threads more as this, where the limits can be set so; none elsewhere.
void limit_threads(int more) {
  if (geteuid() != 0) return limit(RLIMIT_NPROC, 0);
  const auto nobody_else = static_cast<uid_t>(100'000 + getpid());
  limit(RLIMIT_NPROC, static_cast<rlim_t>(1 + more));
  require(setresuid(nobody_else, nobody_else, nobody_else) == 0, "cannot be another user");
}

TEST(Fault, AThreadThatCannotBeStartedIsAnErrorOnAllRanks) {
  const auto without_threads = [](const std::function<void(const Group&)>& call,
                                  const std::vector<std::string>& texts) {
    expect_failures(2,
                    [&](World& world) {
                      sum(world);
                      const Group group = world.group();
                      if (world.rank() == 1) {
                        limit_threads(0);
                        EXPECT_THROW(call(group), CommError);
                        raise(SIGSTOP);
                      }
                      call_and_fail_again([&] { sum(world); });
                    },
                    {1, texts});
  };
  without_threads([](const Group& group) { group.all_reduce_async(at::ones({8}), ReduceOp::Sum); },
                  {"rank 1 refused a call", "all_reduce, refused: cannot start a thread: "});
  without_threads([](const Group& group) { group.recv_async(at::ones({4}), 0); },
                  {"rank 1 failed: recv, refused: cannot start a thread: "});
  without_threads([](const Group& group) { group.send_async(at::ones({4}), 0); },
                  {"rank 1 failed: send, refused: cannot start a thread: "});
}

TEST(Fault, AMessageThatOneRankRefusesThrowsOnItsPeerAtOnce) {
  const std::int64_t large = 3'000'000;  // its receiver has to take part
  using Act = std::function<void(const Group&)>;
  const auto refusal = [&](const Act& refused, const Act& waiting, const std::string& text) {
    expect_failures(2,
                    [&](World& world) {
                      const Group group = world.group();
                      group.barrier();
                      if (world.rank() == 1) {
                        EXPECT_THROW(refused(group), UsageError);
                        raise(SIGSTOP);  // there, and makes no call
                      }
                      call_and_fail_again([&] { waiting(group); });
                    },
                    {1, {"rank 1 failed: " + text}});
  };
  const Act awaits = [](const Group& group) { group.recv(at::ones({4}), 1); };
  refusal([](const Group& group) { group.send(at::Tensor(), 0); }, awaits, "send, refused: ");
  refusal([](const Group& group) { group.send_async(at::Tensor(), 0); }, awaits, "send, refused: ");
  refusal([](const Group& group) { group.send(at::ones({4}), 7); }, awaits, "send, refused: ");
  refusal([](const Group& group) { group.send_with_shape(at::ones({4}), 0, -1); },
          [](const Group& group) { group.recv_with_shape_async(1).wait(); }, "send, refused: ");
  refusal([](const Group& group) { group.recv(at::Tensor(), 0); },
          [&](const Group& group) { group.send(at::ones({large}), 1); }, "recv, refused: ");
}

TEST(Fault, AMessageThatBothItsRanksRefuseIsHarmless) {
  const auto ends = run_processes(3, [](World& world) {
    const Group group = world.group();
    for (int i = 0; i < 2; ++i) {  // of rank 0 with each of the others, which throw half as often
      if (world.rank() == 0) {
        for (int peer : {1, 2}) EXPECT_THROW(group.send(at::Tensor(), peer), UsageError);
      } else {
        EXPECT_THROW(group.recv(at::Tensor(), 0), UsageError);
      }
    }
    const at::Tensor got = at::zeros({4});
    if (world.rank() == 0) std::this_thread::sleep_for(100ms);  // they wait, and look around
    for (int peer : {1, 2}) {
      if (world.rank() == 0) group.send(at::ones({4}), peer);
      if (world.rank() == peer) group.recv(got, 0);
    }
    require(world.rank() == 0 || at::equal(got, at::ones({4})), "a wrong message");
  });
  for (const RankEnd& end : ends) EXPECT_EQ(end.exit_code, 0) << end.error;
}

TEST(Fault, PairsThatDisagreeOnSizesThrowOnEveryRank) {
  expect_failures(
      3,
      [](World& world) {
        call_and_fail_again([&] {
          std::vector<std::int64_t> joined(3, 1);
          if (world.rank() == 2) joined[0] = 5;
          world.group().all_to_all(at::ones({3}), 0, 0, {1, 1, 1}, joined);
        });
      },
      {-1, {"disagree on how much", "sends 4 bytes to rank 2", "awaits 20 bytes from rank 0"}});
}

TEST(Fault, AMessageThatDoesNotFitIsAnErrorOnBothSides) {
  expect_failures(
      2,
      [](World& world) {
        call_and_fail_again([&] {
          if (world.rank() == 0) {
            world.group().send(at::ones({3}), 1);
            world.group().recv(at::ones({3}), 1);
          } else {
            world.group().recv(at::ones({4}), 0);
          }
        });
      },
      {-1, {"not what its receiver awaits", "send(f32[3], tag 0)", "recv(f32[4], tag 0)"}});
}

TEST(Fault, APeerThatDiesDuringMessagesIsNoticed) {
  expect_failures(2,
                  [](World& world) {
                    world.group().barrier();
                    if (world.rank() == 1) raise(SIGKILL);
                    call_and_fail_again([&] { world.group().recv(at::ones({4}), 1); });
                  },
                  {1, {"rank 1 died", "recv(f32[4], tag 0)"}});
}

TEST(Fault, APendingCallThrowsWhenWaitedFor) {
  expect_failures(2,
                  [](World& world) {
                    world.group().barrier();
                    if (world.rank() == 1) raise(SIGKILL);
                    const Pending sum =
                        world.group().all_reduce_async(at::ones({4}), ReduceOp::Sum);
                    const Pending message = world.group().recv_async(at::ones({4}), 1);
                    call_and_fail_again([&] { sum.wait(); });
                    call_and_fail_again([&] { message.wait(); });
                    sum.wait();
                  },
                  {1, {"rank 1 died"}});
}

TEST(Fault, AWorldThatGoesWithCallsPendingDoesNotHang) {
  expect_failures(2,
                  [](World& world) {
                    world.group().barrier();
                    if (world.rank() == 1) std::this_thread::sleep_for(200ms);
                    if (world.rank() == 0) {
                      world.group().all_reduce_async(at::ones({4}), ReduceOp::Sum);
                      world.group().recv_async(at::ones({4}), 1);
                      throw std::runtime_error("rank 1 left in time");
                    }
                    sum(world);
                  },
                  {-1, {"rank"}});
}

TEST(Fault, AGroupThatGetsNoMemoryIsAnErrorOnItsMembers) {
  expect_failures(2,
                  [](World& world) {
                    limit(RLIMIT_FSIZE, 1 << 20);
                    world.group();
                  },
                  {-1, {"not enough shared memory"}});
}

TEST(Fault, AResultThatGetsNoMemoryIsAnErrorOnAllRanks) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the address sanitizer cannot live with a limit of memory";
#endif
  expect_failures(2,
                  [](World& world) {
                    sum(world);
                    const at::Tensor part = at::ones({std::int64_t{64} << 20}, at::kByte);
                    limit(RLIMIT_AS, 1 << 20);
                    world.group().all_gather(part, 0);
                  },
                  {-1, {"not enough memory for a result", "134217728"}});
}

TEST(Fault, ResultsThatDoNotFitIntoSharedMemoryComeByAnotherWay) {
  const auto ends = run_processes(3, [](World& world) {
    sum(world);
    if (world.rank() == 1) limit(RLIMIT_FSIZE, 1 << 20);
    const at::Tensor whole = at::full({3'000'000}, world.rank(), at::kInt);
    for (int i = 0; i < 3; ++i) {
      const at::Tensor got = world.group().all_reduce(whole, ReduceOp::Sum);
      require(at::all(got == 3).item<bool>(), "a wrong sum");
      require(world.group().all_gather(whole, 0).sum().item<std::int64_t>() == 9'000'000,
              "a wrong all_gather");
      require(world.group().all_to_all(whole, 0, 0).sum().item<std::int64_t>() == 3'000'000,
              "a wrong all_to_all");
    }
  });
  for (const RankEnd& end : ends) EXPECT_EQ(end.exit_code, 0) << end.error;
}

TEST(Fault, AFullSharedMemoryFolderDoesNotMatter) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can fill a /dev/shm of its own";
  bool is_possible = true;
  const pid_t probe = fork();
  if (probe == 0) _exit(unshare(CLONE_NEWNS) == 0 ? 0 : 1);
  int status = 0;
  waitpid(probe, &status, 0);
  is_possible = WEXITSTATUS(status) == 0;
  if (!is_possible) GTEST_SKIP() << "no mount namespaces here";
  const auto ends = run_processes(2, [](World& world) {
    require(unshare(CLONE_NEWNS) == 0, "no namespace");
    require(mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0,
            "cannot make mounts private");
    require(mount("none", "/dev/shm", "tmpfs", 0, "size=4k") == 0, "cannot mount");
    std::ofstream("/dev/shm/full") << std::string(1 << 20, 'x');
    sum(world, 1'000'000);
  });
  for (const RankEnd& end : ends) EXPECT_EQ(end.exit_code, 0) << end.error;
}

TEST(Fault, ARankTakenTwiceAndAMissingOneAreErrorsThatNameThem) {
  const auto ends = run_processes(3, [](World&) {});
  for (const RankEnd& end : ends) EXPECT_EQ(end.exit_code, 0) << end.error;
  // Rank 2 never comes: its process is rank 1 as well.
  const auto doubled = run_processes(1, [](World&) {
    setenv("TEGULA_WORLD_SIZE", "3", 1);
    setenv("TEGULA_LOCAL_WORLD_SIZE", "3", 1);
    World::from_env({"", 300ms});
  });
  EXPECT_TRUE(contains(doubled[0].error, "did not come in time: 1, 2")) << doubled[0].error;
}

TEST(ThreadFault, TheFirstFailureIsRethrownWithItsRankAndTheOthersDoNotHang) {
  for (int i = 0; i < repetitions(); ++i) {
    try {
      run_ranks(4, [](World& world) {
        sum(world);
        if (world.rank() == 2) throw UsageError("a mistake").hint("fix it");
        sum(world);
      });
      FAIL() << "nothing was thrown";
    } catch (const UsageError& error) {
      EXPECT_STREQ(error.what(), "tegula: a mistake\n  rank    2\n  hint    fix it");
    }
    try {
      run_ranks(2, [](World& world) {
        if (world.rank() == 1) throw std::out_of_range("far");
        sum(world, 100'000);
      });
      FAIL() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "rank 1: far");
    }
  }
}

TEST(ThreadFault, WhatIsNoExceptionIsRethrownAsOne) {
  try {
    run_ranks(2, [](World& world) {
      if (world.rank() == 1) throw 42;
      sum(world);
    });
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "rank 1: something that is no exception was thrown");
  }
}

TEST(ThreadFault, ARankThatGetsNoThreadIsAnErrorAndTheOthersDoNotHang) {
  const std::vector<RankEnd> ends = run_processes(1, [](World&) {
    limit_threads(2);
    run_ranks(4, [](World& world) { world.group().barrier(); });
  });
  EXPECT_EQ(ends[0].exit_code, 1) << ends[0].signal;
  EXPECT_TRUE(contains(ends[0].error, "tegula: cannot start a thread: ")) << ends[0].error;
  EXPECT_TRUE(contains(ends[0].error, "\n  rank    ")) << ends[0].error;
}

TEST(ThreadFault, MismatchesAndTimeoutsThrow) {
  for (std::int64_t count : {4, 100'000}) {
    EXPECT_THROW(run_ranks(3,
                           [count](World& world) {
                             world.group().all_reduce(at::ones({count + world.rank() / 2}),
                                                      ReduceOp::Sum);
                           }),
                 CommError);
    std::latch has_thrown(1);
    EXPECT_THROW(run_ranks(2,
                           [&](World& world) {
                             if (world.rank() == 1) {
                               has_thrown.wait();
                               return sum(world, count);
                             }
                             world.group().set_timeout(100ms);
                             EXPECT_THROW(sum(world, count), CommError);
                             has_thrown.count_down();
                             sum(world, count);
                           }),
                 CommError);
  }
}

TEST(ThreadFault, ARankThatReturnsEarlyIsNoticed) {
  try {
    run_ranks(2, [](World& world) {
      if (world.rank() == 0) sum(world);
    });
    FAIL() << "nothing was thrown";
  } catch (const CommError& error) {
    EXPECT_TRUE(contains(error.what(), "rank 1 left") || contains(error.what(), "rank 0 is gone"))
        << error.what();
  }
}

TEST(GlooFault, AKilledRankAndATimeoutAreErrors) {
  expect_failures(2,
                  [](World& world) {
                    sum(world);
                    if (world.rank() == 1) raise(SIGKILL);
                    call_and_fail_again([&] { sum(world); });
                  },
                  {1, {"the gloo engine failed"}}, {"gloo", std::nullopt});
  expect_failures(2,
                  [](World& world) {
                    sum(world);
                    if (world.rank() == 1) raise(SIGSTOP);
                    world.group().set_timeout(2s);
                    call_and_fail_again([&] { sum(world); });
                  },
                  {1, {"the gloo engine failed"}}, {"gloo", std::nullopt});
}

TEST(GlooFault, AMemberThatLeavesBeforeTheGroupIsMadeIsNoticed) {
  expect_failures(3,
                  [](World& world) {
                    if (world.rank() != 1) world.group();
                  },
                  {1, {"the ranks did not find each other over TCP: rank 1 of this host left"}},
                  {"gloo", std::nullopt});
}

TEST(GlooFault, AGroupIsMadeThoughARankThatIsNotInItLeft) {
  const auto ends = run_processes(3, [](World& world) {
    if (world.rank() == 2) return world.group().barrier();
    EXPECT_THROW(while (true) world.group().barrier(), CommError);
    world.group({0, 1}, {"pair", "gloo", std::nullopt}).barrier();
  });
  for (const RankEnd& end : ends) EXPECT_EQ(end.exit_code, 0) << end.error;
}

TEST(GlooFault, AMemberThatDoesNotMakeTheGroupIsATimeout) {
  expect_failures(2,
                  [](World& world) {
                    if (world.rank() == 1) raise(SIGSTOP);
                    world.group({0, 1}, {"pair", "gloo", 500ms});
                  },
                  {1, {"the ranks did not find each other over TCP", "pair [0, 1] over gloo"}});
}

// Rank 1 is there until rank 0 is gone, and makes no call over gloo.
TEST(GlooFault, AWorldThatGoesWithCallsPendingDoesNotHang) {
  enum class Under { Message, MessageWithShape, Collective };
  for (const Under under : {Under::Message, Under::MessageWithShape, Under::Collective}) {
    const auto ends = run_processes(2, [under](World& world) {
      const Group pair = world.group({0, 1}, {"pair", "gloo", std::nullopt});
      pair.barrier();
      world.group().barrier();
      if (world.rank() == 1) {
        EXPECT_THROW(while (true) world.group().barrier(), CommError);
        return;
      }
      switch (under) {
        case Under::Message:
          return void(pair.recv_async(at::ones({4}), 1));
        case Under::MessageWithShape:
          return void(pair.recv_with_shape_async(1));
        case Under::Collective:
          return void(pair.all_reduce_async(at::ones({4}), ReduceOp::Sum));
      }
    });
    for (const RankEnd& end : ends) EXPECT_EQ(end.exit_code, 0) << end.error << end.signal;
  }
}

TEST(GlooFault, AnAbortEndsMessagesUnderWay) {
  run_ranks(2,
            [](World& world) {
              const Group group = world.group();
              group.barrier();
              if (world.rank() == 0) {
                const Pending pending = group.recv_async(at::ones({4}), 1);
                group.abort("enough");
                try {
                  pending.wait();
                  ADD_FAILURE() << "nothing was thrown";
                } catch (const CommError& error) {
                  EXPECT_EQ(error.sentence(), "enough");
                }
              }
              world.group({0, 1}, {"end", "shm", std::nullopt}).barrier();
            },
            {"gloo", std::nullopt});
}

}  // namespace fault_test
}  // namespace tegula
