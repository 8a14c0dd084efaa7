// The universal path says once that an operator gathers.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include <algorithm>

#include "tests/tensor/as_plain.h"
#include "tests/tensor/environment_variable.h"

namespace tegula {
namespace gather_warning_test {

at::Tensor turned(const at::Tensor& x) { return x.flip({0}); }
double first_of(const at::Tensor& x) { return x[0].item<double>(); }

// Operators that no rule will ever cover.
class OwnOperators {
 public:
  OwnOperators()
      : library_(torch::Library::DEF, "tegula_gathering", std::nullopt, __FILE__, __LINE__) {
    library_.def("turned(Tensor x) -> Tensor", torch::dispatch(c10::DispatchKey::CPU, &turned));
    library_.def("first_of(Tensor x) -> float", torch::dispatch(c10::DispatchKey::CPU, &first_of));
  }
  at::Tensor turn(const at::Tensor& x) const {
    return call("tegula_gathering::turned", x).toTensor();
  }
  double first(const at::Tensor& x) const {
    return call("tegula_gathering::first_of", x).toDouble();
  }

 private:
  static c10::IValue call(const char* name, const at::Tensor& x) {
    torch::jit::Stack stack{x};
    c10::Dispatcher::singleton().findSchemaOrThrow(name, "").callBoxed(&stack);
    return stack.front();
  }
  torch::Library library_;
};

std::string said_by(const std::function<void(const OwnOperators&, const DeviceMesh&)>& program) {
  const OwnOperators operators;
  testing::internal::CaptureStderr();
  run_impatient(2, [&](World& world) { program(operators, world.mesh({{"a", 2}})); });
  return testing::internal::GetCapturedStderr();
}

TEST(GatherWarning, NamesTheOperatorAndWhatItGathersOnce) {
  EXPECT_EQ(said_by([](const OwnOperators& operators, const DeviceMesh& mesh) {
              for (const Placement& placement : {Placement(Shard(0)), Placement(Shard(1))}) {
                operators.turn(distribute_tensor(numbers({4, 6}), mesh, {placement}));
              }
            }),
            "tegula: an op gathers its operands: no rule covers the call\n"
            "  op      tegula_gathering::turned(x: f64[4, 6] on (a=2) as [S(0)])\n"
            "  gather  f64[4, 6] on (a=2) as [S(0)]\n"
            "  hint    redistribute its operands, or TEGULA_LOG=error; said once per operator\n");
}

TEST(GatherWarning, IsSilentIfNothingIsGatheredOrANumberWasAskedFor) {
  EXPECT_EQ(said_by([](const OwnOperators& operators, const DeviceMesh& mesh) {
              operators.turn(distribute_tensor(numbers({4, 6}), mesh, {Replicate()}));
              operators.first(distribute_tensor(numbers({4}), mesh, {Shard(0)}));
            }),
            "");
}

TEST(GatherWarning, IsSilentIfTheLogShowsErrorsAlone) {
  const EnvironmentVariable level("TEGULA_LOG", "error");
  EXPECT_EQ(said_by([](const OwnOperators& operators, const DeviceMesh& mesh) {
              operators.turn(distribute_tensor(numbers({4, 6}), mesh, {Shard(0)}));
            }),
            "");
}

}  // namespace gather_warning_test
}  // namespace tegula
