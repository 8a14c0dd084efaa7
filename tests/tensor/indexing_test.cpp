// Elements by index: the values of plain tensors whatever is cut, errors on all ranks, and no
// communication of the tensor that is indexed.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tegula/comm/comm_log.h"
#include "tegula/payload/guards.h"
#include "tegula/tensor/factories.h"
#include "tests/tensor/as_plain.h"

namespace tegula {
namespace indexing_test {

using at::indexing::None;
using Indices = c10::List<std::optional<at::Tensor>>;

at::Tensor longs(at::ArrayRef<std::int64_t> values) { return at::tensor(values, at::kLong); }

Indices listed(const std::vector<at::Tensor>& tensors) {
  Indices indices;
  for (const at::Tensor& one : tensors) {
    indices.push_back(one.defined() ? std::optional(one) : std::nullopt);
  }
  return indices;
}

TEST(Indexing, ReadsGiveWhatPlainTensorsGive) {
  const at::Tensor rows = longs({6, 0, 3, 3, 6});
  const at::Tensor from_end = longs({-1, 2, -7, 0});
  const at::Tensor per_element = at::stack({rows, rows.flip(0), rows}, 1);
  expect_as_plain({leaf({7, 3}), rows}, [](const Tensors& in) {
    return Tensors{at::index_select(in[0], 0, in[1]), in[0].index(listed({in[1]}))};
  });
  expect_as_plain({leaf({7, 3}), per_element}, [](const Tensors& in) {
    return Tensors{at::gather(in[0], 0, in[1]), at::take_along_dim(in[0], in[1], 0)};
  });
  expect_as_plain({leaf({7, 3}), from_end, longs({0, 2, 1, 1})}, [](const Tensors& in) {
    return Tensors{in[0].index(listed({in[1]})), in[0].index(listed({in[1], in[2]})),
                   in[0].index(listed({in[1].view({2, 2}), in[2].select(0, 1)}))};
  });
  expect_as_plain({leaf({4, 7, 3}), from_end, longs({0, 2, 1, 1})}, [](const Tensors& in) {
    return Tensors{in[0].index(listed({{}, in[1]})), in[0].index(listed({in[2], {}, in[2]})),
                   in[0].index(listed({{}, in[1].view({2, 2}), in[2].view({2, 2})}))};
  });
  expect_as_plain({leaf({4, 5}), longs({19, -20, 7, 0})}, [](const Tensors& in) {
    return Tensors{at::take(in[0], in[1]), at::take(in[0], in[1].view({2, 2}))};
  });
}

TEST(Indexing, WritesLeaveWhatPlainTensorsHold) {
  const at::Tensor rows = longs({6, 0, 3, 3});
  const at::Tensor once = longs({6, 0, 3, 4});
  expect_as_plain({leaf({7, 3}), leaf({4, 3}, 2), rows, once}, [](const Tensors& in) {
    at::Tensor x = in[0] * 1;
    x.index_add_(0, in[2], in[1], 2);
    x.index_copy_(0, in[3], in[1]);
    x.index_fill_(0, in[3].slice(0, 1, 2) - 7, 5);
    return Tensors{x, at::index_add(in[0], 0, in[2], in[1]), at::index_copy(in[0], 0, in[3], in[1]),
                   at::index_fill(in[0], 0, in[2], 0.5)};
  });
  expect_as_plain({leaf({7, 3}), leaf({4, 3}, 2), rows.unsqueeze(1).expand({4, 3}).clone(),
                   once.unsqueeze(1).expand({4, 3}).clone()},
                  [](const Tensors& in) {
                    at::Tensor x = in[0] * 1;
                    x.scatter_add_(0, in[2], in[1]);
                    x.scatter_(0, in[3], in[1]);
                    return Tensors{x,
                                   at::scatter_add(in[0], 0, in[2], in[1]),
                                   at::scatter(in[0], 0, in[3], in[1]),
                                   at::scatter(in[0], 0, in[3].slice(0, 0, 2), 7),
                                   at::scatter_reduce(in[0], 0, in[2], in[1], "amax"),
                                   at::scatter_reduce(in[0], 0, in[2], in[1], "mean", false)};
                  });
  expect_as_plain({leaf({7, 3}), leaf({4, 3}, 2), rows, once - 7}, [](const Tensors& in) {
    at::Tensor x = in[0] * 1;
    x.index_put_(listed({in[2]}), in[1], true);
    x.index_put_(listed({in[3]}), in[1].select(0, 0));
    return Tensors{x, in[0].index_put(listed({in[3], in[3].remainder(3)}), in[1].select(1, 0)),
                   in[0].index_put(listed({in[2]}), in[1], true)};
  });
  expect_as_plain({leaf({4, 7, 3}), leaf({4, 4, 3}, 2), rows}, [](const Tensors& in) {
    return Tensors{in[0].index_put(listed({{}, in[2]}), in[1], true),
                   in[0].index_put(listed({{}, in[2]}), in[1].select(0, 0).select(0, 0), true)};
  });
  expect_as_plain({leaf({4, 5}), leaf({3}, 2), longs({19, -20, 7})}, [](const Tensors& in) {
    at::Tensor x = in[0] * 1;
    x.put_(in[2], in[1], true);
    return Tensors{x, at::put(in[0], in[2], in[1])};
  });
}

TEST(Indexing, OtherElementTypesPass) {
  const at::Tensor rows = longs({6, 0, 3, 3, 6});
  for (const at::ScalarType type : {at::kBool, at::kInt, at::kHalf, at::kBFloat16}) {
    const at::Tensor table = numbers({7, 3}).gt(0).to(type);
    expect_as_plain({table, rows},
                    [](const Tensors& in) {
                      return Tensors{at::index_select(in[0], 0, in[1]),
                                     in[0].index(listed({in[1]})),
                                     in[0].index(listed({in[1], in[1].remainder(3)})),
                                     at::take(in[0], in[1]), in[0].index_fill(0, in[1], 1)};
                    },
                    {1e-9, 4, false, false, false});
  }
}

TEST(Indexing, NumbersThatAreNotFiniteStayWhatTheyAre) {
  const at::Tensor table = numbers({7, 3});
  table[2].fill_(std::numeric_limits<double>::quiet_NaN());
  table[5].fill_(std::numeric_limits<double>::infinity());
  expect_as_plain({table, longs({2, 0, 5, 5, 6}), numbers({5, 3}, 2)},
                  [](const Tensors& in) {
                    return Tensors{at::index_select(in[0], 0, in[1]), in[0].index(listed({in[1]})),
                                   at::index_add(in[0], 0, in[1], in[2]),
                                   at::gather(in[0], 0, in[1].unsqueeze(1)),
                                   at::take(in[0], in[1])};
                  },
                  {1e-9, 4, false, false, false});
}

TEST(Indexing, PartsOfMatricesGiveWhatPlainTensorsGive) {
  expect_as_plain({leaf({5, 7})}, [](const Tensors& in) {
    at::Tensor x = in[0] * 1;
    return Tensors{at::triu(in[0], 1),
                   at::tril(in[0], -2),
                   at::triu(in[0], -9),
                   x.tril_(),
                   at::trace(in[0]),
                   in[0].diagonal(1) * 2,
                   at::diagonal_copy(in[0], -2),
                   at::diagonal_scatter(in[0], in[0].select(1, 2)),
                   at::diag_embed(in[0], 0, 1, 0)};
  });
  expect_as_plain({leaf({3, 5, 4})}, [](const Tensors& in) {
    return Tensors{at::triu(in[0]),      at::tril(in[0]),           at::diag_embed(in[0]),
                   at::flip(in[0], {1}), at::roll(in[0], {2}, {1}), in[0].repeat({2, 1, 1, 3})};
  });
}

TEST(Indexing, CopiesOfViewsGiveWhatPlainTensorsGive) {
  const bool has_gradient =
      libtorch_does([] { at::narrow_copy(leaf({3}), 0, 1, 2).sum().backward(); });
  expect_as_plain({leaf({4, 1, 6}), leaf({1, 6}, 2)}, [&](const Tensors& in) {
    Tensors all{at::select_copy(in[0], 0, 2),
                at::slice_copy(in[0], 2, 1, 5, 2),
                at::view_copy(in[0], {24}),
                at::permute_copy(in[0], {2, 0, 1}),
                at::transpose_copy(in[0], 0, 2),
                at::unsqueeze_copy(in[0], 1),
                at::squeeze_copy(in[0]),
                at::expand_copy(in[0], {4, 3, 6}),
                at::unfold_copy(in[0], 2, 3, 2),
                at::diagonal_copy(in[0], 0, 0, 2),
                at::narrow_copy(has_gradient ? in[0] : in[0].detach(), 0, 1, 2),
                at::select_scatter(in[0], in[1], 0, 3),
                at::slice_scatter(in[0], in[0].slice(0, 0, 2), 0, 1, 4, 2)};
    for (const at::Tensor& one : at::split_copy(in[0], 3, 2)) all.push_back(one);
    for (const at::Tensor& one : at::unbind_copy(in[0], 0)) all.push_back(one);
    return all;
  });
}

TEST(Indexing, ElementsWhereAMaskIsTrueAreThoseOfPlainTensors) {
  expect_as_plain({leaf({7, 3}), numbers({7, 3}, 2), numbers({7}, 3), leaf({30}, 4)},
                  [](const Tensors& in) {
                    const at::Tensor mask = in[1].gt(0);
                    at::Tensor x = in[0] * 1;
                    x.masked_scatter_(mask, in[3]);
                    return Tensors{x,
                                   at::masked_select(in[0], mask),
                                   at::nonzero(mask),
                                   in[0].index(listed({mask})),
                                   in[0].index(listed({in[2].gt(0)})),
                                   in[0].masked_scatter(mask, in[3])};
                  });
  const at::Tensor nothing = at::zeros({7}, at::kBool);
  expect_as_plain({leaf({7, 3}), nothing}, [](const Tensors& in) {
    at::Tensor x = in[0] * 1;
    x.index_put_(listed({in[1].logical_not()}), at::scalar_tensor(4, at::kDouble));
    return Tensors{x, in[0].index(listed({in[1]})), at::nonzero(in[1])};
  });
}

TEST(Indexing, BagsOfEmbeddingsAreThoseOfPlainTensors) {
  const at::Tensor words = longs({6, 0, 3, 3, 6, 1});
  const at::Tensor begins = longs({0, 2, 2});
  expect_as_plain({leaf({7, 5}), leaf({6}, 2), words, begins}, [](const Tensors& in) {
    Tensors bags;
    for (const std::int64_t mode : {0, 1, 2}) {
      bags.push_back(std::get<0>(at::embedding_bag(in[0], in[2], in[3], false, mode)));
    }
    bags.push_back(std::get<0>(at::embedding_bag(in[0], in[2], in[3], false, 0, false, in[1])));
    return bags;
  });
}

TEST(Indexing, TheGradientOfASparseEmbeddingIsDense) {
  expect_as_plain({leaf({9, 4}), longs({7, 3, 3, 0})}, [](const Tensors& in) -> Tensors {
    return {at::embedding(in[0], in[1], -1, false, /*sparse=*/is_dtensor(in[0]))};
  });
}

// What travels ------------------------------------------------------------------------------------

TEST(Indexing, RowsOfACutTableAreLookedUpWhereTheyAre) {
  run_impatient(3, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor table = distribute_tensor(numbers({100, 8}), mesh, {Shard(0)});
    const at::Tensor rows = distribute_tensor(longs({70, 3, 3, 99}), mesh, {Replicate()});
    const at::Tensor per_element =
        distribute_tensor(longs({70, 3, 3, 99}).unsqueeze(1).expand({4, 8}), mesh, {Replicate()});
    const CommLog log(world);
    const Tensors found = {at::index_select(table, 0, rows), at::gather(table, 0, per_element),
                           table.index(listed({rows})),
                           table.index(listed({rows, rows.lt(0).to(at::kLong)})),
                           at::take(table, rows)};
    EXPECT_TRUE(log.empty()) << log.to_string();
    for (const at::Tensor& one : found) EXPECT_TRUE(spec_of(one).is_partial());
    EXPECT_EQ(
        difference(full_tensor(found[2]), numbers({100, 8}).index_select(0, longs({70, 3, 3, 99}))),
        "");
    for (const CommEntry& entry : log.entries()) EXPECT_LE(entry.bytes, 4 * 8 * 8);
  });
}

TEST(Indexing, RowsAreWrittenByThoseWhoHaveThem) {
  run_impatient(3, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor table = distribute_tensor(numbers({100, 8}), mesh, {Shard(0)});
    const at::Tensor rows = distribute_tensor(longs({70, 3, 5, 99}), mesh, {Replicate()});
    const at::Tensor source = distribute_tensor(numbers({4, 8}, 2), mesh, {Replicate()});
    const at::Tensor per_element = rows.unsqueeze(1).expand({4, 8}).clone();
    const CommLog log(world);
    table.index_add_(0, rows, source);
    table.index_copy_(0, rows, source);
    table.index_fill_(0, rows, 2);
    table.index_put_(listed({rows}), source, true);
    table.index_put_(listed({rows}), source);
    table.scatter_(0, per_element, source);
    table.scatter_add_(0, per_element, source);
    const at::Tensor other = at::index_add(table, 0, rows, source);
    EXPECT_EQ(placements_of(other), (Placements{Shard(0)}));
    EXPECT_TRUE(log.empty()) << log.to_string();
  });
}

TEST(Indexing, TrianglesAndCopiesOfViewsStayWhereTheyAre) {
  run_impatient(3, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor x = distribute_tensor(numbers({6, 9}), mesh, {Shard(0)});
    const CommLog log(world);
    const Tensors made = {at::triu(x),
                          at::tril(x, 1),
                          at::t_copy(x),
                          at::unsqueeze_copy(x, 0),
                          at::slice_copy(x, 0, 1, 5),
                          at::select_scatter(x, x.new_zeros(9), 0, 2)};
    at::trace(x);
    EXPECT_TRUE(log.empty()) << log.to_string();
    for (const at::Tensor& one : made) EXPECT_TRUE(spec_of(one).is_sharded());
  });
}

TEST(Indexing, WhereAMaskIsTrueOnlyNumbersOfElementsTravel) {
  run_impatient(3, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor x = distribute_tensor(numbers({60, 4}), mesh, {Shard(0)});
    const at::Tensor mask = x.gt(0);
    const CommLog log(world);
    const Tensors found = {at::masked_select(x, mask), at::nonzero(mask), x.index(listed({mask})),
                           x.index(listed({mask.select(1, 0)}))};
    for (const at::Tensor& one : found) EXPECT_TRUE(spec_of(one).is_sharded());
    x.masked_scatter_(mask, found[0]);
    EXPECT_LE(log.bytes(), 5 * 8) << log.to_string();
    EXPECT_EQ(difference(full_tensor(x), numbers({60, 4})), "");
    const std::string text = error_of([&] { x.masked_scatter_(mask, found[0].slice(0, 1)); });
    EXPECT_TRUE(contains(text, "a mask is true for more elements than there are")) << text;
  });
}

TEST(Indexing, GradientsOfPickedElementsStayCutAsTheRowsAre) {
  run_impatient(3, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor x = distribute_tensor(leaf({9, 50}), mesh, {Shard(0)});
    const at::Tensor picks = distribute_tensor(at::arange(9).unsqueeze(1), mesh, {Shard(0)});
    const CommLog log(world);
    at::gather(x, 1, picks).exp().backward(at::ones_like(picks, at::kDouble));
    EXPECT_EQ(placements_of(x.grad()), (Placements{Shard(0)}));
    EXPECT_TRUE(log.empty()) << log.to_string();
  });
}

TEST(Indexing, AnIndexOutOfRangeIsAnErrorOnAllRanks) {
  const auto expect_error =
      [](const std::function<void(const at::Tensor&, const at::Tensor&)>& call, std::int64_t bad) {
        for (const int ranks : {2, 4}) {
          run_impatient(ranks, [&](World& world) {
            const DeviceMesh mesh = usual_mesh(world);
            const Placements cut(mesh.ndim(), Shard(0));
            const at::Tensor table = distribute_tensor(numbers({7, 3}), mesh, cut);
            const at::Tensor index =
                distribute_tensor(longs({0, bad}), mesh, Placements(mesh.ndim(), Replicate()));
            const std::string text = error_of([&] { call(table, index); });
            EXPECT_TRUE(contains(text, "an index is out of range")) << text;
            EXPECT_TRUE(contains(text, std::to_string(bad))) << text;
          });
        }
      };
  const at::Tensor two = at::ones({2, 3}, at::kDouble);
  for (const std::int64_t bad : {7, -1}) {
    expect_error([](const auto& t, const auto& i) { at::index_select(t, 0, i); }, bad);
    expect_error([](const auto& t, const auto& i) { at::gather(t, 0, i.unsqueeze(1)); }, bad);
    expect_error([](const auto& t, const auto& i) { at::scatter(t, 0, i.unsqueeze(1), 1); }, bad);
    expect_error([](const auto& t, const auto& i) { at::index_add(t, 0, i, t.slice(0, 0, 2)); },
                 bad);
  }
  for (const std::int64_t bad : {7, -8}) {
    expect_error([](const auto& t, const auto& i) { at::index_fill(t, 0, i, 1); }, bad);
    expect_error([](const auto& t, const auto& i) { t.index(listed({i, i * 0})); }, bad);
    expect_error([](const auto& t, const auto& i) { t.index_put(listed({i}), t.slice(0, 0, 2)); },
                 bad);
  }
  expect_error([](const auto& t, const auto& i) { at::take(t, i); }, 21);
}

// Rows one by one ---------------------------------------------------------------------------------

TEST(Rows, AreReadAndWrittenAsThoseOfPlainTensors) {
  expect_as_plain({leaf({7, 3}), leaf({3}, 2)}, [](const Tensors& in) {
    at::Tensor x = in[0] * 1;
    x[2] = in[1];
    x[6].mul_(3);
    x[0].zero_();
    x[1].add_(x[2]);
    x[3][1].fill_(9);
    x.diagonal(-3).mul_(5);
    x.fill_diagonal_(8);
    x.select(1, 2).mul_(2);
    x.select(1, 0).copy_(x.select(1, 1));
    at::Tensor sum = x[0] * 0;
    for (const at::Tensor& row : x.unbind(0)) sum = sum + row;
    return Tensors{x, sum, x[4] * 2, x[-1][2], x.select(1, 1).exp()};
  });
  expect_as_plain({leaf({3, 4, 5})},
                  [](const Tensors& in) {
                    at::Tensor x = in[0] * 1;
                    x.select(1, 2).t()[3].sub_(1);
                    x.transpose(0, 1).select(0, 1).unsqueeze(0).mul_(2);
                    return Tensors{x, x.select(2, 4).transpose(0, 1), x[1].diagonal()};
                  },
                  {1e-9, 4, true, false, false});
}

TEST(Rows, TravelAlone) {
  run_impatient(3, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor x = distribute_tensor(numbers({30, 4}), mesh, {Shard(0)});
    const at::Tensor row = distribute_tensor(numbers({4}, 2), mesh, {Replicate()});
    const CommLog log(world);
    for (std::int64_t k = 0; k < 30; ++k) {
      x[k] = row;
      x[k].mul_(2);
      x[k].zero_();
      x[k].fill_(3);
    }
    EXPECT_TRUE(log.empty()) << log.to_string();
    at::add(x[17], 1);
    x[29][2].item<double>();
    ASSERT_EQ(log.size(), 2);
    EXPECT_LE(log.bytes(), 2 * 4 * 8);
    EXPECT_EQ(difference(full_tensor(x), at::full({30, 4}, 3, at::kDouble)), "");
  });
}

// One rank has nothing of it, the others have rows here and there: all decide alike.
TEST(Indexing, OfATableWhoseShardsAreNotOneRunIsTheSameOnAllRanks) {
  run_impatient(3, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"a", 3}});
    const at::Tensor whole = numbers({3, 7, 9});
    const at::Tensor places = at::arange(0, 63, 7).remainder(63).expand({3, 9}).contiguous();
    const at::Tensor x = distribute_tensor(whole, mesh, {Shard(2, Cut::ragged({0, 2, 7}))});
    const at::Tensor picked =
        at::gather(x.reshape({3, 63}), 1, distribute_tensor(places, mesh, {Replicate()}));
    EXPECT_EQ(difference(full_tensor(picked), at::gather(whole.reshape({3, 63}), 1, places)), "");
  });
}

}  // namespace indexing_test
}  // namespace tegula
