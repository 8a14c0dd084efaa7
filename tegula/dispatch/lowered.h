// Ops that are carried out by other ops on DTensors, where a dim that they work along is cut: what
// has to be exchanged are totals, not tensors.
#pragma once

#include <optional>
#include <vector>

#include "tegula/dispatch/call.h"

namespace tegula {

// The results; none if the op is not made so, or a rule does better.
std::optional<std::vector<c10::IValue>> run_lowered(const Call& call);

}  // namespace tegula
