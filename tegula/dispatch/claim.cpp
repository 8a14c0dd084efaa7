// The idea: a fallback alone is not enough, since libtorch's composite kernels outrank it. So every
// operator is claimed by name: one that computes gets the Kernel below autograd; one that libtorch
// composes of others keeps its composition, with a guard around it. The dispatcher tells us of
// operators registered later while it holds its lock, so they are noted and claimed at the next
// call. About 3,000 operators; a few milliseconds, once.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/library.h>

#include <atomic>
#include <map>
#include <mutex>
#include <set>

#include "tegula/dispatch/kernel.h"
#include "tegula/dispatch/payload.h"
#include "tegula/dispatch/unboxed.h"

namespace tegula {
namespace {

using c10::DispatchKey;

// What `tensor.set_data(other)` asks: a tensor may become a DTensor and back.
bool can_become(const at::Tensor& self, const at::Tensor& from) {
  return payload_of(self) || payload_of(from) ||
         self.unsafeGetTensorImpl()->has_compatible_shallow_copy_type(from.key_set());
}

// Compositions that make no tensors of their own and write nowhere: what they call meets the kernel
// soon enough, and they are called often.
bool needs_no_claim(const std::string& name) {
  static const std::set<std::string> names = {"aten::linear",
                                              "aten::matmul",
                                              "aten::layer_norm",
                                              "aten::softmax.int",
                                              "aten::log_softmax.int",
                                              "aten::reshape",
                                              "aten::flatten.using_ints",
                                              "aten::contiguous",
                                              "aten::chunk",
                                              "aten::narrow",
                                              "aten::view_as",
                                              "aten::expand_as"};
  return names.contains(name);
}

constexpr const char* kBecomes = "aten::_has_compatible_shallow_copy_type";

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
  static Claims& instance() {
    static Claims& claims = *new Claims();  // operators outlive every static object
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

  Claims() {
    for (DispatchKey key : {DispatchKey::PrivateUse3, DispatchKey::AutogradPrivateUse3,
                            DispatchKey::Meta, DispatchKey::AutogradMeta}) {
      library("aten", key).impl("_has_compatible_shallow_copy_type", TORCH_FN(can_become));
    }
    // an operator without a gradient says so in backward, as with plain tensors
    library("_", DispatchKey::AutogradPrivateUse3)
        .fallback(torch::autograd::basicAutogradNotImplementedFallback());
    for (DispatchKey key :
         {DispatchKey::SparsePrivateUse3, DispatchKey::SparseCsrPrivateUse3,
          DispatchKey::QuantizedPrivateUse3, DispatchKey::NestedTensorPrivateUse3}) {
      library("_", key).fallback(
          torch::CppFunction::makeFromBoxedFunction<&refuse_other_layouts>());
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

  void claim(const c10::OperatorHandle& op) {
    const c10::OperatorName& name = op.operator_name();
    const std::string space = name.name.substr(0, name.name.find("::"));
    if (!op.hasSchema() || toString(name) == kBecomes || claimed_.contains(toString(name))) return;
    if (op.hasKernelForDispatchKey(DispatchKey::PrivateUse3) || needs_no_claim(toString(name))) {
      return;
    }
    const std::string own_name = toString(name).substr(space.size() + 2);
    if (op.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd)) {
      for (DispatchKey key : {DispatchKey::PrivateUse3, DispatchKey::AutogradPrivateUse3}) {
        library(space, key)
            .impl(own_name.c_str(),
                  torch::CppFunction::makeFromBoxedFunctor(std::make_unique<CompositeKernel>(op)));
      }
    } else if (const MakeUnboxed unboxed = unboxed_kernel(toString(name))) {
      library(space, DispatchKey::PrivateUse3).impl(own_name.c_str(), unboxed(op, claimed_.size()));
    } else {
      library(space, DispatchKey::PrivateUse3)
          .impl(own_name.c_str(), torch::CppFunction::makeFromBoxedFunctor(
                                      std::make_unique<Kernel>(op, claimed_.size())));
    }
    claimed_.insert(toString(name));
  }

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

void claim_operators() { Claims::instance().claim_new(); }

}  // namespace tegula
