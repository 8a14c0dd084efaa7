// Linear algebra, Fourier transforms and sorting where batches are cut: each rank does its own.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <stdexcept>

#include "tegula/comm/comm_log.h"
#include "tegula/payload/guards.h"
#include "tests/tensor/as_plain.h"
#include "tests/tensor/environment_variable.h"

namespace tegula {
namespace within_dims_test {

// Matrices that are well conditioned.
at::Tensor matrices(std::int64_t batches) {
  return (numbers({batches, 4, 4}) + 5 * at::eye(4, at::kDouble)).detach().requires_grad_();
}

void on_two_ranks(const std::function<void(const World&, const DeviceMesh&)>& body) {
  const EnvironmentVariable unchecked("TEGULA_CHECK", "0");  // paranoid mode communicates, too
  run_impatient(2, [&](const World& world) { body(world, world.mesh({{"dp", 2}})); });
}

TEST(WithinDims, LinearAlgebraIsAsOnPlainTensors) {
  expect_as_plain({matrices(3), leaf({3, 4, 2}, 2)}, [](const Tensors& t) {
    return Tensors{at::linalg_inv(t[0]), at::linalg_solve(t[0], t[1]), at::linalg_det(t[0]),
                   at::linalg_matrix_exp(t[0] * 0.1)};
  });
  expect_as_plain({matrices(3)}, [](const Tensors& t) {
    const at::Tensor symmetric = t[0] + t[0].transpose(-2, -1);
    const auto [q, r] = at::linalg_qr(t[0]);
    return Tensors{at::linalg_cholesky(symmetric), at::linalg_eigvalsh(symmetric),
                   at::linalg_svdvals(t[0]), q, r};
  });
}

TEST(WithinDims, FourierTransformsAndSortingAreAsOnPlainTensors) {
  expect_as_plain({leaf({3, 5, 6})}, [](const Tensors& t) {
    const at::Tensor spectrum = at::fft_rfft(t[0], {}, 1);
    return Tensors{at::fft_irfft(spectrum, 5, 1),     at::abs(at::fft_fft2(t[0])),
                   std::get<0>(at::topk(t[0], 2, 1)), std::get<0>(at::kthvalue(t[0], 2, 2)),
                   std::get<0>(at::cummax(t[0], 0)),  std::get<0>(at::sort(t[0], 1))};
  });
  expect_as_plain({leaf({2, 5, 3}), leaf({2, 4, 3}, 2)}, [](const Tensors& t) {
    return Tensors{at::cdist(t[0], t[1]), at::cdist(t[0], t[1], 1.0)};
  });
}

TEST(WithinDims, CutBatchesNeedNoCommunicationButToAgreeThatNoMatrixIsSingular) {
  on_two_ranks([](const World& world, const DeviceMesh& mesh) {
    const at::Tensor a = distribute_tensor(matrices(3).detach(), mesh, {Shard(0)});
    const CommLog log(world);
    const StrictMode strict;
    const at::Tensor inverse = at::linalg_inv(a);
    if (placements_of(inverse) != Placements{Shard(0)}) throw std::runtime_error("it has moved");
    at::linalg_svd(a);
    at::fft_fft2(a);
    at::sort(a, 1);
    if (log.bytes() > 8) throw std::runtime_error(log.to_string());
  });
}

TEST(WithinDims, GradientsOfWhatIsChosenAlongAnotherDimNeedNoCommunication) {
  on_two_ranks([](const World& world, const DeviceMesh& mesh) {
    const at::Tensor x = distribute_tensor(leaf({5, 6}), mesh, {Shard(0)});
    const CommLog log(world);
    const StrictMode strict;
    for (const at::Tensor& chosen :
         {std::get<0>(at::sort(x, 1)), std::get<0>(at::topk(x, 2, 1)),
          std::get<0>(at::kthvalue(x, 2, 1)), std::get<0>(at::max(x, 1, true))}) {
      chosen.backward(at::ones_like(chosen));
    }
    if (placements_of(x.grad()) != Placements{Shard(0)}) throw std::runtime_error("it has moved");
    if (!log.empty()) throw std::runtime_error(log.to_string());
  });
}

TEST(WithinDims, AMatrixThatIsSingularIsAnErrorOnAllRanks) {
  on_two_ranks([](const World&, const DeviceMesh& mesh) {
    const at::Tensor whole = matrices(3).detach().clone();
    whole.select(0, 2).zero_();
    const at::Tensor a = distribute_tensor(whole, mesh, {Shard(0)});
    const std::string error = error_of([&] { at::linalg_inv(a); });
    if (!contains(error, "Batch element 2")) throw std::runtime_error(error);
  });
}

}  // namespace within_dims_test
}  // namespace tegula
