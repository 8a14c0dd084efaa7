// Carrying out a decision: the op on this rank's tiles.
#pragma once

#include <ATen/core/stack.h>

#include "tegula/dispatch/call.h"
#include "tegula/dispatch/decision.h"

namespace tegula {

// Replaces the arguments on top of the stack by the op's results. Communicates as the routes say.
void run_on_tiles(const c10::OperatorHandle& op, const OpFacts& facts, const OnTiles& decision,
                  torch::jit::Stack& stack);

// The same for a draft that has not been run yet; gives the decision. Of a rank outside of the mesh
// nothing is run; it gets tensors of the same specs as the others.
OnTiles run_draft(const Call& call, Draft draft, torch::jit::Stack& stack);

}  // namespace tegula
