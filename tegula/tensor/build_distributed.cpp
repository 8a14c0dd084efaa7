// How a BuildDistributed (payload/guards.h) begins: here, because operators have to be claimed
// before, and a program may build its model before it has made any other DTensor.
#include "tegula/families/families.h"
#include "tegula/payload/guards.h"
#include "tegula/payload/innermost_build.h"

namespace tegula {

using namespace inner;

namespace {

// Calls reach us, and none is sent on by its device before.
c10::impl::LocalDispatchKeySet by_us() {
  claim_operators();
  c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
  keys.included_ = keys.included_ | c10::DispatchKeySet(c10::DispatchKey::PrivateUse3);
  keys.excluded_ = keys.excluded_ | c10::DispatchKeySet(c10::DispatchKey::BackendSelect);
  return keys;
}

}  // namespace

BuildDistributed::BuildDistributed(const DeviceMesh& mesh, PlacementsFor placements)
    : mesh_(mesh),
      placements_(std::move(placements)),
      outer_(innermost_build()),
      // Not an IncludeDispatchKeyGuard: that of libtorch 2.6 leaves a bit behind.
      keys_(by_us()) {
  innermost_build() = this;
}

}  // namespace tegula
