// Paranoid mode compares what rules make of ops with the universal path, and what views make of
// tiles with the views of the whole.
#include <gtest/gtest.h>

#include <limits>

#include "tegula/base/error.h"
#include "tegula/dispatch/paranoia.h"
#include "tegula/families/families.h"
#include "tegula/ops/families.h"
#include "tegula/tensor/dtensor.h"
#include "tests/tensor/environment_variable.h"
#include "tests/tensor/rank_processes.h"

namespace tegula::inner {
namespace paranoia_test {

// A rule that says something else for a while.
class OtherRule {
 public:
  OtherRule(const std::string& op, RuleText text) : before_(*rule_table().find(op)) {
    rule_table().add(op, text);
  }
  ~OtherRule() { rule_table().add(before_.op, before_.text, before_.signature); }

 private:
  Rule before_;
};

at::Tensor squares(World& world, const Placement& placement) {
  const at::Tensor plain = at::arange(1, 13, at::kFloat).view({3, 4});
  return distribute_tensor(plain, world.mesh({{"a", 2}}), {placement});
}

std::string internal_error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const InternalError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

void expect_named(const std::string& error, const std::string& op) {
  EXPECT_NE(error.find("a rule gives another result than the universal path"), std::string::npos)
      << error;
  EXPECT_NE(error.find(op), std::string::npos) << error;
}

TEST(WrongRules, AreCaughtInParanoidMode) {
  const EnvironmentVariable checked("TEGULA_CHECK", "1");
  const OtherRule wrong("hypot", "... + ... -> ...");  // as if it were linear
  run_ranks(
      2,
      [](World& world) {
        const at::Tensor x = squares(world, Shard(1));
        EXPECT_NO_THROW(at::hypot(x, x));  // right on cut dims all the same
        const at::Tensor owed = at::sum(at::stack({x, x}), 2, true);
        const at::Tensor of_squares = at::sum(at::stack({x * x, x}), 2, true);
        expect_named(internal_error_of([&] { at::hypot(owed, of_squares); }),
                     "aten::hypot(self: f32[2, 3, 1] on (a=2) as [P(sum)]");
      },
      patient_world());
}

TEST(WrongRules, ThatWriteAreCaughtInParanoidMode) {
  const EnvironmentVariable checked("TEGULA_CHECK", "1");
  const OtherRule wrong("hypot", "... + ... -> ...");
  run_ranks(
      2,
      [](World& world) {
        const at::Tensor x = squares(world, Shard(1));
        const at::Tensor owed = at::sum(x, 1);
        const at::Tensor of_squares = at::sum(x * x, 1);
        expect_named(internal_error_of([&] { at::Tensor(owed * 1).hypot_(of_squares); }),
                     "aten::hypot_");
      },
      patient_world());
}

TEST(WrongRules, AreFollowedOtherwise) {
  const EnvironmentVariable checked("TEGULA_CHECK", "0");
  const OtherRule wrong("hypot", "... + ... -> ...");
  run_ranks(
      2,
      [](World& world) {
        const at::Tensor owed = at::sum(squares(world, Shard(1)), 1);
        const at::Tensor result = at::hypot(owed, owed);
        EXPECT_EQ(placements_of(result), Placements{Partial()});
      },
      patient_world());
}

TEST(WrongRules, GoAgain) {
  const EnvironmentVariable checked("TEGULA_CHECK", "0");
  const std::string text = rule_table().find("hypot")->text;
  {
    const OtherRule wrong("hypot", "... + ... -> ...");
  }
  EXPECT_EQ(rule_table().find("hypot")->text, text);
  run_ranks(
      2,
      [](World& world) {
        const at::Tensor owed = at::sum(squares(world, Shard(1)), 1);
        EXPECT_EQ(placements_of(at::hypot(owed, owed)), Placements{Replicate()});
      },
      patient_world());
}

// What a call says of a view that is another one.
std::string error_about_view(const char* op_name, const char* overload,
                             const std::vector<c10::IValue>& arguments, const at::Tensor& made) {
  const c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow(op_name, overload);
  const Call call(operator_table().entry(op), arguments);
  check_replicas(call);
  return internal_error_of([&] { check_views(call, {made}); });
}

TEST(WrongViews, AreCaughtInParanoidMode) {
  const EnvironmentVariable checked("TEGULA_CHECK", "1");
  run_ranks(
      2,
      [](World& world) {
        for (const Placement& placement :
             {Placement(Shard(0)), Placement(Replicate()), Placement(Partial())}) {
          const at::Tensor x = squares(world, placement);
          const std::string error =
              error_about_view("aten::slice", "Tensor", {x, 1, 0, 2, 1}, x.slice(1, 1, 3));
          EXPECT_NE(error.find("a view of tiles is not the view of the whole"), std::string::npos)
              << error;
          EXPECT_NE(error.find("aten::slice.Tensor(self: f32[3, 4]"), std::string::npos) << error;
          EXPECT_EQ(error_about_view("aten::slice", "Tensor", {x, 1, 1, 3, 1}, x.slice(1, 1, 3)),
                    "nothing was thrown");
        }
      },
      patient_world());
}

TEST(RightViews, MayBeOfWhatHoldsNothingYet) {
  const EnvironmentVariable checked("TEGULA_CHECK", "1");
  run_ranks(
      2,
      [](World& world) {
        for (const Placement& placement :
             {Placement(Shard(0)), Placement(Replicate()), Placement(Partial())}) {
          const at::Tensor x = squares(world, placement).clone();
          // as memory that nobody has written may be
          const float nothing = std::numeric_limits<float>::quiet_NaN();
          to_local(x).fill_(world.rank() == 0 ? nothing : 1e38F);
          EXPECT_NO_THROW(x.t().slice(0, 1, 3).view(at::kFloat));
          EXPECT_NO_THROW(x.view({12}).unbind());
          EXPECT_NO_THROW(x.view(at::kInt));
        }
      },
      patient_world());
}

TEST(Fibers, ThatDifferWhereTheyShouldNotAreNamed) {
  const EnvironmentVariable checked("TEGULA_CHECK", "1");
  std::vector<std::string> texts(4);
  run_ranks(
      4,
      [&](World& world) {
        const DeviceMesh mesh = world.mesh({{"a", 2}, {"b", 2}});
        const at::Tensor x = distribute_tensor(at::ones({4}), mesh, {Shard(0), Replicate()});
        const at::Tensor same = distribute_tensor(at::ones({4}), mesh["b"], {Shard(0)});
        x + same;
        const at::Tensor other =
            distribute_tensor(at::full({4}, world.rank() < 2 ? 1.0F : 2.0F), mesh["b"], {Shard(0)});
        try {
          x + other;
        } catch (const UsageError& error) {
          texts[static_cast<std::size_t>(world.rank())] = error.what();
        }
      },
      patient_world());
  for (const std::string& text : texts) {
    EXPECT_EQ(
        text,
        "tegula: fibers hold different values of what should be the same in all of them\n"
        "  op      aten::add.Tensor(self: f32[4] on (a=2, b=2) as [S(0), R], other: f32[4] on "
        "(b=2) of (a=2, b=2) as [S(0)], alpha=1)\n"
        "  tensor  f32[4] on (b=2) of (a=2, b=2) as [S(0)]\n"
        "  beside  (a=2, b=2)\n"
        "  ranks   [2, 3] differ from the first fiber\n"
        "  hint    a tensor on a slice of a mesh counts as replicated over the rest of it");
  }
}

// What is no fault of a rule.

TEST(RightRules, MayWriteTensorsThatShareMemory) {
  const EnvironmentVariable checked("TEGULA_CHECK", "1");
  run_ranks(
      2,
      [](World& world) {
        const at::Tensor x = squares(world, Shard(1));
        const at::Tensor rows = x.slice(0, 0, 2);
        EXPECT_NO_THROW(at::_foreach_mul_({rows, x.slice(0, 1, 3)}, 2.0));
        EXPECT_EQ(full_tensor(x)[1][0].item<float>(), 20);
      },
      patient_world());
}

TEST(RightRules, MayAddPartsThatCancelEachOther) {
  const EnvironmentVariable checked("TEGULA_CHECK", "1");
  run_ranks(
      2,
      [](World& world) {
        const float part = world.rank() == 0 ? 12345.678f : -12345.677f;
        const at::Tensor x = from_local(at::full({3}, part), world.mesh({{"a", 2}}), {Partial()});
        EXPECT_NO_THROW(x + x * 0.333);
      },
      patient_world());
}

TEST(RightRules, MayAddElementsThatCancelEachOther) {
  const EnvironmentVariable checked("TEGULA_CHECK", "1");
  run_ranks(
      2,
      [](World& world) {
        const at::Tensor x = squares(world, Shard(1));
        EXPECT_NO_THROW(at::sum(at::layer_norm(at::stack({x, x * 1.1}, 2), {2})));
      },
      patient_world());
}

TEST(RightRules, MayDividePartsByZero) {
  const EnvironmentVariable checked("TEGULA_CHECK", "1");
  run_ranks(
      2,
      [](World& world) {
        const float part = world.rank() == 0 ? 2 : -1;
        const DeviceMesh mesh = world.mesh({{"a", 2}});
        const at::Tensor x = from_local(at::full({3}, part), mesh, {Partial()});
        EXPECT_NO_THROW(x / distribute_tensor(at::zeros({3}), mesh, {Replicate()}));
      },
      patient_world());
}

TEST(RightRules, MayLookAtWhatHoldsNothingYet) {
  const EnvironmentVariable checked("TEGULA_CHECK", "1");
  run_ranks(
      2,
      [](World& world) {
        const at::Tensor x = squares(world, Replicate()).clone();
        to_local(x).fill_(world.rank());
        EXPECT_NO_THROW(x.select(0, 1).zero_());
      },
      patient_world());
}

}  // namespace paranoia_test
}  // namespace tegula::inner
