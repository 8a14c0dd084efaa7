// Named signatures: rules of operators whose dims depend on their arguments. Each function gives
// what RuleTable::add takes; the numbers are places of arguments in the operator's signature.
#pragma once

#include <cstddef>
#include <vector>

#include "tegula/rules/rule_table.h"

namespace tegula::inner {

// self is reduced over the dims that argument `dims` names (a number, a list, or none: all), kept
// as one element if the flag at `keepdim` is on. `linear`: a sum that self owes passes.
struct ReductionForm {
  ReduceOp over = ReduceOp::Sum;
  bool is_linear = false;
  std::size_t dims = 1;
  std::size_t keepdim = 2;
  std::size_t results = 1;
  bool needs_elements = false;
  bool is_mean = false;  // of what is reduced
};
SignatureOf reduction(ReductionForm form);
// ... over all dims, whatever the arguments.
SignatureOf reduction_of_all(ReductionForm form);
// The same shapes, but the reduced dims must stay whole.
SignatureOf reduction_within(ReductionForm form);

// All tensors have one shape; the dim that argument `dim` names must stay whole.
SignatureOf along_dim(std::size_t dim, RuleText text, ResultLayout layout = ResultLayout::RowMajor);

// The rule, but that no sum passes where the element type at argument `dtype` drops fractions.
SignatureOf with_result_type(std::size_t dtype, SignatureOf rule);
// Whether a sum of elements can be converted summand by summand.
bool converts_linearly(DType from, DType to);

// The tensors of the list at argument 0, joined along the dim at `dim`.
SignatureOf concatenation(std::size_t dim);
// ... as slices of a new dim.
SignatureOf stacking(std::size_t dim);

// A new tensor of self's shape, whatever self holds. Of the arguments from `options` on (element
// type, layout, device, pinning, memory format) the first and the last may be given.
SignatureOf like_self(std::size_t options);

// Pieces of signatures
// -----------------------------------------------------------------------------

// A factor of its own for each dim of a shape.
Term own_factors(Signature& signature, const Shape& shape);

// The tensor at an argument that may be left out, as the next operand; nothing if there is none.
void add_optional_operand(Signature& signature, const OpSchema& schema, std::size_t argument,
                          const Term& term);
// Whether it has this shape, if it is given.
bool has_shape_if_given(const OpSchema& schema, std::size_t argument, const Shape& shape);

// A dim counted through from the front; a negative one counts from the end. UsageError if there is
// none such.
std::size_t wrapped_dim(std::int64_t dim, std::size_t dims);

}  // namespace tegula::inner
