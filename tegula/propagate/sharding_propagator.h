// ShardingPropagator: decides how a call is carried out without gathering what can stay cut.
//
// A rule says what one mesh axis may do (rules/axis_moves.h). Each axis of the mesh chooses by
// itself, the cheapest of the legal moves, so the time it takes is linear in the axes:
//
//   - a factor is cut only by an axis that cuts it in some operand already: data leads
//   - moves without communication come first, then those of least time by the cost model, what
//     results will owe included
//   - among equals, the one that cuts
//
// Where operands cut a factor with the same axes in different ways (shard orders, sizes, blocks),
// the largest leads, and what is written always does.
#pragma once

#include <optional>

#include "tegula/plan/cost_model.h"
#include "tegula/propagate/output_sharding.h"
#include "tegula/rules/axis_moves.h"
#include "tegula/rules/rule_table.h"

namespace tegula {

class ShardingPropagator {
 public:
  explicit ShardingPropagator(const RuleTable& rules, CostModel model = {})
      : rules_(rules), model_(std::move(model)) {}

  // None if no rule covers the call, or no legal move leaves what is written in its place.
  // All tensors of the schema must be on one mesh. Pure: equal schemas and models give equal
  // decisions on all ranks.
  std::optional<OutputSharding> propagate(const OpSchema& schema) const;

 private:
  const RuleTable& rules_;
  CostModel model_;
};

}  // namespace tegula
