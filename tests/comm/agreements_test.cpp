// What ranks have to agree on though nobody has told them.
#include "tegula/comm/agreements.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tegula/base/error.h"
#include "tests/comm/ranks.h"

namespace tegula {
namespace agreements_test {

using inner::comm::agree;

void sum(const Group& group) { group.all_reduce(at::ones({4}), ReduceOp::Sum); }

class Agreement : public testing::TestWithParam<Way> {};

TEST_P(Agreement, EqualNotesAreHarmless) {
  run_in(GetParam(), 3, [](World& world) {
    for (std::uint64_t i = 0; i < 5; ++i) {
      agree(world, {0, 1, 2}, i, "a plain operand of aten::add.Tensor");
      sum(world.group());
      world.group().all_reduce_async(at::ones({4}), ReduceOp::Sum).wait();
    }
  });
}

TEST_P(Agreement, ADifferenceIsAnErrorOnAllRanksThatNamesIt) {
  run_in(GetParam(), 3, [](World& world) {
    sum(world.group());
    agree(world, {0, 1, 2}, 1, "something else");
    sum(world.group());
    agree(world, {0, 1, 2}, world.rank() == 1 ? 7 : 5, "a plain operand of aten::add.Tensor");
    const std::string error = error_of([&] { sum(world.group()); });
    require(error.find("ranks have different values") != std::string::npos &&
                error.find("a plain operand of aten::add.Tensor") != std::string::npos &&
                error.find("something else") == std::string::npos &&
                error.find("rank 1 differs from rank 0") != std::string::npos,
            error);
  });
}

TEST_P(Agreement, IsAmongTheRanksThatTakePart) {
  run_in(GetParam(), 4, [](World& world) {
    const std::int64_t first = world.rank() / 2 * 2;
    agree(world, {first, first + 1}, static_cast<std::uint64_t>(first), "each pair its own");
    sum(world.group({static_cast<int>(first), static_cast<int>(first) + 1}));
    sum(world.group());
    if (world.rank() < 2) agree(world, {0, 1}, 3, "one pair alone");
    sum(world.group());
  });
}

INSTANTIATE_TEST_SUITE_P(Ways, Agreement,
                         testing::Values(Way::Threads, Way::Processes, Way::GlooThreads),
                         testing::PrintToStringParamName());

}  // namespace agreements_test
}  // namespace tegula
