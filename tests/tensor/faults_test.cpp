// Ranks that disagree or fail: every rank learns of it, with the facts.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <latch>

#include "tegula/tensor/factories.h"
#include "tests/tensor/as_plain.h"

namespace tegula {
namespace faults_test {

// Each rank runs the body; each must throw, with these words. They are not those of a rank that
// waited in vain.
void expect_all_throw(int ranks, const std::function<void(World&)>& body,
                      const std::vector<std::string>& words) {
  std::vector<std::string> texts(static_cast<std::size_t>(ranks));
  run_impatient(ranks, [&](World& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    texts[rank] = error_of([&] { body(world); });
  });
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    for (const std::string& word : words) {
      EXPECT_TRUE(contains(texts[rank], word)) << "rank " << rank << ": " << texts[rank];
    }
    EXPECT_FALSE(contains(texts[rank], "did not come within")) << texts[rank];
  }
}

TEST(Disagreement, RanksThatGatherDifferentShapesAllThrowAtOnce) {
  expect_all_throw(3,
                   [](World& world) {
                     const DeviceMesh mesh = usual_mesh(world);
                     const std::int64_t size = world.rank() == 1 ? 12 : 6;
                     full_tensor(ones({size}, mesh, {Shard(0)}));
                   },
                   {"all_gather", "f32[6]", "f32[12]"});
}

TEST(Disagreement, RanksThatCallDifferentCollectivesAllThrowAtOnce) {
  expect_all_throw(2,
                   [](World& world) {
                     const DeviceMesh mesh = usual_mesh(world);
                     const at::Tensor x = ones({4}, mesh, {Shard(0)});
                     const at::Tensor p = from_local(at::ones({4}), mesh, {Partial()});
                     full_tensor(world.rank() == 0 ? x : p);
                   },
                   {"all_gather", "all_reduce"});
}

TEST(Failure, TheDeathOfARankIsNoticedByTheOthers) {
  std::vector<std::string> texts(3);
  std::latch have_met(3);  // a rank that is still in the first call would learn of it there
  const auto body = [&](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor x = ones({4}, mesh, {Shard(0)});
    full_tensor(x);
    have_met.arrive_and_wait();
    if (world.rank() == 1) throw std::runtime_error("I give up");
    const auto rank = static_cast<std::size_t>(world.rank());
    texts[rank] = error_of([&] { full_tensor(x.exp()); });
  };
  EXPECT_TRUE(contains(error_of([&] { run_ranks(3, body, impatient()); }), "I give up"));
  for (std::size_t rank : {0, 2}) {
    EXPECT_TRUE(contains(texts[rank], "rank 1 failed: I give up")) << texts[rank];
  }
}

TEST(Disagreement, ARankTwiceInAMeshIsRefusedOnAllRanks) {
  expect_all_throw(3, [](World& world) { world.mesh({{"a", 3}}, {0, 1, 1}); }, {"tegula:", "1"});
}

}  // namespace faults_test
}  // namespace tegula
