// Ops on one vector, or on all elements of a tensor, where these are cut and there is no other dim
// to move the cut to; and ops by their definitions.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tegula/comm/comm_log.h"
#include "tests/tensor/images.h"

namespace tegula {
namespace one_vector_test {

using Make = std::function<Tensors(const Tensors& x)>;

struct CutOp {
  std::string name;
  std::vector<std::vector<std::int64_t>> inputs;
  Make op;
  bool pads = false;  // tiles, some of them without elements
};

void PrintTo(const CutOp& one, std::ostream* out) { *out << one.name; }

class CutVectors : public testing::TestWithParam<CutOp> {};

// The first input is a vector that is cut evenly, or in given sizes, some of them 0; on two axes by
// one of them or both, or with a sum owed. Others are replicated.
std::vector<Way> vector_ways(const DeviceMesh& mesh, const Tensors& inputs) {
  const std::int64_t size = inputs.front().size(0);
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(mesh.axes()[0].size), 0);
  sizes.front() = size / 3;
  sizes.back() += size - sizes.front();
  std::vector<std::int64_t> all_of_one(sizes.size(), 0);
  all_of_one.back() = size;
  const Placement even = Shard(0), ragged = Shard(0, Cut::ragged(sizes));
  const Placement one = Shard(0, Cut::ragged(all_of_one));
  std::vector<Placements> placements{{even}, {ragged}, {one}};
  if (mesh.ndim() == 2) {
    placements = {{even, even},
                  {ragged, Replicate()},
                  {Replicate(), even},
                  {Partial(), even},
                  {one, Replicate()}};
  }
  std::vector<Way> ways;
  for (const Placements& first : placements) {
    ways.emplace_back(inputs.size(), Placements(mesh.ndim(), Replicate()));
    ways.back().front() = first;
  }
  return ways;
}

TEST_P(CutVectors, AreAsPlain) {
  const CutOp& one = GetParam();
  if (one.pads && !libtorch_does([] { at::constant_pad_nd(at::empty({2, 0}), {0, 0, 1, 0}); })) {
    GTEST_SKIP() << "this libtorch does not pad what has no elements";
  }
  Tensors inputs;
  for (const auto& shape : one.inputs) inputs.push_back(leaf(shape, inputs.size() + 1));
  if (inputs.front().dim() == 1) {
    AsPlain options;
    options.ways = vector_ways;
    expect_as_plain(inputs, one.op, options);
  } else {
    expect_as_plain_of_images(inputs, one.op, 0);
  }
  expect_as_plain(inputs, one.op);
}

at::Tensor as_complex(const at::Tensor& x) { return at::complex(x, x.flip(0).cos()); }

// Complex results as reals, for the sake of the comparison.
at::Tensor as_real(const at::Tensor& x) { return at::view_as_real(x.resolve_conj()); }

Tensors both(const std::tuple<at::Tensor, at::Tensor>& results) {
  return {std::get<0>(results), std::get<1>(results)};
}

INSTANTIATE_TEST_SUITE_P(
    Transforms, CutVectors,
    testing::Values(
        CutOp{"fft",
              {{24}},
              [](const Tensors& x) -> Tensors { return {as_real(at::fft_fft(as_complex(x[0])))}; }},
        CutOp{"ifft_of_an_odd_number",
              {{45}},
              [](const Tensors& x) -> Tensors {
                return {as_real(at::fft_ifft(as_complex(x[0]), std::nullopt, 0, "ortho"))};
              }},
        CutOp{"fft_of_a_prime_number",
              {{13}},
              [](const Tensors& x) -> Tensors { return {as_real(at::fft_fft(as_complex(x[0])))}; }},
        CutOp{"rfft",
              {{36}},
              [](const Tensors& x) -> Tensors { return {as_real(at::fft_rfft(x[0]))}; }},
        CutOp{"fft_of_reals",
              {{40}},
              [](const Tensors& x) -> Tensors { return {as_real(at::fft_fft(x[0]))}; }},
        CutOp{"irfft",
              {{13}},
              [](const Tensors& x) -> Tensors { return {at::fft_irfft(as_complex(x[0]))}; }},
        CutOp{"ihfft",
              {{32}},
              [](const Tensors& x) -> Tensors { return {as_real(at::fft_ihfft(x[0]))}; }},
        CutOp{"stft",
              {{40}, {8}},
              [](const Tensors& x) -> Tensors {
                return {as_real(at::stft(x[0], 8, 4, 8, x[1], true, "reflect", false, true, true))};
              }},
        CutOp{"stft_of_several",
              {{3, 20}},
              [](const Tensors& x) -> Tensors {
                return {as_real(at::stft(x[0], 6, 2, 6, {}, false, true, true))};
              }}),
    [](const auto& one) { return one.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Orders, CutVectors,
    testing::Values(
        CutOp{"sort", {{23}}, [](const Tensors& x) { return both(at::sort(x[0])); }},
        CutOp{"sort_down", {{10}}, [](const Tensors& x) { return both(at::sort(x[0], 0, true)); }},
        CutOp{"sort_of_few_values",
              {{31}},
              [](const Tensors& x) {
                return both(at::sort((x[0] * 3).round() / 3, /*stable=*/true, 0, true));
              }},
        CutOp{"kth", {{23}}, [](const Tensors& x) { return both(at::kthvalue(x[0], 7)); }},
        CutOp{"last", {{5}}, [](const Tensors& x) { return both(at::kthvalue(x[0], 5, 0, true)); }},
        CutOp{"median", {{24}}, [](const Tensors& x) { return both(at::median(x[0], 0)); }},
        CutOp{"median_of_all",
              {{5, 7}},
              [](const Tensors& x) -> Tensors { return {at::median(x[0].detach())}; }},
        CutOp{"nanmedian_of_all",
              {{5, 7}},
              [](const Tensors& x) -> Tensors { return {at::nanmedian(x[0].detach().log())}; }},
        CutOp{"median_with_nan",
              {{9}},
              [](const Tensors& x) -> Tensors { return {at::median(x[0].detach().log())}; }},
        CutOp{"quantile",
              {{17}},
              [](const Tensors& x) -> Tensors { return {at::quantile(x[0], 0.3)}; }},
        CutOp{"quantiles",
              {{7, 5}},
              [](const Tensors& x) -> Tensors {
                const at::Tensor q = at::tensor({0.0, 0.31, 0.5, 1.0}, at::kDouble);
                Tensors all{at::quantile(x[0], q), at::quantile(x[0], q, 0),
                            at::quantile(x[0], q, -1, true),
                            at::quantile(x[0], q, std::nullopt, true),
                            at::quantile(x[0], 0.31, 1, true)};
                for (const auto* between : {"lower", "higher", "nearest", "midpoint"}) {
                  all.push_back(at::quantile(x[0], q, 0, false, between));
                }
                return all;
              }},
        CutOp{"quantiles_with_nan",
              {{7, 5}},
              [](const Tensors& x) -> Tensors {
                const at::Tensor some = x[0].detach().log();
                const at::Tensor q = at::tensor({0.2, 0.7}, at::kDouble);
                return {at::quantile(some, q, 0), at::nanquantile(some, q, 0),
                        at::nanquantile(some, 0.7, 1, true), at::nanquantile(some, 0.4)};
              }}),
    [](const auto& one) { return one.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Definitions, CutVectors,
    testing::Values(
        CutOp{"pixel_shuffle",
              {{2, 8, 3, 5}},
              [](const Tensors& x) -> Tensors { return {at::pixel_shuffle(x[0], 2)}; }},
        CutOp{"pixel_unshuffle",
              {{1, 3, 6, 4}},
              [](const Tensors& x) -> Tensors { return {at::pixel_unshuffle(x[0], 2)}; }},
        CutOp{"glu", {{12}}, [](const Tensors& x) -> Tensors { return {at::glu(x[0])}; }},
        CutOp{"glu_of_rows",
              {{3, 6}},
              [](const Tensors& x) -> Tensors { return {at::glu(x[0], -1)}; }},
        CutOp{"block_diag",
              {{3, 4}, {2, 2}, {5}},
              [](const Tensors& x) -> Tensors { return {at::block_diag({x[0], x[1], x[2]})}; }},
        CutOp{"pad_sequence",
              {{5, 3}, {2, 3}},
              [](const Tensors& x) -> Tensors { return {at::pad_sequence({x[0], x[1]}, true, 2)}; },
              /*pads=*/true},
        CutOp{"diag_embed",
              {{7}},
              [](const Tensors& x) -> Tensors {
                return {at::diag_embed(x[0], -2), at::diag_embed(x[0], 1), at::diag_embed(x[0])};
              }},
        CutOp{"diagonal",
              {{5, 7}},
              [](const Tensors& x) -> Tensors { return {at::diagonal(x[0], -1) * 2}; }},
        CutOp{"diagflat",
              {{3, 4}},
              [](const Tensors& x) -> Tensors { return {at::diagflat(x[0], 1)}; }},
        CutOp{"unfold_copy",
              {{3, 11}},
              [](const Tensors& x) -> Tensors {
                return {at::unfold_copy(x[0], 1, 4, 2), at::unfold_copy(x[0], 0, 2, 1)};
              }},
        CutOp{"unfold_backward",
              {{4, 3, 2}},
              [](const Tensors& x) -> Tensors {
                return {at::unfold_backward(x[0], {5, 3}, 0, 2, 1)};
              }},
        CutOp{"roll_flat",
              {{4, 3, 2}},
              [](const Tensors& x) -> Tensors { return {at::roll(x[0], {5})}; }},
        CutOp{"vander",
              {{6}},
              [](const Tensors& x) -> Tensors { return {at::vander(x[0].detach(), 4)}; }},
        CutOp{"view_copy",
              {{15, 4}},
              [](const Tensors& x) -> Tensors {
                return {at::view_copy(x[0], {5, 3, 4}), at::view_copy(x[0], {10, -1})};
              }},
        CutOp{"take_along_dim",
              {{5, 4}, {3}},
              [](const Tensors& x) -> Tensors {
                const at::Tensor places = (x[1].detach().abs() * 100).to(at::kLong).remainder(20);
                return {at::take_along_dim(x[0], places)};
              }},
        CutOp{"instance_norm",
              {{2, 6, 5}, {6}, {6}},
              [](const Tensors& x) -> Tensors {
                return {at::instance_norm(x[0], x[1], x[2], {}, {}, true, 0.1, 1e-5, false)};
              }},
        CutOp{"layer_norm",
              {{2, 3, 6}, {6}, {6}},
              [](const Tensors& x) -> Tensors { return {at::layer_norm(x[0], {6}, x[1], x[2])}; }},
        CutOp{"batch_norm",
              {{4, 6, 3}, {6}, {6}},
              [](const Tensors& x) -> Tensors {
                return {at::batch_norm(x[0], x[1], x[2], {}, {}, true, 0.1, 1e-5, false)};
              }},
        CutOp{"batch_norm_of_fixed_statistics",
              {{4, 6, 3}, {6}, {6}},
              [](const Tensors& x) -> Tensors {
                const at::Tensor mean = x[1].detach().sin();
                const at::Tensor variance = x[2].detach().square() + 1;
                return {at::batch_norm(x[0], x[1], x[2], mean, variance, false, 0.1, 1e-5, false)};
              }}),
    [](const auto& one) { return one.param.name; });

// Each rank of two gets a quarter of the elements from the other, three times; 16 bytes each.
TEST(CutVectors, AreTransformedWithoutAGather) {
  run_impatient(2, [](World& world) {
    const at::Tensor reals = numbers({64});
    const at::Tensor x =
        distribute_tensor(at::complex(reals, reals), usual_mesh(world), {Shard(0)});
    const CommLog log(world);
    const at::Tensor result = at::fft_fft(x);
    for (const CommEntry& entry : log.entries()) EXPECT_EQ(entry.kind, CommKind::AllToAll);
    EXPECT_LE(log.bytes(), 3 * 32 * 16);
    EXPECT_EQ(placements_of(result), (Placements{Shard(0)}));
  });
}

// The second call is of a kind that is known, whatever its numbers are.
TEST(CutVectors, AreNotAskedForAQuantileThatIsNone) {
  run_impatient(2, [](World& world) {
    const at::Tensor x = distribute_tensor(numbers({6}), usual_mesh(world), {Shard(0)});
    for (const double q : {0.5, 1.5, -0.5}) {
      const std::string plain = error_of([&] { at::quantile(numbers({6}), q); });
      EXPECT_EQ(error_of([&] { at::quantile(x, q); }).substr(0, 40), plain.substr(0, 40)) << q;
    }
    for (const double q : {0.5, 1.5, -0.5}) {
      const at::Tensor several = at::full({2}, q, at::kDouble);
      const std::string plain = error_of([&] { at::quantile(numbers({6}), several); });
      EXPECT_EQ(error_of([&] { at::quantile(x, several); }).substr(0, 40), plain.substr(0, 40))
          << q;
    }
  });
}

}  // namespace one_vector_test
}  // namespace tegula
