// Reductions and scans along cut dims: the same as on plain tensors, by totals.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <array>
#include <limits>

#include "tegula/comm/comm_log.h"
#include "tests/tensor/as_plain.h"
#include "tests/tensor/little_communication.h"

namespace tegula {
namespace reductions_test {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

constexpr std::array<std::int64_t, 2> kDims = {0, 1};
const at::IntArrayRef kFirst(kDims.data(), 1);
const at::IntArrayRef kSecond(kDims.data() + 1, 1);
const at::IntArrayRef kBoth(kDims);
const std::optional<at::Scalar> kNoCorrection = 0;

using Reduction = std::function<Tensors(const at::Tensor& x)>;

Program of_first(const Reduction& reduction) {
  return [reduction](const Tensors& inputs) { return reduction(inputs[0]); };
}

// On whole numbers, so that the parts of owed sums are exact; on ordinary, infinite and undefined
// ones, and where shards are empty.
void expect_reduced_as_plain(const Reduction& reduction) {
  expect_as_plain({leaf({5, 4, 3})}, of_first(reduction));
  expect_as_plain({leaf({2, 5}, 7)}, of_first(reduction));
  at::Tensor odd = numbers({7, 4}, 3);
  odd[2][1] = kInfinity;
  odd[4][1] = -kInfinity;
  odd[6][2] = -kInfinity;
  odd[0][3] = kInfinity;
  expect_as_plain({odd}, of_first(reduction), {.partial = false});
  odd[5][0] = kNan;
  odd[6][0] = kNan;
  odd[3][3] = kNan;
  expect_as_plain({odd}, of_first(reduction), {.partial = false});
}

void expect_same_of_integers(const Reduction& reduction) {
  for (const at::ScalarType type : {at::kLong, at::kInt, at::kByte}) {
    const at::Tensor x = (numbers({5, 4, 3}) * 3).abs().to(type);
    expect_as_plain({x}, of_first(reduction), {.partial = false});
  }
  expect_as_plain({numbers({5, 4, 3}).gt(0.8)}, of_first(reduction), {.partial = false});
}

TEST(Reductions, AnyAndAllAreWhatPlainTensorsGive) {
  const Reduction any = [](const at::Tensor& x) -> Tensors {
    return {x.any(), x.any(1), x.any(-1, true), x.all(), x.all(0), x.all(0, true)};
  };
  expect_reduced_as_plain(any);
  expect_same_of_integers(any);
}

TEST(Reductions, PlacesOfExtremesAreWhatPlainTensorsGive) {
  const Reduction places = [](const at::Tensor& x) -> Tensors {
    const auto [max, at] = x.max(0);
    const auto [min, where] = x.min(-1, true);
    return {max, at, min, where, x.argmax(), x.argmin(1), x.argmax(0, true), x.argmin({}, true)};
  };
  expect_reduced_as_plain(places);
  for (const at::ScalarType type : {at::kLong, at::kByte}) {
    const at::Tensor many_equal = (numbers({9, 5}) * 2).abs().to(type);
    expect_as_plain({many_equal}, of_first(places), {.partial = false});
  }
}

bool has_gradient_of_aminmax() {
  return libtorch_does([] { std::get<0>(at::aminmax(leaf({3}), 0)).backward(); });
}

TEST(Reductions, ExtremesWhereRanksAreEmptyAreWhatPlainTensorsGive) {
  const bool has_gradient = has_gradient_of_aminmax();
  const Reduction extremes = [&](const at::Tensor& x) -> Tensors {
    const at::Tensor t = has_gradient ? x : x.detach();
    const auto [least, greatest] = at::aminmax(t);
    const auto [low, high] = at::aminmax(t, 0, true);
    return {x.amax(0), x.amin({0, 1}, true), x.max(), x.min(), least, greatest, low, high};
  };
  expect_reduced_as_plain(extremes);
  const auto placed_on_one_rank = [&](const at::Tensor& x) {
    run_impatient(3, [&](World& world) {
      const DeviceMesh mesh = usual_mesh(world);
      const at::Tensor y = distribute_tensor(x, mesh, {Shard(0)});
      const Tensors want = extremes(x);
      const CommLog log(world);
      const Tensors got = extremes(y);
      for (std::size_t k = 0; k < want.size(); ++k) {
        EXPECT_EQ(difference(full_tensor(got[k]), want[k]), "");
      }
    });
  };
  placed_on_one_rank(numbers({1, 4}));
  placed_on_one_rank((numbers({1, 4}) * 3).to(at::kInt));
}

TEST(Reductions, NormsOfEveryOrderAreWhatPlainTensorsGive) {
  for (const double order : {2.0, 1.0, 0.0, 3.0, 0.5, -1.0, kInfinity, -kInfinity}) {
    expect_reduced_as_plain([&](const at::Tensor& x) -> Tensors {
      return {at::linalg_vector_norm(x, order), at::linalg_vector_norm(x, order, kFirst, true),
              at::norm(x, order), at::norm(x, order, kSecond)};
    });
  }
  expect_as_plain({at::complex(numbers({5, 4}), numbers({5, 4}, 2))},
                  [](const Tensors& x) -> Tensors {
                    return {x[0].norm(), at::linalg_vector_norm(x[0], 1, kFirst)};
                  });
  expect_as_plain({leaf({5, 4}), leaf({5, 4}, 2)}, [](const Tensors& x) -> Tensors {
    return {at::dist(x[0], x[1]), at::dist(x[0], x[1], 1)};
  });
  expect_as_plain({leaf({5, 4, 3})}, [](const Tensors& x) -> Tensors {
    return {at::renorm(x[0], 2, 0, 1.5), at::renorm(x[0], 1, 1, 2)};
  });
}

TEST(Reductions, VariancesAreWhatPlainTensorsGive) {
  expect_reduced_as_plain([](const at::Tensor& x) -> Tensors {
    return {x.var(), x.var(kSecond, kNoCorrection, true), x.std(kFirst, true)};
  });
  // a mean of infinities is infinite here; libtorch's depends on where they stand
  const Reduction with_means = [](const at::Tensor& x) -> Tensors {
    const auto [variance, mean] = at::var_mean(x, kFirst, std::optional<at::Scalar>(1), true);
    const auto [deviation, same] = at::std_mean(x, kBoth, kNoCorrection, false);
    return {variance, mean, deviation, same};
  };
  expect_as_plain({leaf({5, 4, 3})}, of_first(with_means));
  expect_as_plain({at::complex(numbers({5, 4}), numbers({5, 4}, 2))}, of_first(with_means));
  // the sum of squares would lose all digits
  expect_as_plain({numbers({6, 4}) + 1e8}, of_first(with_means),
                  {.tolerance = 1e-6, .partial = false});
}

TEST(Reductions, LogSumExpAndCountsAreWhatPlainTensorsGive) {
  expect_reduced_as_plain([](const at::Tensor& x) -> Tensors {
    return {x.logsumexp(kFirst), x.logsumexp(kBoth, true), x.nansum(kFirst),
            x.count_nonzero(),   x.count_nonzero(kSecond), x.nansum()};
  });
}

TEST(Reductions, ComparisonsAreWhatPlainTensorsSay) {
  run_impatient(3, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor x = numbers({5, 4});
    at::Tensor other = x.clone();
    other[4][3] = 7;
    at::Tensor undefined = x.clone();
    undefined[1][1] = kNan;
    const auto placed = [&](const at::Tensor& tensor, std::int64_t dim) {
      return distribute_tensor(tensor, mesh, {Shard(dim)});
    };
    EXPECT_TRUE(at::equal(placed(x, 0), placed(x, 1)));
    EXPECT_FALSE(at::equal(placed(x, 0), placed(other, 0)));
    EXPECT_FALSE(at::equal(placed(undefined, 0), placed(undefined, 0)));
    EXPECT_FALSE(at::equal(placed(x, 0), placed(x.t().contiguous(), 0)));
    EXPECT_TRUE(at::allclose(placed(x, 0), placed(x + 1e-12, 0)));
    EXPECT_FALSE(at::allclose(placed(x, 0), placed(other, 0)));
    EXPECT_TRUE(
        at::allclose(placed(undefined, 0), placed(undefined, 0), 1e-5, 1e-8, /*equal_nan=*/true));
  });
}

TEST(Reductions, TracesAndHistogramsAreWhatPlainTensorsGive) {
  expect_as_plain({leaf({5, 7})}, [](const Tensors& x) -> Tensors { return {x[0].trace()}; });
  expect_as_plain({leaf({7, 5})}, [](const Tensors& x) -> Tensors { return {x[0].trace()}; });
  expect_as_plain({numbers({9, 4})},
                  [](const Tensors& x) -> Tensors { return {x[0].histc(5), x[0].histc(4, -1, 1)}; },
                  {.partial = false});
  expect_as_plain(
      {(numbers({11}) * 4).abs().to(at::kLong), numbers({11}, 2)},
      [](const Tensors& x) -> Tensors { return {x[0].bincount(), x[0].bincount(x[1], 9)}; },
      {.partial = false});
}

TEST(Reductions, WriteToWhatIsGiven) {
  expect_as_plain({numbers({8, 5}), numbers({5}), numbers({8, 5}, 2)},
                  [](const Tensors& x) -> Tensors {
                    at::Tensor norms = at::zeros_like(x[1]);
                    at::norm_out(norms, x[0], 2, kFirst);
                    at::Tensor sums = at::zeros_like(x[2]);
                    at::cumsum_out(sums, x[0], 0);
                    at::Tensor mine = x[2].clone();
                    mine.cumsum_(0);
                    return {norms, sums, mine};
                  },
                  {.gradients = false});
}

TEST(Reductions, NormsOfAListNeedOneReduction) {
  run_impatient(4, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor a = numbers({6, 5});
    const at::Tensor b = numbers({7}, 2);
    const at::Tensor c = numbers({3, 2}, 3);
    const Tensors placed = {distribute_tensor(a, mesh, {Shard(0), Shard(1)}),
                            distribute_tensor(b, mesh, {Replicate(), Shard(0)}),
                            distribute_tensor(c, mesh, {Replicate(), Replicate()})};
    for (const double order : {2.0, 1.0, 0.0, kInfinity}) {
      const Tensors want = at::_foreach_norm(at::TensorList({a, b, c}), order);
      const CommLog log(world);
      const Tensors got = at::_foreach_norm(placed, order);
      EXPECT_EQ(log.entries().size(), 1) << log.to_string();
      for (std::size_t k = 0; k < want.size(); ++k) {
        EXPECT_EQ(difference(full_tensor(got[k]), want[k]), "");
      }
    }
  });
}

TEST(Scans, AreWhatPlainTensorsGive) {
  const Reduction scans = [](const at::Tensor& x) -> Tensors {
    return {x.cumsum(0), x.cumsum(-1), x.cumprod(0), x.logcumsumexp(0)};
  };
  expect_as_plain({leaf({9, 4})}, of_first(scans));
  expect_as_plain({leaf({4, 8, 3}, 5)}, of_first(scans));
  const Reduction extremes = [](const at::Tensor& x) -> Tensors {
    const auto [max, at] = x.cummax(0);
    const auto [min, where] = x.cummin(1);
    return {max, at, min, where};
  };
  expect_as_plain({leaf({9, 8})}, of_first(extremes));
  at::Tensor odd = numbers({9, 8}, 3);
  odd[4][1] = kNan;
  odd[6][1] = kInfinity;
  odd[7][1] = kNan;
  odd[2][2] = -kInfinity;
  odd[3][3] = kInfinity;
  odd[5][3] = -kInfinity;
  expect_as_plain({odd}, of_first(scans), {.partial = false});
  expect_as_plain({odd}, of_first(extremes), {.partial = false});
  const at::Tensor whole = (numbers({9, 8}) * 2).to(at::kInt);
  expect_as_plain({whole}, of_first(extremes), {.partial = false});
  expect_as_plain({whole}, [](const Tensors& x) -> Tensors {
    return {x[0].cumsum(0), x[0].cumprod(1), x[0].cumsum(0, at::kDouble)};
  });
}

TEST(Scans, TheGradientOfARunningSumSendsTotals) {
  run_ranks(3, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"tp", 3}});
    const at::Tensor plain = leaf({10, 64}), weights = numbers({10, 64});
    const at::Tensor x = distribute_tensor(plain.detach(), mesh, {Shard(0)}).requires_grad_();
    const at::Tensor y = distribute_tensor(weights, mesh, {Shard(0)});
    (plain.cumsum(0) * weights).square().sum().backward();

    const at::Tensor loss = (x.cumsum(0) * y).square().sum();
    CommLog log(world);
    loss.backward();

    EXPECT_EQ(log.entries().size(), 1) << log.to_string();
    EXPECT_EQ(log.bytes(), 64 * plain.element_size()) << log.to_string();
    EXPECT_EQ(placements_of(x.grad()), (Placements{Shard(0)}));
    EXPECT_EQ(difference(full_tensor(x.grad()), plain.grad()), "");
  });
}

TEST(Scans, ARunningSumIsDifferentiatedTwice) {
  expect_as_plain({leaf({9, 4})}, [](const Tensors& x) -> Tensors {
    const at::Tensor cubes = x[0].cumsum(0).pow(3).sum();
    return {torch::autograd::grad({cubes}, {x[0]}, {}, true, true)[0]};
  });
}

TEST(Scans, TheGreatestFewAreWhatPlainTensorsGive) {
  expect_as_plain({leaf({23, 5})}, [](const Tensors& x) -> Tensors {
    const auto [most, at] = x[0].topk(2, 0);
    const auto [least, where] = x[0].topk(3, 0, /*largest=*/false);
    const auto [many, there] = x[0].topk(12, 0);
    return {most, at, least, where, many, there};
  });
}

TEST(Scans, SearchesInACutSequenceAreSums) {
  const at::Tensor sorted = std::get<0>(numbers({11}).sort());
  const at::Tensor rows = std::get<0>(numbers({4, 11}).sort(1));
  expect_as_plain({sorted, rows, numbers({4, 3}, 2)},
                  [](const Tensors& x) -> Tensors {
                    return {at::searchsorted(x[0], x[2]), at::searchsorted(x[1], x[2], true),
                            at::searchsorted(x[0], 0.3, false, true), at::bucketize(x[2], x[0])};
                  },
                  {.partial = false});
}

TEST(Reductions, SendTotalsOnly) {
  const at::Tensor x = leaf({64, 48}, 4);
  const std::vector<std::pair<std::string, Reduction>> cases = {
      {"any", [](const at::Tensor& t) -> Tensors { return {t.gt(0).any(), t.gt(0).all(0)}; }},
      {"max.dim", [](const at::Tensor& t) -> Tensors { return {std::get<1>(t.detach().max(0))}; }},
      {"argmax", [](const at::Tensor& t) -> Tensors { return {t.argmax(), t.argmin(1)}; }},
      {"norm", [](const at::Tensor& t) -> Tensors { return {t.norm(), t.norm(1, kFirst)}; }},
      {"linalg_vector_norm",
       [](const at::Tensor& t) -> Tensors { return {at::linalg_vector_norm(t, 3, kSecond)}; }},
      {"var", [](const at::Tensor& t) -> Tensors { return {t.var(), t.std(kFirst, true)}; }},
      {"logsumexp",
       [](const at::Tensor& t) -> Tensors { return {t.logsumexp(kFirst), t.logsumexp(kSecond)}; }},
      {"renorm", [](const at::Tensor& t) -> Tensors { return {t.renorm(2, 0, 1)}; }},
      {"dist", [](const at::Tensor& t) -> Tensors { return {at::dist(t, t.detach() + 1)}; }},
      {"aminmax",
       [](const at::Tensor& t) -> Tensors {
         return {std::get<0>(at::aminmax(has_gradient_of_aminmax() ? t : t.detach(), 0))};
       }},
      {"trace", [](const at::Tensor& t) -> Tensors { return {t.detach().trace()}; }},
      {"scans",
       [](const at::Tensor& t) -> Tensors {
         const at::Tensor d = t.detach();
         return {d.cumsum(0), d.cumprod(1), d.logcumsumexp(0), std::get<0>(d.cummax(1))};
       }},
      {"topk", [](const at::Tensor& t) -> Tensors { return {std::get<0>(t.detach().topk(2, 0))}; }},
      {"histc", [](const at::Tensor& t) -> Tensors { return {t.detach().histc(10)}; }},
      {"isclose",
       [](const at::Tensor& t) -> Tensors { return {at::isclose(t, t.detach()).all()}; }},
      {"normalize",
       [](const at::Tensor& t) -> Tensors {
         return {t / t.norm(2, kFirst, true).clamp_min(1e-12).expand_as(t)};
       }},
  };
  for (const auto& [name, reduction] : cases) {
    expect_little_communication(name, {x}, of_first(reduction));
  }
  expect_little_communication("cosine_similarity", {x, leaf({64, 48}, 5)}, [](const Tensors& t) {
    return Tensors{at::cosine_similarity(t[0], t[1], 0), at::cosine_similarity(t[0], t[1], 1)};
  });
}

}  // namespace reductions_test
}  // namespace tegula
