// The oracle of views: a view of a DTensor, however it is placed and whatever it owes, is the view
// of the whole, for those who read it and for those who write through it.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>

#include "tegula/payload/guards.h"
#include "tegula/tensor/dtensor.h"
#include "tests/tensor/as_plain.h"

namespace tegula {
namespace views_of_every_placement_test {

struct View {
  std::string name;
  std::function<at::Tensor(const at::Tensor&)> of;
  enum class Kind { Writable, ReadOnly, Bits } kind = Kind::Writable;
};

using Views = std::vector<View>;

// Elements go elsewhere: of any tensor [4, 6, 1].
Views moving_views() {
  using T = const at::Tensor&;
  return {
      {"detach", [](T x) { return x.detach(); }},
      {"alias", [](T x) { return at::alias(x); }},
      {"view", [](T x) { return x.view({24}); }},
      {"view of more dims", [](T x) { return x.view({2, 2, 6}); }},
      {"view that mixes rows", [](T x) { return x.view({3, 8}); }},
      {"_reshape_alias", [](T x) { return at::_reshape_alias(x, {24, 1}, {1, 1}); }},
      {"transpose", [](T x) { return x.transpose(0, 1); }},
      {"permute", [](T x) { return x.permute({2, 1, 0}); }},
      {"t", [](T x) { return x.squeeze().t(); }},
      {"unsqueeze", [](T x) { return x.unsqueeze(1); }},
      {"squeeze", [](T x) { return x.squeeze(); }},
      {"squeeze of a dim", [](T x) { return x.squeeze(2); }},
      {"squeeze of dims", [](T x) { return x.squeeze(at::IntArrayRef{0, 2}); }},
      {"slice", [](T x) { return x.slice(0, 1, 3); }},
      {"slice with steps", [](T x) { return x.slice(1, 1, 6, 2); }},
      {"slice of a slice", [](T x) { return x.slice(1, 1, 6).slice(0, 2, 4); }},
      {"select", [](T x) { return x.select(0, 2); }},
      {"select of a column", [](T x) { return x.select(1, 5); }},
      {"unbind", [](T x) { return x.unbind(1)[3]; }, View::Kind::ReadOnly},
      {"split", [](T x) { return x.split(4, 1)[1]; }, View::Kind::ReadOnly},
      {"split_with_sizes", [](T x) { return x.split_with_sizes({1, 3}, 0)[1]; },
       View::Kind::ReadOnly},
      {"chunk", [](T x) { return x.chunk(2, 0)[0]; }, View::Kind::ReadOnly},
      {"diagonal", [](T x) { return x.diagonal(1, 0, 1); }},
      {"unfold", [](T x) { return x.unfold(1, 3, 3); }},
      {"expand", [](T x) { return x.expand({2, 4, 6, 3}); }, View::Kind::ReadOnly},
      {"as_strided", [](T x) { return x.as_strided({3, 2}, {6, 2}, 1); }},
  };
}

// Views that say of each element what it is.
Views changing_views(at::ScalarType type) {
  using T = const at::Tensor&;
  Views views;
  const auto add = [&](const std::string& name, std::function<at::Tensor(T)> of) {
    views.push_back({name, std::move(of)});
  };
  for (at::ScalarType other : {at::kByte, at::kBFloat16, at::kFloat, at::kInt, at::kDouble,
                               at::kLong, at::kComplexFloat, at::kComplexDouble}) {
    views.push_back({std::string("view as ") + c10::toString(other),
                     [other](T x) { return x.squeeze().view(other); }, View::Kind::Bits});
  }
  add("_neg_view", [](T x) { return at::_neg_view(x); });
  add("part of _neg_view", [](T x) { return at::_neg_view(x.select(0, 1)).slice(0, 1, 4); });
  if (at::isComplexType(type)) {
    add("conj", [](T x) { return x.conj(); });
    add("conj of a transpose", [](T x) { return x.transpose(0, 1).conj(); });
    add("view_as_real", [](T x) { return at::view_as_real(x); });
    add("real", [](T x) { return at::real(x); });
    add("imag", [](T x) { return at::imag(x); });
    add("real of conj", [](T x) { return at::real(x.conj()); });
    add("imag of conj", [](T x) { return at::imag(x.conj()); });
    add("_neg_view of conj", [](T x) { return at::_neg_view(x.conj()); });
  } else if (at::isFloatingType(type)) {
    add("view_as_complex", [](T x) { return at::view_as_complex(x.view({4, 3, 2})); });
    add("conj of view_as_complex",
        [](T x) { return at::view_as_complex(x.view({4, 3, 2})).conj(); });
    add("imag of conj of view_as_complex",
        [](T x) { return at::imag(at::view_as_complex(x.view({4, 3, 2})).conj()); });
    add("imag of view_as_complex",
        [](T x) { return at::imag(at::view_as_complex(x.view({4, 3, 2}))); });
  }
  return views;
}

// What can be owed in this type.
std::vector<Placement> owed_in(at::ScalarType type) {
  std::vector<Placement> owed{MaskPartial(7), Partial(ReduceOp::Sum), Partial(ReduceOp::Product)};
  if (!at::isIntegralType(type, true)) owed.emplace_back(Partial(ReduceOp::Avg));
  if (!at::isComplexType(type)) {
    owed.emplace_back(Partial(ReduceOp::Max));
    owed.emplace_back(Partial(ReduceOp::Min));
  }
  if (at::isIntegralType(type, true)) {
    owed.emplace_back(Partial(ReduceOp::Band));
    owed.emplace_back(Partial(ReduceOp::Bor));
    owed.emplace_back(Partial(ReduceOp::Bxor));
  }
  return owed;
}

std::vector<Placements> every_placement(const DeviceMesh& mesh, at::ScalarType type) {
  std::vector<Placement> kinds{Replicate(), Shard(0), Shard(1), Shard(2)};
  for (const Placement& owed : owed_in(type)) kinds.push_back(owed);
  std::vector<Placements> all;
  if (mesh.ndim() == 1) {
    for (const Placement& kind : kinds) all.push_back({kind});
    all.push_back({Shard(0, Cut::ragged({3, 1}))});
    return all;
  }
  for (const Placement& a : kinds) {
    for (const Placement& b : kinds) {
      const auto of_a = owed_reduction(a);
      const auto of_b = owed_reduction(b);
      if (!of_a || !of_b || commute(*of_a, *of_b)) all.push_back({a, b});
    }
  }
  return all;
}

// Small whole numbers other than 0, of which sums and products are exact; other ones for each
// part. Bits are those of small numbers too, so that no NaN comes of them.
at::Tensor part(at::IntArrayRef shape, at::ScalarType type, std::int64_t which) {
  std::int64_t count = 1;
  for (std::int64_t size : shape) count *= size;
  const at::Tensor index = at::arange(count, at::kLong) + 1;
  const at::Tensor size = at::remainder(index * (which * 2 + 3) + which, 3) + 1;
  const at::Tensor is_negative = at::remainder(index + which, 5).eq(0);
  const bool is_integral = at::isIntegralType(type, /*includeBool=*/true);
  const at::Tensor real =
      (is_integral ? size : at::where(is_negative, at::neg(size), size)).reshape(shape);
  if (!at::isComplexType(type)) return real.to(type);
  const at::Tensor imaginary = at::remainder(real * (which + 2), 4) + 1;
  return at::complex(real.to(at::kDouble), imaginary.to(at::kDouble)).to(type);
}

// Parts that differ between ranks that owe each other a reduction, and are the same on replicas.
at::Tensor with_parts(const World& world, const DeviceMesh& mesh, const Placements& placements,
                      at::ScalarType type) {
  const Coordinate at = *mesh.coordinate_of(world.rank());
  std::int64_t which = 0;
  Placements cut_only = placements;
  for (std::size_t axis = 0; axis < mesh.ndim(); ++axis) {
    if (!is_replicate(placements[axis])) which = which * 3 + at[axis];
    if (owed_reduction(placements[axis])) cut_only[axis] = Replicate();
  }
  const DistributeOptions alike{std::nullopt, {}};
  at::Tensor tile =
      to_local(distribute_tensor(part({4, 6, 1}, type, which), mesh, cut_only, alike)).clone();
  // of each element that was looked up, one rank along the axis has it and the others have 0
  for (std::size_t axis = 0; axis < mesh.ndim(); ++axis) {
    if (!std::holds_alternative<MaskPartial>(placements[axis])) continue;
    const at::Tensor owner =
        at::remainder(at::arange(tile.numel(), at::kLong), mesh.axes()[axis].size)
            .reshape(tile.sizes());
    tile = tile * owner.eq(at[axis]).to(type);
  }
  return from_local(tile, mesh, placements);
}

// Exactly, but for the sign of 0.
bool is_same(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  const at::Tensor is_equal = at::eq(a, b);
  if (at::isIntegralType(a.scalar_type(), /*includeBool=*/true)) return is_equal.all().item<bool>();
  return is_equal.logical_or(a.isnan().logical_and(b.isnan())).all().item<bool>();
}

struct Write {
  std::string name;
  std::function<void(const at::Tensor&)> into;
};

const std::vector<Write>& writes() {
  static const std::vector<Write> all = {
      {"fill_", [](const at::Tensor& v) { v.fill_(2); }},
      {"add_", [](const at::Tensor& v) { v.add_(1); }},
      {"copy_",
       [](const at::Tensor& v) {
         const ImplicitReplication alike;
         v.copy_(part(v.sizes(), v.scalar_type(), 4));
       }},
      {"zero_ of a part", [](const at::Tensor& v) { v.select(0, 0).zero_(); }},
  };
  return all;
}

// All writes on one axis, one of them on two.
std::vector<Write> some_writes(const DeviceMesh& mesh, std::size_t turn) {
  if (mesh.ndim() == 1) return writes();
  return {writes()[turn % writes().size()]};
}

void check(const World& world, const DeviceMesh& mesh, at::ScalarType type, const View& view) {
  std::size_t turn = 0;
  for (const Placements& placements : every_placement(mesh, type)) {
    const std::string where = view.name + " of " + c10::toString(type) + " as " +
                              to_string(placements) + " on " + to_string(mesh);
    const at::Tensor x = with_parts(world, mesh, placements, type);
    const at::Tensor whole = full_tensor(x).clone();
    if (error_of([&] { view.of(whole); }) != "nothing was thrown") continue;
    try {
      const at::Tensor seen = view.of(x);
      ASSERT_TRUE(is_same(full_tensor(seen), view.of(whole))) << where;
      ASSERT_TRUE(is_same(full_tensor(x), whole)) << where;
      if (view.kind == View::Kind::ReadOnly) continue;
      for (const Write& write : some_writes(mesh, turn++)) {
        // a sum of bits may be those of -0, which no sum of parts gives
        if (view.kind == View::Kind::Bits && write.name == "add_") continue;
        const at::Tensor base = with_parts(world, mesh, placements, type);
        const at::Tensor plain = full_tensor(base).clone();
        const at::Tensor written = view.of(base);
        write.into(written);
        write.into(view.of(plain));
        ASSERT_TRUE(is_same(full_tensor(written), view.of(plain))) << write.name << " of " << where;
        ASSERT_TRUE(is_same(full_tensor(base), plain)) << write.name << " of " << where;
      }
    } catch (const std::exception& error) {
      throw std::runtime_error(where + "\n" + error.what());
    }
  }
}

void check_all(at::ScalarType type, const Views& views, const std::vector<int>& worlds = {2, 4}) {
  for (int ranks : worlds) {
    run_impatient(ranks, [&](World& world) {
      for (const View& view : views) {
        check(world, usual_mesh(world), type, view);
        if (testing::Test::HasFatalFailure()) return;
      }
    });
  }
}

TEST(Views, ThatMoveElementsAreTheViewOfTheWhole) {
  check_all(at::kFloat, moving_views());
  check_all(at::kInt, moving_views(), {2});  // reductions by bits
}

TEST(Views, OfFloatsAsSomethingElseAreTheViewOfTheWhole) {
  check_all(at::kFloat, changing_views(at::kFloat));
}

TEST(Views, OfComplexNumbersAreTheViewOfTheWhole) {
  check_all(at::kComplexFloat, changing_views(at::kComplexFloat));
}

TEST(Views, OfWholeNumbersAsSomethingElseAreTheViewOfTheWhole) {
  check_all(at::kInt, changing_views(at::kInt));
}

TEST(Views, BeginWhereTheViewOfTheWholeDoes) {
  run_impatient(2, [](World& world) {
    const at::Tensor plain = at::arange(16, at::kFloat);
    const at::Tensor x = distribute_tensor(plain, usual_mesh(world), {Replicate()});
    for (std::int64_t begin : {0, 4, 8}) {
      const auto offset = [&](const at::Tensor& whole, at::ScalarType type) {
        return whole.slice(0, begin, begin + 4).view(type).storage_offset();
      };
      for (at::ScalarType type : {at::kShort, at::kDouble}) {
        EXPECT_EQ(offset(x, type), offset(plain, type)) << begin;
      }
    }
  });
}

TEST(Views, OfWhatIsOwedStayOwedWhereTheReductionPasses) {
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const auto owed = [&](ReduceOp op, at::ScalarType type) {
      return with_parts(world, mesh, {Partial(op)}, type);
    };
    const auto placements = [](const at::Tensor& x) { return to_string(placements_of(x)); };
    EXPECT_EQ(placements(owed(ReduceOp::Max, at::kFloat).select(0, 1)), "[P(max)]");
    EXPECT_EQ(placements(owed(ReduceOp::Max, at::kFloat).view(at::kFloat)), "[P(max)]");
    EXPECT_EQ(placements(owed(ReduceOp::Max, at::kFloat).view(at::kInt)), "[R]");
    EXPECT_EQ(placements(at::_neg_view(owed(ReduceOp::Sum, at::kFloat))), "[P(sum)]");
    EXPECT_EQ(placements(at::_neg_view(owed(ReduceOp::Max, at::kFloat))), "[R]");
    EXPECT_EQ(placements(owed(ReduceOp::Product, at::kComplexFloat).conj()), "[P(product)]");
    EXPECT_EQ(placements(at::view_as_real(owed(ReduceOp::Avg, at::kComplexFloat))), "[P(avg)]");
    EXPECT_EQ(placements(at::view_as_real(owed(ReduceOp::Product, at::kComplexFloat))), "[R]");
  });
}

}  // namespace views_of_every_placement_test
}  // namespace tegula
