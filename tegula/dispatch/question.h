// A call in the words of rules: what a rule is asked about it.
#pragma once

#include <optional>
#include <vector>

#include "tegula/dispatch/call.h"
#include "tegula/rules/op_schema.h"

namespace tegula {

struct Question {
  OpSchema schema;
  std::vector<std::size_t> tensors;  // which tensors of the whole call the schema's are
};

// One question; of an op over lists, one per member. `specs` are those of the call's tensors, in
// their order, all on one mesh; none: not defined. The tensors' own payloads do not matter.
std::vector<Question> questions_about(const Call& call,
                                      const std::vector<std::optional<DTensorSpec>>& specs);

}  // namespace tegula
