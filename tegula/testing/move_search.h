// Which moves would be right, whatever the rule says: found by trying all of them.
#pragma once

#include <string>
#include <vector>

#include "tegula/rules/axis_moves.h"
#include "tegula/rules/rule_table.h"
#include "tegula/testing/sample.h"

namespace tegula {

// Some ops trust their caller that operands fit and read beyond the end where they do not: of these
// only cuts are tried that cut every operand which has a dim of that size.
enum class OperandsTried { All, FittingOnly };

// Moves that give the op's results without communication although the rule does not list them:
// operands R, S or P(sum), results R, S or P(sum, max, min, product). Tried with two draws of
// numbers on 2 and 3 ranks, so that accidents do not count. Left away: what follows from a better
// move with the same operands (R is also the maximum of equal parts). Of an op that writes: none.
std::vector<AxisMove> unused_moves(const RuleTable& rules, const Sample& sample,
                                   OperandsTried tried = OperandsTried::All);

}  // namespace tegula
