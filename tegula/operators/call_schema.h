// A call in the words of rules: its OpSchema, or one per member of its lists.
#pragma once

#include <optional>
#include <vector>

#include "tegula/operators/call.h"
#include "tegula/rules/op_schema.h"

namespace tegula::inner {

struct CallSchema {
  OpSchema schema;
  std::vector<std::size_t> tensors;  // which tensors of the whole call the schema's are
};

// One schema; of an op over lists, one per member. `specs` are those of the call's tensors, in
// their order, all on one mesh; none: not defined. The tensors' own payloads do not matter.
std::vector<CallSchema> schemas_of(const Call& call,
                                   const std::vector<std::optional<DTensorSpec>>& specs);

}  // namespace tegula::inner
