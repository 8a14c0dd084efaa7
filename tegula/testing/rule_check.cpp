// The idea: every move that the rule allows, for each number of ranks and each way to cut (evenly,
// unequally, all on the last rank), is played and compared with the whole.
#include "tegula/testing/rule_check.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "tegula/base/error.h"
#include "tegula/base/text.h"
#include "tegula/rules/axis_moves.h"
#include "tegula/spec/slices.h"
#include "tegula/testing/parts.h"
#include "tegula/testing/played_call.h"
#include "tegula/testing/sample_rule.h"

namespace tegula {

using namespace inner;

namespace {

constexpr std::uint64_t kSeedOfCalls = 1;

// libtorch goes on with a list of kernels and a backtrace.
std::string first_line(const char* text) { return {text, std::strcspn(text, "\n")}; }

// Ways to cut a dim among ranks: evenly, unequally, all on the last rank.
std::vector<Cut> cuts_of(std::int64_t size, std::int64_t ranks) {
  std::vector<Cut> cuts{Cut()};
  if (ranks == 1) return cuts;
  std::vector<std::int64_t> unequal(static_cast<std::size_t>(ranks), 0);
  std::vector<std::int64_t> last = unequal;
  for (std::int64_t k = 0; k < size; ++k) {
    ++unequal[static_cast<std::size_t>(k * k % ranks)];  // 0, 1 come up more often
  }
  last.back() = size;
  cuts.push_back(Cut::ragged(unequal));
  cuts.push_back(Cut::ragged(last));
  return cuts;
}

bool leaves_a_rank_without(const Cut& cut, std::int64_t size, std::int64_t ranks) {
  if (cut.is_even()) return (size + ranks - 1) / ranks * (ranks - 1) >= size;
  const std::vector<std::int64_t>& sizes = *cut.sizes_of(0);
  return std::find(sizes.begin(), sizes.end(), 0) != sizes.end();
}

// The move with its shards cut like this.
AxisMove with_cut(AxisMove move, const Cut& cut) {
  for (auto* placements : {&move.operands, &move.results}) {
    for (Placement& placement : *placements) {
      if (const Shard* shard = as_shard(placement)) placement = Shard(shard->dim(), cut);
    }
  }
  return move;
}

// One rule, one sample, one number of ranks.
class Check {
 public:
  Check(const Sample& sample, const RuleTable& rules, std::int64_t ranks)
      : sample_(sample),
        call_(sample, ranks, kSeedOfCalls),
        signature_(signature_for(rules, call_)) {}

  std::vector<std::string> faults() {
    if (!signature_) return {to_string(sample_) + ": no rule covers it"};
    for (const AxisMove& move : axis_moves(*signature_)) check(move);
    return std::move(faults_);
  }

 private:
  void check(const AxisMove& move) {
    if (!leaves_written_alone(move)) return;
    if (move.cut == kNoFactor) return check_cut(move);
    const std::int64_t size = signature_->factor_sizes[static_cast<std::size_t>(move.cut)];
    const std::int64_t ranks = call_.axis().size();
    for (const Cut& cut : cuts_of(size, ranks)) {
      const bool needs_elements = needs_elements_of(*signature_, move.cut);
      if (needs_elements && leaves_a_rank_without(cut, size, ranks)) continue;
      check_cut(with_cut(move, cut));
    }
  }

  // What is written stays where it is, so that only moves are made in which the result is there.
  bool leaves_written_alone(const AxisMove& move) const {
    for (std::size_t k : call_.schema().written) {
      for (const Placement& result : move.results) {
        if (result != move.operands[k]) return false;
      }
    }
    return true;
  }

  void check_cut(const AxisMove& move) {
    try {
      const std::vector<std::vector<at::Tensor>> parts = call_.play(placing_of(move));
      for (std::size_t r = 0; r < parts.size(); ++r) check_result(move, r, parts[r]);
    } catch (const std::exception& error) {
      note(move, "the op fails: " + first_line(error.what()));
    }
  }

  void check_result(const AxisMove& move, std::size_t result,
                    const std::vector<at::Tensor>& parts) {
    const at::Tensor& whole = call_.results()[result];
    if (!whole.defined()) return;
    const std::string fault =
        fault_of(parts, placement_of(move, result), whole, call_.axis(), call_.rounding());
    if (!fault.empty()) note(move, "result " + std::to_string(result) + " " + fault);
  }

  const Placement& placement_of(const AxisMove& move, std::size_t result) const {
    if (result >= call_.returned_count()) {
      return move.operands[call_.schema().written[result - call_.returned_count()]];
    }
    if (result < move.results.size()) return move.results[result];
    throw InternalError("the rule says nothing about result " + std::to_string(result));
  }

  Placing placing_of(const AxisMove& move) const {
    Placing placing{move.operands};
    for (const SizeArgument& sizes : signature_->size_arguments) {
      placing.sizes.emplace_back(sizes.argument, placement_of(sizes.term, move));
    }
    if (move.cut != kNoFactor && move.cut == signature_->looked_up) {
      for (std::size_t k = 0; k < move.operands.size(); ++k) {
        if (as_shard(move.operands[k])) placing.looked_up = k;
      }
    }
    placing.shares = shares_of(move);
    return placing;
  }

  // Of the elements that the op divides by, if the move cuts these.
  std::vector<double> shares_of(const AxisMove& move) const {
    const std::vector<Factor>& averaged = signature_->averaged;
    if (std::find(averaged.begin(), averaged.end(), move.cut) == averaged.end()) return {};
    const std::int64_t size = signature_->factor_sizes[static_cast<std::size_t>(move.cut)];
    const Term term{{move.cut}, {size}};
    const DTensorSpec spec(call_.axis(), {placement_of(term, move)}, TensorMeta({size}, DType::U8));
    std::vector<double> shares;
    for (std::int64_t rank = 0; rank < call_.axis().size(); ++rank) {
      shares.push_back(static_cast<double>(local_shape(spec, {rank})[0]) /
                       static_cast<double>(size));
    }
    return shares;
  }

  // Cut as the operand is that has the factor too.
  static Placement placement_of(const Term& term, const AxisMove& move) {
    for (std::size_t dim = 0; dim < term.factors.size() && move.cut != kNoFactor; ++dim) {
      if (term.factors[dim] != move.cut) continue;
      for (const Placement& operand : move.operands) {
        if (const Shard* shard = as_shard(operand)) {
          return Shard(static_cast<std::int64_t>(dim), shard->cut());
        }
      }
    }
    return Replicate();
  }

  void note(const AxisMove& move, const std::string& what) {
    faults_.push_back(to_string(sample_) + " on " + counted(call_.axis().size(), "rank", "ranks") +
                      ", " + to_string(move) + ": " + what);
  }

  const Sample& sample_;
  PlayedCall call_;
  std::optional<Signature> signature_;
  std::vector<std::string> faults_;
};

}  // namespace

std::vector<std::string> faults_of_rule(const RuleTable& rules, const Sample& sample,
                                        std::int64_t ranks) {
  try {
    return Check(sample, rules, ranks).faults();
  } catch (const std::exception& error) {
    return {to_string(sample) + ": " + first_line(error.what())};
  }
}

std::vector<std::string> unforeseen_strides(const RuleTable& rules, const Sample& sample) {
  const PlayedCall call(sample, 1, kSeedOfCalls);
  const std::optional<Signature> signature = signature_for(rules, call);
  std::vector<std::string> texts;
  for (std::size_t r = 0; signature && r < call.returned_count(); ++r) {
    const at::Tensor& result = call.results()[r];
    if (!result.defined() || r >= signature->results.size()) continue;
    const Shape foreseen = result_stride(signature->results[r], *signature, call.schema());
    if (foreseen.size() != static_cast<std::size_t>(result.dim())) continue;  // a fault by itself
    for (std::int64_t dim = 0; dim < result.dim(); ++dim) {
      if (result.size(dim) == 1 || result.stride(dim) == foreseen[static_cast<std::size_t>(dim)]) {
        continue;
      }
      texts.push_back(to_string(sample) + ": result " + std::to_string(r) + " has strides " +
                      bracketed(result.strides().vec()) + ", the rule says " + bracketed(foreseen));
      break;
    }
  }
  return texts;
}

}  // namespace tegula
