// Cross entropy where the vocabulary is cut: as on one rank, and the logits stay where they are.
#include "tegula/parallel/losses.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tegula/comm/comm_log.h"
#include "tests/tensor/as_plain.h"
#include "tests/tensor/environment_variable.h"

namespace tegula {
namespace losses_test {

// The last axis cuts the classes, the first, if it is another, the rows; the weight is replicated.
Way cut_classes(const DeviceMesh& mesh, const Tensors& inputs) {
  Way way;
  for (const at::Tensor& input : inputs) {
    const bool is_weight = input.dim() == 1 && input.is_floating_point();
    Placements placements(mesh.ndim(), Replicate());
    if (mesh.ndim() > 1 && !is_weight) placements.front() = Shard(0);
    if (input.dim() > 1 && input.is_floating_point()) placements.back() = Shard(1);
    way.push_back(placements);
  }
  return way;
}

const AsPlain kCutClasses{
    .draws = 0,
    .partial = false,
    .ways = [](const DeviceMesh& mesh, const Tensors& inputs) -> std::vector<Way> {
      return {cut_classes(mesh, inputs)};
    }};

at::Tensor classes(at::IntArrayRef shape, std::int64_t count) {
  return (numbers(shape, 9) * 50).abs().to(at::kLong).remainder(count);
}

// By the definition, of plain operations.
at::Tensor by_definition(const at::Tensor& logits, const at::Tensor& target,
                         const CrossEntropyOptions& options) {
  const at::Tensor loss = at::cross_entropy_loss(logits, target, options.weight, options.reduction,
                                                 options.ignore_index, options.label_smoothing);
  const at::Tensor is_counted = target.is_floating_point() ? at::ones({logits.size(0)}, at::kBool)
                                                           : target.ne(options.ignore_index);
  const at::Tensor squares =
      at::where(is_counted, logits.exp().sum(1).log().square(), at::zeros({}, at::kDouble));
  if (options.reduction == at::Reduction::None) return loss + options.z_loss * squares;
  const at::Tensor sum = options.z_loss * squares.sum();
  return loss + (options.reduction == at::Reduction::Sum ? sum : sum / is_counted.sum());
}

std::vector<CrossEntropyOptions> all_options(const at::Tensor& weight) {
  std::vector<CrossEntropyOptions> all;
  for (const auto reduction : {at::Reduction::None, at::Reduction::Mean, at::Reduction::Sum}) {
    all.push_back({.reduction = reduction, .z_loss = 0.1});
    all.push_back({.weight = weight, .reduction = reduction, .ignore_index = 3});
    all.push_back(
        {.weight = weight, .reduction = reduction, .label_smoothing = 0.2, .z_loss = 0.3});
  }
  return all;
}

TEST(CrossEntropy, WithTheVocabularyCutIsThatOfOneRank) {
  const at::Tensor weight = numbers({11}, 3).abs() + 0.1;
  for (const std::int64_t rows : {7, 1}) {
    for (const CrossEntropyOptions& options : all_options(weight)) {
      const Program program = [&](const Tensors& x) {
        CrossEntropyOptions here = options;
        if (here.weight) here.weight = x[2];
        return Tensors{cross_entropy(x[0], x[1], here)};
      };
      expect_as_plain({leaf({rows, 11}), classes({rows}, 11), weight}, program, kCutClasses);
      if (options.ignore_index >= 0) continue;  // of classes only
      expect_as_plain(
          {leaf({rows, 11}), numbers({rows, 11}, 5).softmax(1).set_requires_grad(true), weight},
          program, kCutClasses);
    }
  }
}

TEST(CrossEntropy, HasAZLossByDefinition) {
  const at::Tensor logits = numbers({7, 5}), target = classes({7}, 5);
  for (const CrossEntropyOptions& options : all_options(numbers({5}, 3).abs() + 0.1)) {
    EXPECT_EQ(
        difference(cross_entropy(logits, target, options), by_definition(logits, target, options)),
        "");
    if (options.ignore_index == 3) continue;
    const at::Tensor soft = numbers({7, 5}, 4).softmax(1);
    EXPECT_EQ(
        difference(cross_entropy(logits, soft, options), by_definition(logits, soft, options)), "");
  }
}

TEST(CrossEntropy, OfAnyPlacementsIsThatOfOneRank) {
  expect_as_plain({leaf({5, 7}), classes({5}, 7), numbers({7}, 3).abs() + 0.1},
                  [](const Tensors& x) {
                    return Tensors{cross_entropy(
                        x[0], x[1], {.weight = x[2], .label_smoothing = 0.1, .z_loss = 0.2})};
                  },
                  {.draws = 4, .partial = false});
}

// Three classes on two or four ranks: some have none.
TEST(CrossEntropy, TakesAVocabularyOfWhichSomeRanksHaveNothing) {
  for (const std::int64_t count : {1, 3}) {
    expect_as_plain(
        {leaf({4, count}), classes({4}, count)},
        [](const Tensors& x) { return Tensors{cross_entropy(x[0], x[1], {.z_loss = 0.1})}; },
        kCutClasses);
  }
}

TEST(CrossEntropy, OfPointsOfImagesAndSequencesIsThatOfOneRank) {
  const at::Tensor weight = numbers({5}, 3).abs() + 0.1;
  for (const auto reduction : {at::Reduction::None, at::Reduction::Mean, at::Reduction::Sum}) {
    const Program program = [&](const Tensors& x) {
      return Tensors{
          cross_entropy(x[0], x[1], {.reduction = reduction, .z_loss = 0.1}),
          cross_entropy(x[0], x[1], {.weight = x[2], .reduction = reduction, .ignore_index = 2})};
    };
    expect_as_plain({leaf({3, 5, 4}), classes({3, 4}, 5), weight}, program, kCutClasses);
    expect_as_plain({leaf({3, 5, 2, 3}), classes({3, 2, 3}, 5), weight}, program, kCutClasses);
  }
}

TEST(CrossEntropy, SendsAFewNumbersPerRow) {
  const EnvironmentVariable unchecked("TEGULA_CHECK", "0");
  constexpr std::int64_t kRows = 16, kVocabulary = 1001;
  run_impatient(4, [&](World& world) {
    const DeviceMesh mesh = world.mesh({{"dp", 2}, {"tp", 2}});
    const at::Tensor weight =
        distribute_tensor(numbers({kVocabulary}, 3).abs(), mesh, {Replicate(), Replicate()});
    const at::Tensor target =
        distribute_tensor(classes({kRows}, kVocabulary), mesh, {Shard(0), Replicate()});
    const at::Tensor soft =
        distribute_tensor(numbers({kRows, kVocabulary}, 5).softmax(1), mesh, {Shard(0), Shard(1)});
    for (const CrossEntropyOptions& options : all_options(weight)) {
      for (const at::Tensor& wanted : {target, soft}) {
        if (wanted.is_floating_point() && options.ignore_index >= 0) continue;
        const at::Tensor logits =
            distribute_tensor(leaf({kRows, kVocabulary}), mesh, {Shard(0), Shard(1)});
        const CommLog log(world);
        cross_entropy(logits, wanted, options).sum().backward();
        // this rank has half of the rows
        EXPECT_LT(log.bytes(), 16 * kRows / 2 * 8) << log.to_string();
        EXPECT_EQ(to_string(placements_of(logits.grad())), "[S(0), S(1)]");
      }
    }
  });
}

TEST(CrossEntropy, OfImagesSendsAFewNumbersPerPoint) {
  const EnvironmentVariable unchecked("TEGULA_CHECK", "0");
  run_impatient(2, [&](World& world) {
    const DeviceMesh mesh = world.mesh({{"tp", 2}});
    const at::Tensor logits = distribute_tensor(leaf({2, 400, 4}), mesh, {Shard(1)});
    const at::Tensor target = distribute_tensor(classes({2, 4}, 400), mesh, {Replicate()});
    const CommLog log(world);
    cross_entropy(logits, target).backward();
    EXPECT_LT(log.bytes(), 16 * 8 * 8) << log.to_string();
  });
}

TEST(CrossEntropy, RefusesANegativeZLoss) {
  const std::string text =
      error_of([] { cross_entropy(numbers({2, 3}), classes({2}, 3), {.z_loss = -1}); });
  EXPECT_TRUE(contains(text, "a z-loss cannot have a negative weight")) << text;
}

}  // namespace losses_test
}  // namespace tegula
