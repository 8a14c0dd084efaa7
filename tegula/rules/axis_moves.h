// What one mesh axis may do in a call: the legal combinations of operands' and results' placements.
//
//   mm "mk * kn -> mn":   R    R    -> R
//                         S(0) R    -> S(0)       m is cut
//                         R    S(1) -> S(1)       n is cut
//                         S(1) S(0) -> P(sum)     k is cut: a sum is owed
//                         P    R    -> P(sum)     linear in the first
//                         R    P    -> P(sum)     and in the second
#pragma once

#include <string>
#include <vector>

#include "tegula/placement/placement.h"
#include "tegula/rules/signature.h"

namespace tegula {

struct AxisMove {
  std::vector<Placement> operands;  // one per tensor of the schema; R for one that is not given
  std::vector<Placement> results;
  Factor cut = kNoFactor;  // the factor that the axis cuts, if it does
  bool operator==(const AxisMove&) const = default;
};

// All of them; everything replicated comes first.
std::vector<AxisMove> axis_moves(const Signature& signature);
// The first of them: those that do without an operand that owes something to begin with.
std::vector<AxisMove> moves_without_debts(const Signature& signature);

// "S(0), R -> S(0)"
std::string to_string(const AxisMove& move);

}  // namespace tegula
