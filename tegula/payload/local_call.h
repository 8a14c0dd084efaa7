// Calling an operator on plain tensors from inside the kernel: below autograd and autocast, whose
// work on the outer tensors is done.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <vector>

namespace tegula::inner {

// Lets calls on plain tensors pass us by although a BuildDistributed stands.
class PassUsBy {
 public:
  PassUsBy() : PassUsBy(c10::DispatchKeySet()) {}
  ~PassUsBy() { c10::impl::_force_tls_local_dispatch_key_set(saved_); }
  PassUsBy(const PassUsBy&) = delete;
  PassUsBy& operator=(const PassUsBy&) = delete;

 protected:
  // ... and these keys too.
  explicit PassUsBy(c10::DispatchKeySet excluded)
      : saved_(c10::impl::tls_local_dispatch_key_set()) {
    c10::impl::LocalDispatchKeySet without = saved_;
    c10::DispatchKeySet ours(c10::DispatchKey::PrivateUse3);  // libtorch 2.6: raw_repr is not const
    if (without.included_.has_all(ours)) {
      without.included_ = c10::DispatchKeySet(c10::DispatchKeySet::RAW,
                                              without.included_.raw_repr() & ~ours.raw_repr());
      without.excluded_ = without.excluded_.remove(c10::DispatchKey::BackendSelect);
    }
    without.excluded_ = without.excluded_ | excluded;
    c10::impl::_force_tls_local_dispatch_key_set(without);
  }

 private:
  c10::impl::LocalDispatchKeySet saved_;
};

// One write to the thread's keys, where libtorch's own guards make one each.
class BelowAutograd : public PassUsBy {
 public:
  BelowAutograd()
      : PassUsBy(c10::autograd_dispatch_keyset_with_ADInplaceOrView |
                 c10::autocast_dispatch_keyset) {}
};

inline std::vector<c10::IValue> call_plain(const c10::OperatorHandle& op,
                                           std::vector<c10::IValue> arguments) {
  const BelowAutograd below;
  op.callBoxed(&arguments);
  return arguments;
}

}  // namespace tegula::inner
