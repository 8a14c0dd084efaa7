// The idea: a cut factor cuts every tensor that has it; a result without it owes a reduction, and
// so must every product that does not have it. A debt passes through a sum of products if every
// product carries it in exactly one factor in which the op is linear.
#include "tegula/rules/axis_moves.h"

#include <algorithm>
#include <functional>

#include "tegula/base/text.h"

namespace tegula {
namespace {

Placement cut_by(const Term& term, Factor factor, const Placement& otherwise) {
  const std::optional<std::int64_t> dim = dim_of(term, factor);
  return dim ? Placement(Shard(*dim)) : otherwise;
}

// What a result owes that lacks a factor which is cut.
Placement debt_of(const Signature& signature, Factor factor) {
  if (factor != signature.looked_up) return Partial(signature.over);
  return MaskPartial(signature.factor_sizes[static_cast<std::size_t>(factor)]);
}

AxisMove all_alike(const Signature& signature) {
  return {std::vector<Placement>(signature.operands.size(), Replicate()),
          std::vector<Placement>(signature.results.size(), Replicate()), kNoFactor};
}

std::size_t product_count(const Signature& signature) {
  std::size_t count = 0;
  for (const Operand& operand : signature.operands) {
    if (operand.is_linear) count = std::max(count, operand.product + 1);
  }
  return count;
}

std::vector<std::size_t> linear_factors(const Signature& signature, std::size_t product) {
  std::vector<std::size_t> factors;
  for (std::size_t k = 0; k < signature.operands.size(); ++k) {
    const Operand& operand = signature.operands[k];
    if (operand.is_linear && operand.product == product) factors.push_back(k);
  }
  return factors;
}

// A product goes if none of its operands is given.
bool is_there(const Signature& signature, std::size_t product) {
  return std::any_of(signature.operands.begin(), signature.operands.end(),
                     [&](const Operand& o) { return o.product == product && o.is_given; });
}

bool product_has(const Signature& signature, std::size_t product, Factor factor) {
  return std::any_of(signature.operands.begin(), signature.operands.end(), [&](const Operand& o) {
    return o.product == product && dim_of(o.term, factor).has_value();
  });
}

// Whether what the result depends on is cut with the factor.
bool depends_on(const Result& result, const Signature& signature, Factor factor) {
  if (result.reads.empty()) return true;
  return std::any_of(result.reads.begin(), result.reads.end(), [&](std::size_t operand) {
    return dim_of(signature.operands[operand].term, factor).has_value();
  });
}

bool has_elements(const Result& result, const Signature& signature) {
  const Shape shape = shape_of(result.term, signature);
  return std::find(shape.begin(), shape.end(), 0) == shape.end();
}

// None if a product that the factor does not belong to cannot owe the sum. A result without
// elements owes nothing.
std::optional<AxisMove> cutting(const Signature& signature, Factor factor) {
  AxisMove move = all_alike(signature);
  move.cut = factor;
  for (std::size_t k = 0; k < signature.operands.size(); ++k) {
    move.operands[k] = cut_by(signature.operands[k].term, factor, Replicate());
  }
  bool owes = false;
  for (std::size_t r = 0; r < signature.results.size(); ++r) {
    const Result& result = signature.results[r];
    const bool may_owe = depends_on(result, signature, factor) && has_elements(result, signature);
    move.results[r] =
        cut_by(result.term, factor, may_owe ? debt_of(signature, factor) : Placement(Replicate()));
    owes = owes || owed_reduction(move.results[r]);
  }
  if (!owes) return move;
  for (std::size_t product = 0; product < product_count(signature); ++product) {
    if (!is_there(signature, product) || product_has(signature, product, factor)) continue;
    const std::vector<std::size_t> factors = linear_factors(signature, product);
    if (factors.empty() || signature.over != ReduceOp::Sum) return std::nullopt;
    move.operands[factors.front()] = Partial(ReduceOp::Sum);
  }
  return move;
}

// Of longer sums (a cat of many tensors) only the moves in which all products owe are listed.
constexpr std::size_t kMostMixedProducts = 3;

// A sum passes if all products owe it; an average also beside products that do not.
void add_linear_moves(const Signature& signature, ReduceOp op, std::vector<AxisMove>& moves) {
  const std::size_t products = product_count(signature);
  AxisMove move = all_alike(signature);
  std::fill(move.results.begin(), move.results.end(), Partial(op));
  const std::function<void(std::size_t, bool)> choose = [&](std::size_t product, bool owes) {
    if (product == products) {
      if (owes) moves.push_back(move);
      return;
    }
    if (!is_there(signature, product)) {
      choose(product + 1, owes);
      return;
    }
    for (std::size_t k : linear_factors(signature, product)) {
      move.operands[k] = Partial(op);
      choose(product + 1, true);
      move.operands[k] = Replicate();
    }
    if (op == ReduceOp::Avg && products <= kMostMixedProducts) choose(product + 1, owes);
  };
  if (products > 0 && !signature.results.empty()) choose(0, false);
}

void add_monotone_moves(const Signature& signature, std::vector<AxisMove>& moves) {
  if (signature.trait == Trait::None || signature.operands.empty()) return;
  const bool swaps = signature.trait == Trait::Decreasing;
  for (ReduceOp op : {ReduceOp::Max, ReduceOp::Min}) {
    const ReduceOp other = op == ReduceOp::Max ? ReduceOp::Min : ReduceOp::Max;
    AxisMove move = all_alike(signature);
    move.operands.front() = Partial(op);
    std::fill(move.results.begin(), move.results.end(), Partial(swaps ? other : op));
    moves.push_back(move);
  }
}

// What is owed does not matter to an op that looks at shapes alone.
void add_moves_of_shapes(const Signature& signature, std::vector<AxisMove>& moves) {
  if (signature.reads_values) return;
  for (ReduceOp op : {ReduceOp::Sum, ReduceOp::Avg, ReduceOp::Max, ReduceOp::Min}) {
    AxisMove move = all_alike(signature);
    move.operands.front() = Partial(op);
    moves.push_back(move);
  }
}

}  // namespace

std::vector<AxisMove> moves_without_debts(const Signature& signature) {
  std::vector<AxisMove> moves;
  moves.reserve(signature.factor_sizes.size() + 1);
  moves.push_back(all_alike(signature));
  for (std::size_t factor = 0; factor < signature.factor_sizes.size(); ++factor) {
    if (signature.is_whole[factor]) continue;
    auto move = cutting(signature, static_cast<Factor>(factor));
    if (move) moves.push_back(std::move(*move));
  }
  return moves;
}

std::vector<AxisMove> axis_moves(const Signature& signature) {
  std::vector<AxisMove> moves = moves_without_debts(signature);
  add_linear_moves(signature, ReduceOp::Sum, moves);
  add_linear_moves(signature, ReduceOp::Avg, moves);
  add_monotone_moves(signature, moves);
  add_moves_of_shapes(signature, moves);
  return moves;
}

std::string to_string(const AxisMove& move) {
  const auto listed = [](const std::vector<Placement>& placements) {
    std::vector<std::string> texts;
    for (const Placement& placement : placements) texts.push_back(to_string(placement));
    return join(texts);
  };
  return listed(move.operands) + " -> " + listed(move.results);
}

}  // namespace tegula
