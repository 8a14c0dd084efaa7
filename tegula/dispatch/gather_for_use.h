// Tensors that are cut at rest and gathered when they are used (payload/policies.h, Gathering): the
// weights of a fully sharded model.
#pragma once

#include "tegula/operators/call.h"
#include "tegula/operators/operator_notes.h"

namespace tegula::inner {

// How a call on such tensors is carried out. Together with others, activations say, they are
// gathered first; what is computed of them alone, element by element, is gathered when it is used,
// as they are. Null if they are as other tensors for this call: it writes them, is a view, or
// combines elements at the same place (a weight and its average), or there are no such tensors.
Recipe gather_for_use(const Call& call);

}  // namespace tegula::inner
