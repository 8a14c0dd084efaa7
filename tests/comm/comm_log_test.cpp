#include "tegula/comm/comm_log.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "tegula/base/error.h"

namespace tegula {
namespace comm_log_test {

TEST(CommLog, ListsEveryKindOfCall) {
  run_ranks(2, [](World& world) {
    const Group group = world.group(world.mesh({{"tp", 2}}), "tp");
    const at::Tensor x = at::ones({4, 2});
    const int other = 1 - world.rank();
    CommLog log(world);
    group.all_reduce(x, ReduceOp::Sum);
    group.all_reduce_(x, ReduceOp::Max);
    group.all_gather(x, 0);
    group.reduce_scatter(x, 0, ReduceOp::Sum);
    group.all_to_all(x, 0, 1);
    group.broadcast(x, 0);
    group.broadcast_(x, 1);
    group.scatter(at::empty({2, 2}), x, 0, 0);
    group.gather(x, 0, 0);
    group.permute(x, {1, 0});
    if (world.rank() == 0) group.send(x, other);
    if (world.rank() == 1) group.recv(x, other);
    group.barrier();
    const std::string scattered = world.rank() == 0 ? "32 bytes\n" : "0 bytes\n";
    const std::string message = world.rank() == 0 ? "send" : "recv";
    EXPECT_EQ(log.to_string(),
              "all-reduce sum over tp (2 ranks): 32 bytes\n"
              "all-reduce max over tp (2 ranks): 32 bytes\n"
              "all-gather over tp (2 ranks): 32 bytes\n"
              "reduce-scatter sum over tp (2 ranks): 32 bytes\n"
              "all-to-all over tp (2 ranks): 32 bytes\n"
              "broadcast over tp (2 ranks): 32 bytes\n"
              "broadcast over tp (2 ranks): 32 bytes\n"
              "scatter over tp (2 ranks): " +
                  scattered +
                  "gather over tp (2 ranks): 32 bytes\n"
                  "permute over tp (2 ranks): 32 bytes\n" +
                  message +
                  " over tp (2 ranks): 32 bytes\n"
                  "barrier over tp (2 ranks): 0 bytes");
  });
}

TEST(CommLog, ListsWhatIsOnlyStarted) {
  run_ranks(2, [](World& world) {
    const Group group = world.group();
    const at::Tensor x = at::ones({256, 2});
    CommLog log(world);
    const Pending sum = group.all_reduce_async(x, ReduceOp::Sum);
    const Pending message =
        world.rank() == 0 ? group.send_async(x, 1) : group.recv_async(at::empty({256, 2}), 0);
    ASSERT_EQ(log.size(), 2U);
    EXPECT_EQ(log.entries()[0].kind, CommKind::AllReduce);
    EXPECT_EQ(log.entries()[1].kind, world.rank() == 0 ? CommKind::Send : CommKind::Recv);
    EXPECT_EQ(log.seconds(), 0);
    sum.wait();
    message.wait();
    EXPECT_GT(log.entries()[0].seconds, 0);
    EXPECT_GT(log.entries()[1].seconds, 0);
    EXPECT_EQ(log.bytes(), 2 * 2048);
  });
}

TEST(CommLog, CountsTheTimeThatARankWaitsForAnother) {
  run_ranks(2, [](World& world) {
    const Group group = world.group();
    group.barrier();
    CommLog log(world);
    if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    group.all_reduce(at::ones({1}), ReduceOp::Sum);
    if (world.rank() == 0) {
      EXPECT_GT(log.seconds(), 0.02);
    }
    EXPECT_LT(log.seconds(), 20);
  });
}

TEST(CommLog, NamesAxesByThemselvesAndFlattenedOnesByBoth) {
  run_ranks(4, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"dp", 2}, {"tp", 2}});
    CommLog log(world);
    world.group(mesh, "dp").barrier();
    world.group(mesh["tp"], "tp").barrier();
    world.group(mesh.flatten(), "dp_tp").barrier();
    world.group().barrier();
    world.group({0, 1, 2, 3}, {"all of us", "", std::nullopt}).barrier();
    std::vector<std::pair<std::string, int>> groups;
    for (const CommEntry& entry : log.entries()) groups.emplace_back(entry.axis, entry.ranks);
    EXPECT_EQ(groups, (std::vector<std::pair<std::string, int>>{
                          {"dp", 2}, {"tp", 2}, {"dp_tp", 4}, {"world", 4}, {"all of us", 4}}));
  });
}

TEST(CommLog, TheInnermostLabelSaysWhatACallIsFor) {
  const World world = World::alone();
  const Group group = world.group();
  const at::Tensor x = at::ones({1}, at::kByte);
  CommLog log(world);
  {
    const CommLabel outer("aten::addmm");
    {
      const CommLabel inner("aten::add.Tensor");
      group.all_reduce(x, ReduceOp::Sum);
      std::thread([&] { group.all_gather(x, 0); }).join();
    }
    group.barrier();
  }
  group.barrier();
  EXPECT_EQ(log.to_string(),
            "all-reduce sum over world (1 rank): 1 byte, for aten::add.Tensor\n"
            "all-gather over world (1 rank): 1 byte\n"
            "barrier over world (1 rank): 0 bytes, for aten::addmm\n"
            "barrier over world (1 rank): 0 bytes");
}

TEST(CommLog, ALabelMayReachOverInnerOnes) {
  const World world = World::alone();
  const Group group = world.group();
  CommLog log(world);
  {
    const CommLabel outer("a block");
    const CommLabel whole("aten::_softmax", CommLabel::Reach::OverInnerLabels);
    const CommLabel inner("aten::amax");
    const CommLabel innermost("aten::exp");
    group.barrier();
  }
  const CommLabel after("aten::add.Tensor");
  group.barrier();
  EXPECT_EQ(log.to_string(),
            "barrier over world (1 rank): 0 bytes, for aten::_softmax\n"
            "barrier over world (1 rank): 0 bytes, for aten::add.Tensor");
}

TEST(CommLog, PrintsBytesInThousands) {
  CommEntry entry{CommKind::AllReduce, "tp", 2, 2048, ReduceOp::Sum, "aten::add.Tensor", 0};
  EXPECT_EQ(to_string(entry),
            "all-reduce sum over tp (2 ranks): 2,048 bytes, for aten::add.Tensor");
  entry.bytes = 999;
  EXPECT_NE(to_string(entry).find(" 999 bytes"), std::string::npos);
  entry.bytes = 1234567890;
  EXPECT_NE(to_string(entry).find(" 1,234,567,890 bytes"), std::string::npos);
}

TEST(CommLog, SummarisesByOpAndWay) {
  const World world = World::fake(4);
  const Group group = world.group(world.mesh({{"tp", 4}}), "tp");
  const at::Tensor x = at::empty({512}, at::device(at::kMeta));
  CommLog log(world);
  for (int step = 0; step < 3; ++step) {
    const CommLabel label("aten::mm");
    group.all_reduce(x, ReduceOp::Sum);
    group.all_reduce_coalesced({x, x}, ReduceOp::Sum);
    if (step == 0) group.all_gather(x, 0);
  }
  group.all_gather(x, 0);
  const std::vector<CommTotal> totals = log.totals();
  ASSERT_EQ(totals.size(), 3U);
  EXPECT_EQ(totals[0].calls, 6);
  EXPECT_EQ(totals[0].entry.bytes, 9 * 2048);
  EXPECT_EQ(totals[0].entry.tensors, 9);
  std::string table = log.summary();
  EXPECT_EQ(table.substr(0, table.find('\n')),
            "op        call            axis  calls   bytes  seconds");
  EXPECT_NE(table.find("aten::mm  all-reduce sum  tp        6  18,432   0.0"), std::string::npos)
      << table;
  EXPECT_NE(table.find("aten::mm  all-gather      tp        1   2,048   0.0"), std::string::npos);
  EXPECT_NE(table.find("-         all-gather      tp        1   2,048   0.0"), std::string::npos);
}

TEST(GatherReport, ListsTheOperatorsThatGatheredWhenTheWorldEnds) {
  const auto report_of = [](const char* value, int rank) {
    setenv("TEGULA_REPORT", value, 1);
    testing::internal::CaptureStderr();
    {
      const World world = World::fake(4, rank);
      const Group group = world.group(world.mesh({{"tp", 4}}), "tp");
      const at::Tensor x = at::empty({512}, at::device(at::kMeta));
      for (const char* op : {"aten::kthvalue", "aten::kthvalue", "aten::sort", "redistribute"}) {
        const CommLabel label(op);
        group.all_gather(x, 0);
        group.all_reduce(x, ReduceOp::Sum);
      }
      group.all_gather(x, 0);
    }
    unsetenv("TEGULA_REPORT");
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(report_of("1", 0),
            "tegula: operators that gathered their operands, with the bytes that rank 0 gave\n"
            "op              axis  calls  bytes\n"
            "aten::kthvalue  tp        2  4,096\n"
            "aten::sort      tp        1  2,048\n");
  EXPECT_EQ(report_of("1", 1), "");
  EXPECT_EQ(report_of("0", 0), "");
  EXPECT_EQ(report_of("", 0), "");
}

TEST(GatherReport, SaysSoIfNothingGathered) {
  setenv("TEGULA_REPORT", "1", 1);
  testing::internal::CaptureStderr();
  World::alone().group().barrier();
  unsetenv("TEGULA_REPORT");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "tegula: no operator gathered its operands\n");
}

TEST(CommLog, EachOfSeveralListsWhatIsCalledWhileItStands) {
  const World world = World::alone();
  const Group group = world.group();
  CommLog outer(world);
  group.barrier();
  {
    CommLog inner(world);
    group.barrier();
    EXPECT_EQ(inner.size(), 1U);
    EXPECT_EQ(outer.size(), 2U);
    outer.clear();
    EXPECT_TRUE(outer.empty());
    EXPECT_EQ(inner.size(), 1U);
  }
  group.barrier();
  EXPECT_EQ(outer.size(), 1U);
}

TEST(CommLog, KeepsNothingOfOtherTimesOrWorldsOrOfRefusedCalls) {
  const World world = World::alone();
  const World other = World::alone();
  const Group group = world.group();
  const Pending before = group.all_reduce_async(at::ones({1}), ReduceOp::Sum);
  CommLog log(world);
  before.wait();
  other.group().barrier();
  EXPECT_THROW(group.all_gather(at::ones({1}), 3), UsageError);
  EXPECT_TRUE(log.empty());
  EXPECT_EQ(log.to_string(), "");
  EXPECT_EQ(log.seconds(), 0);
}

TEST(CommLog, AnImaginedWorldTellsWhatWouldBeSent) {
  const World world = World::fake(1024, 3);
  CommLog log(world);
  world.group(world.mesh({{"dp", 16}, {"tp", 64}}), "tp")
      .all_reduce(at::empty({1024}, at::device(at::kMeta)), ReduceOp::Avg);
  EXPECT_EQ(log.to_string(), "all-reduce avg over tp (64 ranks): 4,096 bytes");
}

TEST(CommLog, MayStandInAnyThreadWhileOthersCall) {
  const World world = World::fake(2);
  const Group group = world.group();
  CommLog all(world);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (int call = 0; call < 200; ++call) {
        CommLog log(world);
        group.barrier();
        EXPECT_GE(log.size(), 1U);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(all.size(), 800U);
}

}  // namespace comm_log_test
}  // namespace tegula
