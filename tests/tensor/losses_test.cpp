// Losses, and normalization over cut dims: the same as on plain tensors, by totals.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "tests/tensor/as_plain.h"
#include "tests/tensor/little_communication.h"

namespace tegula {
namespace losses_test {

const std::vector<std::int64_t> kReductions = {at::Reduction::None, at::Reduction::Mean,
                                               at::Reduction::Sum};

at::Tensor classes(at::IntArrayRef shape, std::int64_t count) {
  return (numbers(shape, 9) * 5).abs().to(at::kLong).remainder(count);
}

at::Tensor signs(at::IntArrayRef shape) { return numbers(shape, 8).sign(); }

at::Tensor probabilities(at::IntArrayRef shape, std::uint64_t seed) {
  return numbers(shape, seed).sigmoid();
}

using Losses = std::vector<std::pair<std::string, std::pair<Tensors, Program>>>;

// Every loss of torch.nn.functional.
Losses losses(std::int64_t rows, std::int64_t columns, std::int64_t reduction) {
  const at::Tensor x = leaf({rows, columns});
  const at::Tensor y = leaf({rows, columns}, 2);
  const at::Tensor row = leaf({rows}, 4);
  const at::Tensor weight = numbers({columns}, 3).abs() + 0.1;
  const at::Tensor wanted = classes({rows}, columns);
  const at::Tensor chance = probabilities({rows, columns}, 5).set_requires_grad(true);
  const at::Tensor other = probabilities({rows, columns}, 6);
  const auto r = reduction;
  return {
      {"l1", {{x, y}, [r](const Tensors& t) { return Tensors{at::l1_loss(t[0], t[1], r)}; }}},
      {"mse", {{x, y}, [r](const Tensors& t) { return Tensors{at::mse_loss(t[0], t[1], r)}; }}},
      {"smooth_l1",
       {{x, y}, [r](const Tensors& t) { return Tensors{at::smooth_l1_loss(t[0], t[1], r)}; }}},
      {"huber",
       {{x, y}, [r](const Tensors& t) { return Tensors{at::huber_loss(t[0], t[1], r, 0.5)}; }}},
      {"soft_margin",
       {{x, signs({rows, columns})},
        [r](const Tensors& t) { return Tensors{at::soft_margin_loss(t[0], t[1], r)}; }}},
      {"binary_cross_entropy",
       {{chance, other, weight},
        [r](const Tensors& t) {
          return Tensors{at::binary_cross_entropy(t[0], t[1], {}, r),
                         at::binary_cross_entropy(t[0], t[1], t[2], r)};
        }}},
      {"binary_cross_entropy_with_logits",
       {{x, other, weight},
        [r](const Tensors& t) {
          return Tensors{at::binary_cross_entropy_with_logits(t[0], t[1], {}, {}, r),
                         at::binary_cross_entropy_with_logits(t[0], t[1], t[2], t[2] + 1, r)};
        }}},
      {"kl_div",
       {{x, other},
        [r](const Tensors& t) {
          return Tensors{at::kl_div(t[0], t[1], r), at::kl_div(t[0], t[1], r, true)};
        }}},
      {"poisson_nll",
       {{x, other},
        [r](const Tensors& t) {
          return Tensors{at::poisson_nll_loss(t[0], t[1], true, true, 1e-8, r)};
        }}},
      {"hinge_embedding",
       {{x, signs({rows, columns})},
        [r](const Tensors& t) { return Tensors{at::hinge_embedding_loss(t[0], t[1], 1, r)}; }}},
      {"cosine_embedding",
       {{x, y, signs({rows})},
        [r](const Tensors& t) {
          return Tensors{at::cosine_embedding_loss(t[0], t[1], t[2], 0.1, r)};
        }}},
      {"margin_ranking",
       {{row, leaf({rows}, 6), signs({rows})},
        [r](const Tensors& t) {
          return Tensors{at::margin_ranking_loss(t[0], t[1], t[2], 0.1, r)};
        }}},
      {"triplet_margin",
       {{x, y, leaf({rows, columns}, 7)},
        [r](const Tensors& t) {
          return Tensors{at::triplet_margin_loss(t[0], t[1], t[2], 1, 2, 1e-6, false, r)};
        }}},
      {"multi_margin",
       {{x, wanted, weight},
        [r](const Tensors& t) {
          return Tensors{at::multi_margin_loss(t[0], t[1], 1, 1, {}, r),
                         at::multi_margin_loss(t[0], t[1], 2, 0.5, t[2], r)};
        }}},
      {"multilabel_margin",
       {{x, classes({rows, columns}, columns + 1) - 1},
        [r](const Tensors& t) { return Tensors{at::multilabel_margin_loss(t[0], t[1], r)}; }}},
      {"cross_entropy",
       {{x, wanted, weight},
        [r](const Tensors& t) {
          return Tensors{at::cross_entropy_loss(t[0], t[1], {}, r),
                         at::cross_entropy_loss(t[0], t[1], t[2], r, 1),
                         at::cross_entropy_loss(t[0], t[1], t[2], r, -100, 0.1)};
        }}},
      {"cross_entropy of probabilities",
       {{x, other, weight},
        [r](const Tensors& t) {
          return Tensors{at::cross_entropy_loss(t[0], t[1], t[2], r, -100, 0.1)};
        }}},
  };
}

TEST(Losses, AreWhatPlainTensorsGive) {
  for (const std::int64_t reduction : kReductions) {
    for (const auto& [name, loss] : losses(7, 5, reduction)) {
      SCOPED_TRACE(name);
      expect_as_plain(loss.first, loss.second, {.draws = 2, .partial = false});
    }
  }
}

// Not all of them: where classes are cut, rows are re-cut (multi_margin); gradients that libtorch
// composes write to replicated tensors, or expand what is owed before it is paid.
TEST(Losses, SendTotalsOnly) {
  const std::set<std::string> more = {"binary_cross_entropy_with_logits", "cosine_embedding",
                                      "multi_margin", "multilabel_margin"};
  for (const auto& [name, loss] : losses(64, 48, at::Reduction::Mean)) {
    if (!more.contains(name)) expect_little_communication(name, loss.first, loss.second);
  }
}

TEST(Losses, OfImagesAreWhatPlainTensorsGive) {
  for (const std::int64_t reduction : kReductions) {
    expect_as_plain({leaf({3, 5, 4, 2}), classes({3, 4, 2}, 5), numbers({5}, 3).abs()},
                    [&](const Tensors& x) -> Tensors {
                      return {at::cross_entropy_loss(x[0], x[1], {}, reduction),
                              at::cross_entropy_loss(x[0], x[1], x[2], reduction, 2)};
                    },
                    {.draws = 3, .partial = false});
  }
}

TEST(Losses, OfSequencesAreWhatPlainTensorsGive) {
  const std::vector<std::int64_t> times = {6, 5, 6, 4, 6};
  const std::vector<std::int64_t> lengths = {2, 3, 1, 2, 0};
  const at::Tensor rows = classes({5, 3}, 3) + 1;
  const at::Tensor joined = classes({8}, 3) + 1;
  for (const std::int64_t reduction : kReductions) {
    expect_as_plain({leaf({6, 5, 4}), rows, joined},
                    [&](const Tensors& x) -> Tensors {
                      const at::Tensor log_probs = x[0].log_softmax(2);
                      return {at::ctc_loss(log_probs, x[1], times, lengths, 0, reduction),
                              at::ctc_loss(log_probs, x[2], times, lengths, 0, reduction, true)};
                    },
                    {.draws = 3, .partial = false});
  }
}

// Normalization -----------------------------------------------------------------------------------

TEST(Normalization, OverCutDimsIsWhatPlainTensorsGive) {
  expect_as_plain({leaf({5, 4, 6}), leaf({6}, 2), leaf({6}, 3)}, [](const Tensors& x) -> Tensors {
    return {at::layer_norm(x[0], {6}, x[1], x[2]), at::layer_norm(x[0], {4, 6})};
  });
  expect_as_plain({leaf({7}), leaf({7}, 2), leaf({7}, 3)}, [](const Tensors& x) -> Tensors {
    return {at::layer_norm(x[0], {7}, x[1], x[2])};
  });
  expect_as_plain({leaf({5, 4, 6}), leaf({6}, 2)}, [](const Tensors& x) -> Tensors {
    return {at::rms_norm(x[0], {6}, x[1]), at::rms_norm(x[0], {4, 6})};
  });
  expect_as_plain({leaf({3, 8, 4, 5}), leaf({8}, 2), leaf({8}, 3)},
                  [](const Tensors& x) -> Tensors {
                    return {at::group_norm(x[0], 4, x[1], x[2]), at::group_norm(x[0], 1),
                            at::group_norm(x[0], 8, x[1])};
                  });
}

TEST(Normalization, SoftmaxTakesShardsOfInfinitiesAndLargeNumbers) {
  const double infinity = std::numeric_limits<double>::infinity();
  const at::Tensor masked = numbers({4, 6});
  masked.narrow(0, 0, 2).narrow(1, 0, 3).fill_(-infinity);  // some rows have the others
  masked.select(0, 3).fill_(-infinity);                     // and some have nothing
  const at::Tensor odd = numbers({4, 6}, 2) + 1e12;
  odd[0][1] = infinity;
  odd[1][5] = std::numeric_limits<double>::quiet_NaN();
  AsPlain owing_nothing;
  owing_nothing.partial = false;  // infinities do not add up
  for (const at::Tensor& x : {masked, odd}) {
    expect_as_plain(
        {x.detach().requires_grad_()},
        [](const Tensors& t) {
          return Tensors{at::softmax(t[0], 1), at::log_softmax(t[0], 1), at::softmax(t[0], 0)};
        },
        owing_nothing);
  }
}

TEST(Normalization, SendsTotalsOnly) {
  expect_little_communication(
      "layer_norm", {leaf({64, 96}), leaf({96}, 2), leaf({96}, 3)},
      [](const Tensors& x) { return Tensors{at::layer_norm(x[0], {96}, x[1], x[2])}; });
  expect_little_communication(
      "group_norm", {leaf({4, 16, 8, 16}), leaf({16}, 2), leaf({16}, 3)},
      [](const Tensors& x) { return Tensors{at::group_norm(x[0], 4, x[1], x[2])}; },
      /*first_dim=*/1);
}

}  // namespace losses_test
}  // namespace tegula
