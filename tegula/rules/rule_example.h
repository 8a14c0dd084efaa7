// A call that shows what a rule does: the arguments of an operator as text, whole tensors by their
// type and shape.
//
//   "f32[8, 6], dim=[1], keepdim=false"        sum.dim_IntList
//   "[f32[8, 6], f32[8, 4]], dim=1"            cat
//   "f32[8, 6], none, i64[8]"                  an optional tensor that is not given
#pragma once

#include <string>

#include "tegula/rules/rule_table.h"

namespace tegula::inner {

// The arguments of the rule's example: as it was registered, or made from the rule's text with
// another size for each letter. Empty if a rule without text came without one.
std::string example_arguments(const Rule& rule);

// That call, its tensors replicated on the mesh. UsageError if the text is none.
OpSchema example_call(const Rule& rule, const DeviceMesh& mesh);

}  // namespace tegula::inner
