// One matrix that is cut, and lookups, chunks, histograms and sequences whose operands are.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tegula/comm/comm_log.h"
#include "tests/tensor/as_plain.h"

namespace tegula {
namespace factorizations_test {

at::Tensor plain_matrix(std::int64_t rows, std::int64_t columns) {
  return numbers({rows, columns}) + 3 * at::eye(rows, columns, at::kDouble);
}

at::Tensor positive_definite(const at::Tensor& matrix) {
  return matrix.matmul(matrix.mH()) + at::eye(matrix.size(0), matrix.options());
}

AsPlain without_debts() {
  AsPlain options;
  options.partial = false;
  return options;
}

TEST(Factorizations, OfOneCutMatrixAreAsPlain) {
  for (const auto& [rows, columns] : {std::pair(7, 7), std::pair(5, 9), std::pair(9, 4)}) {
    const at::Tensor a = plain_matrix(rows, columns);
    expect_as_plain({a}, [](const Tensors& x) -> Tensors {
      const auto [lu, pivots, info] = at::linalg_lu_factor_ex(x[0]);
      const auto [p, l, u] = at::linalg_lu(x[0]);
      return {lu, pivots, info, p, l, u};
    });
  }
}

TEST(Factorizations, DeterminantsAndTheirGradientsAreAsPlain) {
  const at::Tensor a = plain_matrix(6, 6).requires_grad_();
  expect_as_plain({a}, [](const Tensors& x) -> Tensors {
    const auto [sign, logarithm] = at::linalg_slogdet(x[0]);
    return {at::linalg_det(x[0]), sign, logarithm};
  });
}

TEST(Factorizations, OfPositiveMatricesAreAsPlainInBothForms) {
  const at::Tensor a = positive_definite(plain_matrix(7, 7)).requires_grad_();
  expect_as_plain(
      {a},
      [](const Tensors& x) -> Tensors {
        return {at::linalg_cholesky(x[0]), at::linalg_cholesky(x[0], /*upper=*/true),
                at::cholesky(x[0])};
      },
      without_debts());
}

TEST(Factorizations, OfComplexMatricesAreAsPlain) {
  const at::Tensor a = at::complex(plain_matrix(6, 6), numbers({6, 6}, 2));
  const at::Tensor b = positive_definite(a);
  expect_as_plain({a, b}, [](const Tensors& x) -> Tensors {
    return {at::linalg_det(x[0]), at::linalg_cholesky(x[1]), at::linalg_cholesky(x[1], true)};
  });
}

// What is not positive, or singular, is found in the same column.
TEST(Factorizations, FailInTheColumnInWhichPlainOnesDo) {
  at::Tensor a = positive_definite(plain_matrix(7, 7));
  a[5][5] = -1;
  at::Tensor singular = plain_matrix(7, 7);
  singular.select(1, 4).zero_();
  expect_as_plain(
      {a, singular},
      [](const Tensors& x) -> Tensors {
        return {std::get<1>(at::linalg_cholesky_ex(x[0])),
                std::get<2>(at::linalg_lu_factor_ex(x[1]))};
      },
      without_debts());
}

TEST(Factorizations, EveryRankThrowsWhatPlainOnesThrow) {
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    at::Tensor a = positive_definite(plain_matrix(6, 6));
    a[4][4] = -1;
    const at::Tensor x = distribute_tensor(a, mesh, {Shard(0)});
    const std::string plain = error_of([&] { at::linalg_cholesky(a); });
    EXPECT_TRUE(contains(error_of([&] { at::linalg_cholesky(x); }), "order 5")) << plain;
  });
}

// Of n * n elements a rank of two is sent what lies below a triangle; a gather brings n * n / 2.
TEST(Factorizations, SendLessThanHalfOfTheMatrix) {
  run_impatient(2, [](World& world) {
    const std::int64_t n = 64;
    const at::Tensor a = positive_definite(plain_matrix(n, n));
    const at::Tensor x = distribute_tensor(a, usual_mesh(world), {Shard(1)});
    const auto sent = [](const std::function<void()>& call, const World& by) {
      const CommLog log(by);
      call();
      std::int64_t bytes = 0;
      for (const auto& entry : log.entries()) bytes += entry.bytes;
      return bytes;
    };
    const std::int64_t whole = n * n * 8;
    EXPECT_LT(sent([&] { at::linalg_cholesky(x); }, world), whole * 3 / 10);
    EXPECT_LT(sent([&] { at::linalg_lu_factor_ex(x); }, world), whole * 4 / 10);
  });
}

TEST(MaskedLookups, AreAsPlain) {
  const at::Tensor x = numbers({6, 8});
  const at::Tensor rows = at::arange(5).reshape({5, 1}) * 3 - 4, columns = at::arange(4) - 1;
  const at::Tensor inside = rows.ge(0).logical_and(rows.lt(6)).logical_and(columns.ge(0));
  expect_as_plain({x, inside, numbers({5, 4}, 3)}, [=](const Tensors& t) -> Tensors {
    const c10::List<std::optional<at::Tensor>> at({rows, columns});
    return {at::_unsafe_masked_index(t[0], t[1], at, 0),
            at::_unsafe_masked_index(t[0], t[1], at, 2.5),
            at::_unsafe_masked_index_put_accumulate(t[0], t[1], at, t[2])};
  });
}

TEST(Chunks, OfPaddedTensorsAreJoinedAsPlain) {
  const Tensors x{numbers({7, 3, 2}), numbers({4, 5}, 2), numbers({9}, 3)};
  expect_as_plain(x, [](const Tensors& t) -> Tensors { return {at::_chunk_cat(t, 0, 3)}; });
}

TEST(Histograms, OverSeveralDimsAreAsPlain) {
  const Tensors x{numbers({12, 2}), numbers({12}, 2).abs()};
  expect_as_plain(x, [](const Tensors& t) -> Tensors {
    const auto [counts, edges] = at::histogramdd(t[0], {3, 4}, {}, t[1]);
    const auto [densities, same] = at::histogramdd(t[0], {3, 4}, {}, {}, /*density=*/true);
    return {counts, edges[0], edges[1], densities};
  });
}

TEST(Margins, OfOneRowOfCutClassesAreAsPlain) {
  const at::Tensor target = at::scalar_tensor(4, at::kLong);
  expect_as_plain({leaf({9}), numbers({9}, 2).abs()}, [=](const Tensors& t) -> Tensors {
    return {at::multi_margin_loss(t[0], target), at::multi_margin_loss(t[0], target, 2, 0.5, t[1])};
  });
}

TEST(Bilinear, IsAsPlainWhateverIsCut) {
  expect_as_plain(
      {leaf({4, 3}), leaf({4, 5}, 2), leaf({6, 3, 5}, 3), leaf({6}, 4)},
      [](const Tensors& t) -> Tensors { return {at::bilinear(t[0], t[1], t[2], t[3])}; });
}

TEST(Sobol, SequencesOfCutDimensionsAreAsPlain) {
  AsPlain options = without_debts();
  options.gradients = false;
  at::Tensor state = at::zeros({5, 30}, at::kLong);
  at::_sobol_engine_initialize_state_(state, 5);
  const at::Tensor scrambling = at::ones({5, 30, 30}, at::kLong).tril();
  expect_as_plain(
      {at::zeros({5}, at::kLong), state, scrambling},
      [](const Tensors& t) -> Tensors {
        at::Tensor begun = t[1].clone();
        at::_sobol_engine_initialize_state_(begun, 5);
        at::_sobol_engine_scramble_(begun, t[2], 5);
        const auto [points, next] =
            at::_sobol_engine_draw(t[0], 6, t[1], 5, 0, std::optional(at::kFloat));
        at::Tensor later = t[0].clone();
        at::_sobol_engine_ff_(later, 3, begun, 5, 0);
        return {begun, points, next, later};
      },
      options);
}

}  // namespace factorizations_test
}  // namespace tegula
