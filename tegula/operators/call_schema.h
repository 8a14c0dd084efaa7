// A call in the words of rules: its OpSchema, or one per member of its lists.
#pragma once

#include <optional>
#include <vector>

#include "tegula/operators/call.h"
#include "tegula/rules/op_schema.h"

namespace tegula::inner {

// Where the tensors of a call are, in their order; none: not defined.
using TensorSpecs = std::vector<std::optional<DTensorSpec>>;

// Whether this is a row of another tensor (payload/rows.h) that the call writes: the ranks that
// have it write to their tiles of that.
bool is_written_row(const Call& call, const TensorPlace& place);

// On the call's mesh, where a plain tensor counts as replicated, and a written row is where its
// owners hold it. None if some tensors are on another mesh.
std::optional<TensorSpecs> specs_of(const Call& call);

struct CallSchema {
  OpSchema schema;
  std::vector<std::size_t> tensors;  // which tensors of the whole call the schema's are
};

// One schema; of an op over lists, one per member. `specs` are all on one mesh; the tensors' own
// payloads do not matter.
std::vector<CallSchema> schemas_of(const Call& call, const TensorSpecs& specs);

}  // namespace tegula::inner
