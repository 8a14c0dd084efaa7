// Rules that users register for operators of their own, and for libtorch's.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>

#include "tegula/base/error.h"
#include "tegula/comm/comm_log.h"
#include "tegula/operators/user_decompositions.h"
#include "tegula/ops/families.h"
#include "tegula/tensor/dtensor.h"
#include "tegula/tensor/register_sharding.h"
#include "tegula/testing/verify_rule.h"
#include "tests/tensor/as_plain.h"

namespace tegula {
namespace user_rules_test {

// Operators of a user -----------------------------------------------------------------------------

at::Tensor product(const at::Tensor& a, const at::Tensor& b) { return at::mm(a, b); }

// Along rows or columns, as `dim` says.
at::Tensor centred(const at::Tensor& x, std::int64_t dim) { return x - x.mean(dim, true); }

at::Tensor total(at::TensorList tensors, const at::Tensor& weight) {
  at::Tensor sum = at::zeros_like(tensors[0]);
  for (const at::Tensor& tensor : tensors) sum = sum + tensor * weight;
  return sum;
}

void halve(at::Tensor& x) { x.div_(2); }

class Cubed : public torch::autograd::Function<Cubed> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    const at::AutoDispatchBelowADInplaceOrView below;
    static const auto op = c10::Dispatcher::singleton()
                               .findSchemaOrThrow("mine::cubed", "")
                               .typed<at::Tensor(const at::Tensor&)>();
    return op.call(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    const at::Tensor x = context->get_saved_variables()[0];
    return {grads[0] * 3 * x * x};
  }
};

at::Tensor cubed(const at::Tensor& x) { return x * x * x; }
at::Tensor cubed_with_gradient(const at::Tensor& x) { return Cubed::apply(x); }
at::Tensor spread(const at::Tensor& x) { return x / x.sum(1, true); }

TORCH_LIBRARY(mine, library) {
  library.def("product(Tensor a, Tensor b) -> Tensor");
  library.def("centred(Tensor x, int dim) -> Tensor");
  library.def("total(Tensor[] tensors, *, Tensor weight) -> Tensor");
  library.def("halve(Tensor(a!) x) -> ()");
  library.def("cubed(Tensor x) -> Tensor");
  library.def("spread(Tensor x) -> Tensor");
  library.def("composed(Tensor x) -> Tensor", [](const at::Tensor& x) { return x + 1; });
}

TORCH_LIBRARY_IMPL(mine, CPU, library) {
  library.impl("product", product);
  library.impl("centred", centred);
  library.impl("total", total);
  library.impl("halve", halve);
  library.impl("cubed", cubed);
  library.impl("spread", spread);
}

TORCH_LIBRARY_IMPL(mine, Autograd, library) { library.impl("cubed", cubed_with_gradient); }

at::Tensor call(const std::string& op, std::vector<c10::IValue> arguments) {
  c10::Dispatcher::singleton().findSchemaOrThrow(op.c_str(), "").callBoxed(&arguments);
  return arguments.at(0).toTensor();
}

std::string faults_of(const RuleVerdict& verdict) {
  std::string text;
  for (const std::string& fault : verdict.faults) text += fault + "\n";
  return text;
}

// Rules -------------------------------------------------------------------------------------------

TEST(UserRules, ATextIsARule) {
  register_sharding("mine::product", "mk * kn -> mn");
  EXPECT_TRUE(verify_rule("mine::product", {"f64[4, 6], f64[6, 5]", "f64[3, 2], f64[2, 7]"}));
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"a", 2}});
    const at::Tensor x = distribute_tensor(numbers({4, 6}), mesh, {Shard(1)});
    const at::Tensor w = distribute_tensor(numbers({6, 5}, 2), mesh, {Shard(0)});
    const CommLog log(world);
    EXPECT_EQ(spec_of(call("mine::product", {x, w})).placements(), Placements{Partial()});
    EXPECT_TRUE(log.empty()) << log.to_string();
  });
}

TEST(UserRules, AFunctionLooksAtTheArguments) {
  register_sharding("mine::centred", [](const OpSchema& schema) -> std::optional<Signature> {
    static constexpr RuleText along_rows = "~nd! -> nd";
    static constexpr RuleText along_columns = "~n!d -> nd";
    return signature_of(schema.integer(1) == 1 ? along_rows.form() : along_columns.form(), schema);
  });
  EXPECT_TRUE(verify_rule("mine::centred", {"f64[4, 6], 1", "f64[5, 3], 0"}));
}

TEST(UserRules, ListsKeywordTensorsAndOpsWithoutResultsHaveRules) {
  register_sharding("mine::total", "... * ... + ... * ... -> ...");
  register_sharding("mine::total", [](const OpSchema& schema) {
    static constexpr RuleText two = "~..., ~..., ~... -> ...";
    return signature_of(two.form(), schema);
  });
  EXPECT_TRUE(verify_rule("mine::total", {"{f64[4, 6], f64[4, 6]}, weight=f64[4, 6]"}));
  register_sharding("mine::halve", "... ->");
  EXPECT_TRUE(verify_rule("mine::halve", {"f64[4, 6]"}));
}

TEST(UserRules, AnAutogradFunctionKeepsItsGradient) {
  register_sharding("mine::cubed", "~... -> ...");
  EXPECT_TRUE(verify_rule("mine::cubed", {"f64[4, 6]"}));
  expect_as_plain({leaf({4, 6})},
                  [](const Tensors& in) -> Tensors { return {call("mine::cubed", {in[0]})}; });
}

TEST(UserRules, ADecompositionIsMadeOfOtherOps) {
  const auto decompose = [](const std::vector<c10::IValue>& arguments) {
    const at::Tensor x = arguments[0].toTensor();
    return std::vector<c10::IValue>{x / x.sum(1, true)};
  };
  register_decomposition("mine::spread", decompose);
  EXPECT_TRUE(verify_rule("mine::spread", {"f64[4, 6]"}));
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"a", 2}});
    const at::Tensor x = distribute_tensor(numbers({4, 6}), mesh, {Shard(1)});
    const CommLog log(world);
    call("mine::spread", {x});
    EXPECT_EQ(log.bytes(), 4 * 8) << log.to_string();
  });
}

TEST(UserRules, TheLastOneCountsForLibtorchsOperatorsToo) {
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"a", 2}});
    const at::Tensor x = distribute_tensor(numbers({4, 6}), mesh, {Shard(1)});
    const auto placed = [&] { return to_string(spec_of(at::softmax(x, 1)).placements()); };
    EXPECT_EQ(placed(), "[S(1)]");  // by totals
    world.group().barrier();
    if (world.rank() == 0) {
      register_sharding("_softmax", [](const OpSchema& schema) {
        static constexpr RuleText rows = "~nd! -> nd";
        return signature_of(rows.form(), schema);
      });
    }
    world.group().barrier();
    EXPECT_EQ(placed(), "[S(0)]");
    world.group().barrier();
    if (world.rank() == 0) {
      register_decomposition("aten::_softmax", [](const std::vector<c10::IValue>& arguments) {
        const at::Tensor e = at::exp(arguments[0].toTensor());
        return std::vector<c10::IValue>{e / e.sum(1, true)};
      });
    }
    world.group().barrier();
    EXPECT_EQ(placed(), "[S(1)]");
  });
  inner::user_decompositions().set("_softmax", nullptr);
  for (const RuleFamily& family : rule_families()) family.add_to(rule_table());
}

// What is wrong -----------------------------------------------------------------------------------

TEST(UserRules, AWrongOneIsNamedWithItsMesh) {
  register_sharding("mine::centred", "~nd -> nd");
  const RuleVerdict verdict = verify_rule("mine::centred", {"f64[4, 6], 1"});
  EXPECT_FALSE(verdict);
  EXPECT_TRUE(contains(faults_of(verdict), "on 2 ranks, S(1) -> S(1)")) << faults_of(verdict);
  EXPECT_TRUE(contains(faults_of(verdict), "on (a=2) with operands as [S(1)]"))
      << faults_of(verdict);
  EXPECT_TRUE(contains(testing::AssertionResult(verdict).failure_message(), "S(1) -> S(1)"));
  EXPECT_FALSE(verify_rule("mine::centred", {}));
}

TEST(UserRules, AreRefusedWhereNobodyWouldAskForThem) {
  const auto error = [](const std::string& op) {
    return error_of([&] { register_sharding(op, "... -> ..."); });
  };
  EXPECT_TRUE(contains(error("mine::nothing"), "there is no such operator"))
      << error("mine::nothing");
  EXPECT_TRUE(contains(error("sum.nothing"), "sum.dim_IntList")) << error("sum.nothing");
  EXPECT_TRUE(contains(error("aten::t.default"), "it gives a view")) << error("aten::t");
  EXPECT_TRUE(contains(error("bernoulli"), "it draws random numbers")) << error("bernoulli");
  EXPECT_TRUE(contains(error("mine::composed"), "libtorch composes it of others"));
  EXPECT_TRUE(contains(error_of([] { register_sharding_text("mine::product", "mk * kn"); }),
                       "a rule says -> between operands and results"));
}

TEST(UserRules, ADecompositionGivesTheResultsOfItsOperator) {
  const auto error = [](const Decompose& decompose) {
    register_decomposition("mine::spread", decompose);
    std::string text;
    run_impatient(1, [&](World& world) {
      const at::Tensor x =
          distribute_tensor(numbers({4, 6}), world.mesh({{"a", 1}}), {Replicate()});
      text = error_of([&] { call("mine::spread", {x}); });
    });
    return text;
  };
  EXPECT_TRUE(contains(error([](const auto&) { return std::vector<c10::IValue>(); }),
                       "a decomposition gives another number of results than its operator"));
  EXPECT_TRUE(contains(error([](const auto& arguments) {
                         return std::vector<c10::IValue>{call("mine::spread", arguments)};
                       }),
                       "a decomposition calls its own operator without end"));
}

}  // namespace user_rules_test
}  // namespace tegula
