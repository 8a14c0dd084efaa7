// The idea: a fallback alone is not enough, since libtorch's composite kernels outrank it. So every
// operator is claimed by name: one that computes gets the Kernel below autograd; one that libtorch
// composes of others keeps its composition, with a guard around it. The dispatcher tells us of
// operators registered later while it holds its lock, so they are noted and claimed at the next
// call. About 3,000 operators; a few milliseconds, once.
#include "tegula/dispatch/claim.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <set>

#include "tegula/base/error.h"
#include "tegula/dispatch/composite.h"
#include "tegula/dispatch/kernel.h"
#include "tegula/dispatch/universal.h"
#include "tegula/ops/families.h"
#include "tegula/payload/host_errors.h"
#include "tegula/payload/payload.h"

namespace tegula::inner {
namespace {

using c10::DispatchKey;

// What an operator runs when a DTensor meets a sparse, quantized or nested tensor: UsageError.
class RefuseOtherLayouts final : public c10::OperatorKernel {
 public:
  explicit RefuseOtherLayouts(OperatorTable& table) : table_(table) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    with_host_errors([&] {
      const Call call(table_.entry(op), *stack);
      check_readable(call);
      throw UsageError("the op has no distributed form")
          .fact("op", call.text())
          .hint("call it on full_tensor(x)");
    });
  }

 private:
  OperatorTable& table_;
};

class Claims;

class Listener final : public c10::OpRegistrationListener {
 public:
  explicit Listener(Claims& claims) : claims_(claims) {}
  void onOperatorRegistered(const c10::OperatorHandle& op) override;
  void onOperatorDeregistered(const c10::OperatorHandle& op) override;

 private:
  Claims& claims_;
};

class Claims {
 public:
  static Claims& instance(OperatorTable& table) {
    static Claims& claims = *new Claims(table);  // operators outlive every static object
    return claims;
  }

  void claim_new() {
    if (!news_.load(std::memory_order_acquire)) return;
    const std::lock_guard claiming(claiming_);
    for (std::vector<c10::OperatorHandle> ops = take_noted(); !ops.empty(); ops = take_noted()) {
      for (const c10::OperatorHandle& op : ops) claim(op);
    }
  }

  void note(const c10::OperatorHandle& op) {
    const std::lock_guard lock(noted_mutex_);
    noted_.push_back(op);
    news_.store(true, std::memory_order_release);
  }

  void forget(const c10::OperatorHandle& op) {
    const std::lock_guard lock(noted_mutex_);
    std::erase_if(noted_, [&](const c10::OperatorHandle& one) { return one == op; });
  }

 private:
  // There is no news only when all that was noted is claimed: other threads do not wait then.
  std::vector<c10::OperatorHandle> take_noted() {
    const std::lock_guard lock(noted_mutex_);
    if (noted_.empty()) news_.store(false, std::memory_order_release);
    return std::exchange(noted_, {});
  }

  explicit Claims(OperatorTable& table) : table_(table) {
    // an operator without a gradient says so in backward, as with plain tensors
    library("_", DispatchKey::AutogradPrivateUse3)
        .fallback(torch::autograd::basicAutogradNotImplementedFallback());
    for (DispatchKey key :
         {DispatchKey::SparsePrivateUse3, DispatchKey::SparseCsrPrivateUse3,
          DispatchKey::QuantizedPrivateUse3, DispatchKey::NestedTensorPrivateUse3}) {
      library("_", key).fallback(
          torch::CppFunction::makeFromBoxedFunctor(std::make_unique<RefuseOtherLayouts>(table)));
    }
    // calls the listener for every operator that there is
    listening_ =
        c10::Dispatcher::singleton().addRegistrationListener(std::make_unique<Listener>(*this));
  }

  torch::Library& library(const std::string& space, DispatchKey key) {
    auto& made = libraries_[{space, key}];
    if (!made) {
      made = std::make_unique<torch::Library>(torch::Library::IMPL, space, key, __FILE__, __LINE__);
    }
    return *made;
  }

  // A composition needs no rule of its own: what it calls has one. Where there is one all the same,
  // and a gradient that does not come from the composition, the rule does better.
  static bool is_composed(const OperatorEntry& entry) {
    if (!entry.op.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd)) return false;
    const bool has_own_gradient = entry.op.hasKernelForDispatchKey(DispatchKey::Autograd);
    return !has_own_gradient || !can_run_backward(entry) || !rule_table().find(entry.facts.rule);
  }

  // Some compositions have a gradient of their own for devices that this libtorch may not have. By
  // libtorch's custom the operator that computes it is named after the op.
  static bool can_run_backward(const OperatorEntry& entry) {
    const std::string name = entry.op.operator_name().name + "_backward";
    const auto backward = c10::Dispatcher::singleton().findSchema({name.c_str(), ""});
    if (!backward) return true;  // other operators compute it
    for (const DispatchKey key :
         {DispatchKey::CompositeExplicitAutograd, DispatchKey::CompositeImplicitAutograd}) {
      if (backward->hasKernelForDispatchKey(key)) return true;
    }
    const c10::DispatchKeySet devices = c10::getRuntimeDispatchKeySet(DispatchKey::Dense);
    return std::any_of(devices.begin(), devices.end(), [&](DispatchKey key) {
      const bool has_data = key != DispatchKey::Meta && key != DispatchKey::PrivateUse3;
      return has_data && backward->hasKernelForDispatchKey(key);
    });
  }

  void claim(const c10::OperatorHandle& op) {
    const std::string name = toString(op.operator_name());
    if (!op.hasSchema() || claimed_.contains(name)) return;
    if (op.hasKernelForDispatchKey(DispatchKey::PrivateUse3)) return;
    const OperatorEntry& entry = table_.entry(op);
    if (entry.notes.stays_composed) return;
    const std::string space = name.substr(0, name.find("::"));
    const std::string own_name = name.substr(space.size() + 2);
    if (is_composed(entry)) {
      for (const DispatchKey key : {DispatchKey::PrivateUse3, DispatchKey::AutogradPrivateUse3}) {
        library(space, key)
            .impl(own_name.c_str(), torch::CppFunction::makeFromBoxedFunctor(
                                        std::make_unique<CompositeKernel>(entry)));
      }
    } else {
      library(space, DispatchKey::PrivateUse3)
          .impl(own_name.c_str(), entry.notes.unboxed ? entry.notes.unboxed(entry)
                                                      : torch::CppFunction::makeFromBoxedFunctor(
                                                            std::make_unique<Kernel>(entry)));
    }
    claimed_.insert(name);
  }

  OperatorTable& table_;
  std::atomic<bool> news_ = false;
  std::mutex noted_mutex_;  // taken with the dispatcher's lock held; takes no other
  std::vector<c10::OperatorHandle> noted_;
  std::mutex claiming_;
  std::set<std::string> claimed_;
  std::map<std::pair<std::string, DispatchKey>, std::unique_ptr<torch::Library>> libraries_;
  c10::RegistrationHandleRAII listening_{[] {}};
};

void Listener::onOperatorRegistered(const c10::OperatorHandle& op) { claims_.note(op); }
void Listener::onOperatorDeregistered(const c10::OperatorHandle& op) { claims_.forget(op); }

}  // namespace

void claim_operators_of(OperatorTable& table) { Claims::instance(table).claim_new(); }

}  // namespace tegula::inner
