// The universal path: whole operands on every rank, the plain op, replicated results; what the op
// writes goes back to where it came from. Right for every op on any mesh; costs one gather per
// operand that is not replicated. Rules are proved against it.
#pragma once

#include <functional>
#include <vector>

#include "tegula/operators/call.h"

namespace tegula::inner {

// The op's results, as the schema lists them. Called by all ranks of the call's mesh; a rank
// outside takes no part and gets tensors of the same specs.
std::vector<c10::IValue> run_universal(const Call& call);

// The same; the plain op is run by calling `around` with it.
using PlainOp = std::function<std::vector<c10::IValue>()>;
std::vector<c10::IValue> run_universal(
    const Call& call, const std::function<std::vector<c10::IValue>(const PlainOp&)>& around);

// What the op gives on tensors of the whole's shapes, for a rank that has no data. UsageError if
// that depends on the data.
std::vector<c10::IValue> imagined_results(const Call& call);

// UsageError if a sparse, quantized or nested tensor is among the arguments.
void check_readable(const Call& call);

// Results of a plain op as replicated DTensors over the call's mesh; arguments that it wrote stand
// for themselves. UsageError for sparse, quantized, nested ... results.
std::vector<c10::IValue> distributed_results(const Call& call,
                                             const std::vector<c10::IValue>& results);

}  // namespace tegula::inner
