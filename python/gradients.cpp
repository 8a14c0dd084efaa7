// Gradients: when what they owe is paid, and clipping.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "tegula/gradient/gradients.h"
#include "tegula/parallel/clip_grad.h"
#include "tegula/parallel/replicate.h"

namespace tegula::python {

namespace {

class PolicyContext final : public GuardContext<GradientPolicyGuard> {
 public:
  explicit PolicyContext(GradientPolicy policy) : policy_(std::move(policy)) {}

 private:
  std::unique_ptr<GradientPolicyGuard> make() const override {
    return std::make_unique<GradientPolicyGuard>(policy_);
  }
  GradientPolicy policy_;
};

NormOptions norm_options(double order, std::optional<Group> among) {
  return {.order = order, .among = std::move(among)};
}

}  // namespace

void bind_gradients(py::module_& module) {
  bind_context<PolicyContext>(
      module, "gradient_policy",
      "While it is entered, backward passes follow this policy: \"hold over dp, "
      "else now\". It outranks what was said for modules and leaves.")
      .def(py::init([](const std::string& policy) {
        return std::make_unique<PolicyContext>(parse_gradient_policy(policy));
      }));
  module.def("no_sync",
             [](const DeviceMesh& mesh) { return std::make_unique<PolicyContext>(no_sync(mesh)); });
  module.def("set_gradient_policy",
             [](const at::Tensor& leaf, const std::string& policy, bool of_module) {
               set_gradient_policy(leaf, parse_gradient_policy(policy),
                                   of_module ? PolicyOf::Module : PolicyOf::Leaf);
             });
  module.def("reduce_gradients", &reduce_gradients, Unlocked());
  module.def(
      "grad_norm",
      [](const std::vector<at::Tensor>& parameters, double order, std::optional<Group> among) {
        return grad_norm(parameters, norm_options(order, std::move(among)));
      },
      Unlocked());
  module.def(
      "clip_grad_norm_",
      [](const std::vector<at::Tensor>& parameters, double most, double order,
         std::optional<Group> among) {
        return clip_grad_norm_(parameters, most, norm_options(order, std::move(among)));
      },
      Unlocked());
  module.def("clip_grad_value_", &clip_grad_value_, Unlocked());
}

}  // namespace tegula::python
