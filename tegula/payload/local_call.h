// Calling an operator on plain tensors from inside the kernel: below autograd and autocast, whose
// work on the outer tensors is done.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <vector>

namespace tegula {

// Lets calls on plain tensors pass us by although a BuildDistributed stands.
class PassUsBy {
 public:
  PassUsBy() : saved_(c10::impl::tls_local_dispatch_key_set()) {
    c10::impl::LocalDispatchKeySet without = saved_;
    c10::DispatchKeySet ours(c10::DispatchKey::PrivateUse3);  // libtorch 2.6: raw_repr is not const
    if (!without.included_.has_all(ours)) return;
    without.included_ = c10::DispatchKeySet(c10::DispatchKeySet::RAW,
                                            without.included_.raw_repr() & ~ours.raw_repr());
    without.excluded_ = without.excluded_.remove(c10::DispatchKey::BackendSelect);
    c10::impl::_force_tls_local_dispatch_key_set(without);
  }
  ~PassUsBy() { c10::impl::_force_tls_local_dispatch_key_set(saved_); }
  PassUsBy(const PassUsBy&) = delete;
  PassUsBy& operator=(const PassUsBy&) = delete;

 private:
  c10::impl::LocalDispatchKeySet saved_;
};

class BelowAutograd {
 private:
  PassUsBy ours_;
  at::AutoDispatchBelowADInplaceOrView autograd_;
  c10::impl::ExcludeDispatchKeyGuard autocast_{c10::autocast_dispatch_keyset};
};

inline std::vector<c10::IValue> call_plain(const c10::OperatorHandle& op,
                                           std::vector<c10::IValue> arguments) {
  const BelowAutograd below;
  op.callBoxed(&arguments);
  return arguments;
}

}  // namespace tegula
