#include "tegula/spec/shard_order.h"

#include <gtest/gtest.h>

#include "tests/placement/usage_error.h"
#include "tests/spec/generated.h"

namespace tegula {
namespace shard_order_test {

const Placements kThreeCuts = {Shard(0), Replicate(), Shard(2), Shard(0)};

TEST(ShardOrderLaw, EveryPermutationOfTheAxesOfADimFitsAndReadsBackEqual) {
  Random random(21);
  int reordered = 0;
  for (int i = 0; i < 2000; ++i) {
    const Placements placements =
        generated_placements(random, static_cast<std::size_t>(random.between(0, 6)), 3);
    ShardOrder order = default_shard_order(placements);
    check_shard_order(order, placements);
    for (ShardOrderEntry& entry : order) random.shuffle(entry.axes);
    check_shard_order(order, placements);
    ASSERT_EQ(parse_shard_order(to_string(order)), order) << to_string(order);
    reordered += order != default_shard_order(placements) ? 1 : 0;
  }
  EXPECT_GT(reordered, 400);
}

TEST(ShardOrder, IsTheOrderOfTheMeshByDefault) {
  EXPECT_EQ(to_string(default_shard_order(kThreeCuts)), "{0: [0, 3], 2: [2]}");
  EXPECT_EQ(to_string(default_shard_order({Replicate(), Partial()})), "{}");
  EXPECT_EQ(parse_shard_order(" { 0 : [1,0] , 2:[2] } "), (ShardOrder{{0, {1, 0}}, {2, {2}}}));
}

TEST(ShardOrder, NeedsAnEntryForEveryDimThatIsCut) {
  EXPECT_EQ(usage_error_of([] { check_shard_order({{0, {0, 3}}}, kThreeCuts); }),
            "tegula: the shard order has 1 entry where the placements cut 2 dims\n"
            "  order   {0: [0, 3]}\n"
            "  as      [S(0), R, S(2), S(0)]\n"
            "  hint    list for each cut dim, by ascending dim, exactly the axes that cut it: "
            "{0: [0, 3], 2: [2]} is the default");
}

TEST(ShardOrder, NamesTheDimsInAscendingOrder) {
  EXPECT_EQ(usage_error_of([] { check_shard_order({{2, {2}}, {0, {0, 3}}}, kThreeCuts); }),
            "tegula: the shard order names dim 2 where dim 0 is expected\n"
            "  order   {2: [2], 0: [0, 3]}\n"
            "  as      [S(0), R, S(2), S(0)]\n"
            "  hint    list for each cut dim, by ascending dim, exactly the axes that cut it: "
            "{0: [0, 3], 2: [2]} is the default");
}

TEST(ShardOrder, ListsExactlyTheAxesThatCutADim) {
  EXPECT_EQ(usage_error_of([] { check_shard_order({{0, {0, 1}}, {2, {2}}}, kThreeCuts); }),
            "tegula: the shard order of dim 0 does not list the axes that cut it\n"
            "  order   {0: [0, 1], 2: [2]}\n"
            "  as      [S(0), R, S(2), S(0)]\n"
            "  hint    list for each cut dim, by ascending dim, exactly the axes that cut it: "
            "{0: [0, 3], 2: [2]} is the default");
  const std::vector<std::vector<std::size_t>> wrong = {{},        {0},       {0, 0},
                                                       {0, 3, 3}, {0, 3, 1}, {0, SIZE_MAX}};
  for (const auto& axes : wrong) {
    EXPECT_THROW(check_shard_order({{0, axes}, {2, {2}}}, kThreeCuts), UsageError);
  }
}

TEST(ShardOrder, AMisfitSaysHowAnOrderIsWritten) {
  EXPECT_EQ(usage_error_of([] { parse_shard_order("{0 [1]}"); }),
            "tegula: cannot read a shard order: expected \":\" where \"[1]}\" stands\n"
            "  text    {0 [1]}\n"
            "  place   character 4\n"
            "  hint    write a shard order like {0: [1, 0], 2: [2]}");
  for (const char* text : {"", "{", "}", "{0}", "{0: 1}", "{0: [1]", "{0: [-1]}", "{0: [1],}",
                           "{0: [1]} x", "{99999999999999999999: [0]}"}) {
    EXPECT_THROW(parse_shard_order(text), UsageError) << text;
  }
}

}  // namespace shard_order_test
}  // namespace tegula
