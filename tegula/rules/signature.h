// Signature: what one call does to dims, in numbers: which dims of operands and results belong
// together (a factor), how the op combines its operands, and what that makes of cuts and debts.
//
// A factor is a set of dims, at most one per tensor, that an axis cuts together. Rules give a
// signature (from text, or by a function of the arguments); everything else follows from it:
// the legal moves (axis_moves.h), the results' shapes, the size arguments of the local call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tegula/placement/reduce_op.h"
#include "tegula/rules/op_schema.h"
#include "tegula/rules/rule_text.h"

namespace tegula {

using Factor = std::int32_t;
// A dim of its own that is never cut (broadcast, of one element, new).
inline constexpr Factor kNoFactor = -1;

// A tensor's dims. `sizes` matter where there is no factor.
struct Term {
  std::vector<Factor> factors;
  Shape sizes;
  bool operator==(const Term&) const = default;
};

// The dim that belongs to a factor, if the term has one.
std::optional<std::int64_t> dim_of(const Term& term, Factor factor);

// How a result lies in memory.
enum class ResultLayout : std::uint8_t {
  RowMajor,
  LikeOperands,  // dims in the order that the operands have them in, as libtorch's pointwise ops do
  LikeFirst      // as the first operand, densely
};

struct Result {
  Term term;
  ResultLayout layout = ResultLayout::RowMajor;
  std::vector<std::size_t> memory_order = {};  // if given: dims from the outermost to the innermost
  // The operands that it depends on; empty: all. Where none of them has a factor that is cut, the
  // result is whole on every rank.
  std::vector<std::size_t> reads = {};
};

// An operand of a product. The op is linear in it, or only looks at it.
struct Operand {
  Term term;
  bool is_linear = false;
  std::size_t product = 0;  // operands of one product are multiplied, products are added
  bool is_given = true;
};

// What else the op lets pass, besides the sums that linear operands carry.
enum class Trait : std::uint8_t {
  None,
  Increasing,  // max and min of parts pass
  Decreasing   // they change places
};

// An argument that lists sizes, or that is one: an entry per dim of the term, to be replaced by
// local sizes.
struct SizeArgument {
  std::size_t argument = 0;
  Term term;
};

struct Signature {
  std::vector<std::int64_t> factor_sizes;
  std::vector<bool> is_whole;     // per factor: no axis may cut it
  std::vector<Operand> operands;  // one per tensor of the schema
  std::vector<Result> results;
  ReduceOp over = ReduceOp::Sum;  // how parts combine when a factor that a result lacks is cut
  Trait trait = Trait::None;
  bool needs_elements = false;  // the op fails on a shard without elements of a cut factor ...
  std::vector<Factor> may_be_empty = {};  // ... but for these
  bool reads_values = true;               // false: results depend on the operands' shapes alone
  // A factor of one of two operands that the values of the other are indices into: where it is cut,
  // the local call looks up what its shard has, and the result, which has the indices' factors in
  // their order, is MaskPartial.
  Factor looked_up = kNoFactor;
  // Factors whose elements the op counts, to divide its results by the number: where one is cut,
  // what the local call gives is multiplied by this rank's share of them.
  std::vector<Factor> averaged = {};
  std::vector<SizeArgument> size_arguments = {};

  Factor add_factor(std::int64_t size) {
    factor_sizes.push_back(size);
    is_whole.push_back(false);
    return static_cast<Factor>(factor_sizes.size() - 1);
  }
};

// Whether the op fails on a shard without elements of the factor.
bool needs_elements_of(const Signature& signature, Factor factor);

// None if the operands' shapes do not fit the text.
std::optional<Signature> signature_of(const RuleForm& form, const OpSchema& schema);

// What the call says at an argument of sizes.
Shape sizes_at(const OpSchema& schema, std::size_t argument);

// The whole shape.
Shape shape_of(const Term& term, const Signature& signature);

// Strides of a result.
Shape result_stride(const Result& result, const Signature& signature, const OpSchema& schema);

}  // namespace tegula
