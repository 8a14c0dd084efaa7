// Calls on lists of tensors, where they cannot be right or ranks disagree. What they give is in
// suite.cpp.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tegula/base/error.h"
#include "tegula/comm/comm_log.h"
#include "tegula/comm/flat_layout.h"
#include "tests/comm/ranks.h"

namespace tegula::inner {
namespace coalesced_test {

using Tensors = std::vector<at::Tensor>;

// Every rank's error contains the texts.
void expect_errors(int ranks, const RankBody& body, const std::vector<std::string>& texts) {
  const std::vector<RankEnd> ends = run_processes(ranks, body, {}, 20);
  for (const RankEnd& end : ends) {
    EXPECT_EQ(end.exit_code, 1) << end.error;
    for (const std::string& text : texts) {
      EXPECT_TRUE(contains(end.error, text)) << text << " is not in:\n" << end.error;
    }
  }
}

TEST(Coalesced, ListsThatDifferThrowOnEveryRankAndNameBothCalls) {
  const Tensors common = {at::ones({4, 2}), at::ones({3}, at::kBFloat16)};
  const auto mismatch = [&](const std::function<void(const Group&)>& other,
                            const std::string& text) {
    expect_errors(3,
                  [&](World& world) {
                    if (world.rank() == 2) return other(world.group());
                    world.group().all_reduce_coalesced(common, ReduceOp::Sum);
                  },
                  {"ranks made different calls",
                   "rank 0  all_reduce_coalesced(2 tensors, f32[4, 2], bf16[3], sum), call 0",
                   "rank 2  " + text});
  };
  mismatch([](const Group& group) { group.all_reduce_coalesced({}, ReduceOp::Sum); },
           "all_reduce_coalesced(0 tensors, sum), call 0");
  mismatch(
      [](const Group& group) {
        group.all_reduce_coalesced({at::ones({2, 4}), at::ones({3}, at::kBFloat16)}, ReduceOp::Sum);
      },
      "all_reduce_coalesced(2 tensors, f32[2, 4], bf16[3], sum)");
  mismatch(
      [](const Group& group) {
        group.all_reduce_coalesced({at::ones({3}, at::kBFloat16), at::ones({4, 2})}, ReduceOp::Sum);
      },
      "all_reduce_coalesced(2 tensors, bf16[3], f32[4, 2], sum)");
  mismatch([&](const Group& group) { group.all_reduce_coalesced(common, ReduceOp::Max); },
           "all_reduce_coalesced(2 tensors, f32[4, 2], bf16[3], max)");
  mismatch([&](const Group& group) { group.all_reduce(common[0], ReduceOp::Sum); },
           "all_reduce(f32[4, 2], sum), call 0");
  mismatch(
      [](const Group& group) {
        group.all_reduce_coalesced({at::ones({900'000}), at::ones({900'000})}, ReduceOp::Sum);
      },
      "all_reduce_coalesced(2 tensors, f32[900000], f32[900000], sum)");
}

TEST(Coalesced, WhatDiffersFarDownTheListIsSeenInTheError) {
  const std::vector<RankEnd> ends = run_processes(2, [](World& world) {
    Tensors list(20, at::ones({8, 8}));
    if (world.rank() == 1) list[17] = at::ones({4, 16});
    world.group().all_reduce_coalesced(list, ReduceOp::Sum);
  });
  for (const RankEnd& end : ends) {
    const std::string text = "all_reduce_coalesced(20 tensors, f32[8, 8], f32[8, 8], ... #";
    const std::size_t first = end.error.find(text);
    ASSERT_NE(first, std::string::npos) << end.error;
    const std::size_t second = end.error.find(text, first + 1);
    ASSERT_NE(second, std::string::npos) << end.error;
    EXPECT_NE(end.error.substr(first, text.size() + 8), end.error.substr(second, text.size() + 8));
  }
}

TEST(Coalesced, ADimOrSizesThatDifferThrow) {
  EXPECT_THROW(run_ranks(2,
                         [](World& world) {
                           world.group().all_gather_coalesced({{at::ones({2, 2}), world.rank()}});
                         }),
               CommError);
  EXPECT_THROW(run_ranks(2,
                         [](World& world) {
                           const std::int64_t first = 1 + world.rank();
                           world.group().reduce_scatter_coalesced(
                               {{at::ones({3, 2}), 0, {first, 3 - first}}}, ReduceOp::Sum);
                         }),
               CommError);
}

TEST(Coalesced, AListThatOneRankRefusesThrowsOnTheOthers) {
  const std::vector<RankEnd> ends = run_processes(3, [](World& world) {
    const Group group = world.group();
    group.barrier();
    const std::int64_t dim = world.rank() == 1 ? 3 : 0;
    group.all_gather_coalesced({{at::ones({4}), 0}, {at::ones({4}), dim}});
  });
  EXPECT_TRUE(contains(ends[1].error, "there is no dim 3 in a tensor of 1 dim")) << ends[1].error;
  EXPECT_TRUE(contains(ends[1].error, "tensor 1 of 2, from 0")) << ends[1].error;
  for (std::size_t rank : {0U, 2U}) {
    EXPECT_EQ(ends[rank].exit_code, 1);
    EXPECT_TRUE(contains(ends[rank].error, "rank 1")) << ends[rank].error;
  }
}

TEST(Coalesced, WhatCannotBeRightIsRefusedAndCountsAsACall) {
  run_ranks(2, [](World& world) {
    const Group group = world.group();
    const at::Tensor x = at::ones({4});
    EXPECT_THROW(group.all_reduce_coalesced({x, at::Tensor()}, ReduceOp::Sum), UsageError);
    EXPECT_THROW(group.all_reduce_coalesced({x, at::ones({2}, at::kLong)}, ReduceOp::Avg),
                 UsageError);
    EXPECT_THROW(group.reduce_scatter_coalesced({{at::Tensor(), 0}}, ReduceOp::Sum), UsageError);
    EXPECT_THROW(group.reduce_scatter_coalesced({{at::ones({3}), 0}}, ReduceOp::Sum), UsageError);
    EXPECT_THROW(group.all_gather_coalesced({{x, 0, {1, 2}}}), UsageError);
    EXPECT_THROW(group.all_reduce_coalesced_({x, x}, ReduceOp::Sum), UsageError);
    EXPECT_THROW(group.all_reduce_coalesced_({x.slice(0, 0, 3), x.slice(0, 2)}, ReduceOp::Sum),
                 UsageError);
    EXPECT_NO_THROW(group.all_reduce_coalesced_({x.slice(0, 0, 2), x.slice(0, 2)}, ReduceOp::Sum));
    EXPECT_TRUE(at::equal(x, at::full({4}, 2.F)));
  });
}

TEST(Coalesced, AListIsOneEntryOfTheLogWithTheBytesOfAll) {
  const World world = World::fake(8, 3);
  const Group group = world.group(world.mesh({{"dp", 8}}), "dp");
  CommLog log(world);
  const at::Tensor x = at::empty({16, 2}, at::device(at::kMeta));
  const at::Tensor y = at::empty({8}, at::device(at::kMeta).dtype(at::kBFloat16));
  EXPECT_EQ(group.all_reduce_coalesced({x, y}, ReduceOp::Sum)[1].sizes(), y.sizes());
  EXPECT_EQ(group.all_gather_coalesced({{x, 1}, {y, 0}})[0].sizes(), at::IntArrayRef({16, 16}));
  EXPECT_EQ(group.reduce_scatter_coalesced_async({{x, 0}}, ReduceOp::Avg).wait()[0].sizes(),
            at::IntArrayRef({2, 2}));
  EXPECT_EQ(log.to_string(),
            "all-reduce sum over dp (8 ranks): 144 bytes in 2 tensors\n"
            "all-gather over dp (8 ranks): 144 bytes in 2 tensors\n"
            "reduce-scatter avg over dp (8 ranks): 128 bytes");
}

TEST(FlatLayout, EveryWindowMeetsTheBytesOfItsTensorsOnce) {
  comm::FlatLayout layout;
  const std::vector<std::int64_t> sizes = {5, 0, 16, 33, 0, 0, 64, 1};
  for (std::int64_t bytes : sizes) layout.add(bytes);
  EXPECT_EQ(layout.bytes() % comm::FlatLayout::kUnit, 0);
  for (std::int64_t window : {16, 32, 48, 160, 1024}) {
    std::vector<std::int64_t> met(sizes.size());
    for (std::int64_t first = 0; first < layout.bytes(); first += window) {
      layout.for_each_in(
          first, first + window,
          [&](std::size_t i, std::int64_t begin, std::int64_t end, std::int64_t offset) {
            EXPECT_EQ(begin, met[i]);
            EXPECT_LT(begin, end);
            EXPECT_GE(offset, 0);
            EXPECT_LE(offset + end - begin, window);
            met[i] = end;
          });
    }
    EXPECT_EQ(met, sizes);
  }
}

}  // namespace coalesced_test
}  // namespace tegula::inner
