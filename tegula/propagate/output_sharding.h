// OutputSharding: the decision about one call: where its operands must be, and how its results are
// distributed then.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "tegula/rules/op_schema.h"
#include "tegula/rules/signature.h"

namespace tegula {

// A result but for its element type, which the op itself decides.
struct ResultSharding {
  Placements placements;
  ShardOrder order;
  Shape shape;
  Shape stride;

  DTensorSpec spec(const DeviceMesh& mesh, DType dtype) const {
    return {mesh, placements, order, TensorMeta(shape, stride, dtype)};
  }
};

// A dim of an operand that is cut, and that the values of another operand are indices into.
struct CutLookup {
  std::size_t operand = 0;
  std::size_t dim = 0;
  std::vector<std::size_t> index_dims = {};  // of the result: those that the indices have
};

struct OutputSharding {
  // One per tensor of the schema; the schema's own spec if the tensor stays as it is.
  std::vector<std::optional<DTensorSpec>> operands;
  std::vector<ResultSharding> results;
  // Arguments that list sizes: the local ones are those of a tensor distributed like this.
  std::vector<std::pair<std::size_t, ResultSharding>> size_arguments;
  std::optional<CutLookup> lookup;
  // What the local call gives is multiplied by this rank's share of the elements of these.
  std::vector<DimCut> averaged;
};

}  // namespace tegula
