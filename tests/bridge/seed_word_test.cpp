#include "tegula/bridge/seed_word.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <stdexcept>

namespace tegula::inner {
namespace seed_word_test {

at::Generator generator() { return at::detail::getDefaultCPUGenerator(); }

TEST(SeedWord, IsTheSeedOfTheDefaultGenerator) {
  at::manual_seed(17);
  EXPECT_EQ(SeedWord().value(), 17U);
  const std::uint64_t word = ~std::uint64_t{0} - 3;
  SeedWord().set(word);
  EXPECT_EQ(generator().current_seed(), word);
}

TEST(SeedWord, LeavesPlainDrawsAlone) {
  // an odd number of normal samples leaves one behind for the next draw
  for (const std::int64_t before : {0, 3, 1000}) {
    at::manual_seed(17);
    at::randn({before}, at::kDouble);
    const at::Tensor state = generator().get_state();
    const at::Tensor want = at::cat({at::randn({5}, at::kDouble), at::rand({900}, at::kDouble)});
    generator().set_state(state);
    SeedWord().set(99);
    const at::Tensor got = at::cat({at::randn({5}, at::kDouble), at::rand({900}, at::kDouble)});
    EXPECT_TRUE(at::equal(got, want)) << before;
    EXPECT_EQ(SeedWord().value(), 99U);
  }
}

TEST(SeedWord, IsPartOfTheGeneratorsState) {
  SeedWord().set(99);
  const at::Tensor state = generator().get_state();
  at::manual_seed(17);
  generator().set_state(state);
  EXPECT_EQ(SeedWord().value(), 99U);
}

TEST(SeedWord, ComesBackWhenTheGeneratorWasLent) {
  const at::Generator other = at::detail::createCPUGenerator(5);
  const at::Tensor want = at::rand({4}, at::detail::createCPUGenerator(5));
  at::manual_seed(17);
  const at::Tensor state = generator().get_state();
  run_with_default(other, at::kCPU, [&] { EXPECT_TRUE(at::equal(at::rand({4}), want)); });
  EXPECT_TRUE(at::equal(generator().get_state(), state));
  EXPECT_THROW(run_with_default(other, at::kCPU, [] { throw std::runtime_error("no"); }),
               std::runtime_error);
  EXPECT_TRUE(at::equal(generator().get_state(), state));
}

}  // namespace seed_word_test
}  // namespace tegula::inner
