// The idea: rule -> signature -> moves (once per call), then for each axis the cheapest move, then
// for each factor one way to cut it, then the specs that follow. O(axes * moves * operands).
#include "tegula/propagate/sharding_propagator.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "tegula/base/error.h"
#include "tegula/plan/plan.h"
#include "tegula/propagate/transition_cost.h"

namespace tegula {

using namespace inner;

namespace {

// Whether a rank is left without elements of the dim.
bool has_empty_shard(const DimCut& cut, std::size_t mesh_axes) {
  for (std::int64_t shard = 0; shard < cut.shard_count(); ++shard) {
    Coordinate at(mesh_axes, 0);
    const std::vector<std::int64_t> position = cut.position_of(shard);
    for (std::size_t k = 0; k < position.size(); ++k) at[cut.axes()[k].axis] = position[k];
    if (cut.local_size(at) == 0) return true;
  }
  return false;
}

// One call on its way to a decision.
class Choice {
 public:
  Choice(const OpSchema& schema, Signature signature, const CostModel& model)
      : schema_(schema), signature_(std::move(signature)), mesh_(find_mesh(schema)), model_(model) {
    for (std::size_t k = 0; k < schema.tensors.size(); ++k) {
      bytes_.push_back(schema.has(k) ? tile_bytes(schema.spec(k)) : 0);
    }
    is_written_.resize(schema.tensors.size(), false);
    for (std::size_t k : schema.written) is_written_[k] = true;
  }

  // None if some axis has no legal move, what is written has another shape than the results, or
  // axes would leave reductions that do not commute.
  std::optional<OutputSharding> decide() {
    if (!is_written_as_it_is()) return std::nullopt;
    do {
      moves_ = is_anything_owed() ? axis_moves(signature_) : moves_without_debts(signature_);
      chosen_.clear();
      for (std::size_t axis = 0; axis < mesh_.ndim(); ++axis) {
        const AxisMove* best = cheapest(axis);
        if (!best) return std::nullopt;
        chosen_.push_back(best);
      }
      find_cuts();
    } while (keep_empty_factors_whole());
    OutputSharding decision;
    for (std::size_t k = 0; k < schema_.tensors.size(); ++k) {
      decision.operands.push_back(schema_.has(k) ? std::optional(target_of(k)) : std::nullopt);
      if (is_written_[k] && !(*decision.operands[k] == schema_.spec(k))) return std::nullopt;
    }
    for (std::size_t r = 0; r < signature_.results.size(); ++r) {
      if (!can_be_owed_together(r)) return std::nullopt;
      decision.results.push_back(sharding_of(r));
      if (r < schema_.out.size() && !fits(decision.results[r], schema_.out[r])) return std::nullopt;
    }
    for (const SizeArgument& sizes : signature_.size_arguments) {
      decision.size_arguments.emplace_back(sizes.argument, placed(sizes.term, {}, {}));
    }
    decision.lookup = cut_lookup();
    for (Factor factor : signature_.averaged) {
      const auto at = static_cast<std::size_t>(factor);
      if (!cuts_[at].empty()) {
        decision.averaged.emplace_back(signature_.factor_sizes[at], cuts_[at]);
      }
    }
    return decision;
  }

 private:
  static const DeviceMesh& find_mesh(const OpSchema& schema) {
    for (const auto& spec : schema.tensors) {
      if (spec) return spec->mesh();
    }
    throw InternalError("a call without tensors has no mesh").fact("op", schema.op);
  }

  // Of a result's largest tile if this axis does not cut it, and the others do as they cut the same
  // factors in operands now. The element type is for the op to decide; taken for that of operands.
  std::int64_t result_bytes(const Result& result, std::size_t axis) const {
    std::int64_t bytes = element_size();
    for (std::int64_t size : shape_of(result.term, signature_)) {
      bytes = saturating_product(bytes, size);
    }
    for (std::size_t other = 0; other < mesh_.ndim(); ++other) {
      if (other == axis || !cuts_a_factor_of(result.term, other)) continue;
      const std::int64_t ranks = mesh_.axes()[other].size;
      bytes = bytes / ranks + (bytes % ranks == 0 ? 0 : 1);
    }
    return bytes;
  }

  bool cuts_a_factor_of(const Term& term, std::size_t axis) const {
    for (std::size_t k = 0; k < schema_.tensors.size(); ++k) {
      const Shard* shard = schema_.has(k) ? as_shard(schema_.spec(k).placements()[axis]) : nullptr;
      if (!shard) continue;
      const Factor factor =
          signature_.operands[k].term.factors[static_cast<std::size_t>(shard->dim())];
      if (factor != kNoFactor && dim_of(term, factor)) return true;
    }
    return false;
  }

  // The widest of the operands in which the op is linear, else of the first.
  std::int64_t element_size() const {
    std::int64_t widest = 0;
    std::int64_t first = 0;
    for (std::size_t k = 0; k < schema_.tensors.size(); ++k) {
      if (!schema_.has(k)) continue;
      const std::int64_t size = size_of(schema_.spec(k).meta().dtype());
      if (first == 0) first = size;
      if (signature_.operands[k].is_linear) widest = std::max(widest, size);
    }
    return widest == 0 ? first : widest;
  }

  bool is_written_as_it_is() const {
    for (std::size_t k : schema_.written) {
      for (const Result& result : signature_.results) {
        if (shape_of(result.term, signature_) != schema_.spec(k).shape()) return false;
      }
    }
    return true;
  }

  bool is_anything_owed() const {
    return std::any_of(schema_.tensors.begin(), schema_.tensors.end(),
                       [](const auto& spec) { return spec && spec->is_partial(); });
  }

  // Moves by themselves ---------------------------------------------------------------------------

  bool leads(const AxisMove& move, std::size_t axis) const {
    for (std::size_t k = 0; k < schema_.tensors.size(); ++k) {
      if (!schema_.has(k)) continue;
      const Shard* now = as_shard(schema_.spec(k).placements()[axis]);
      const Shard* then = as_shard(move.operands[k]);
      if (now && then && now->dim() == then->dim()) return true;
    }
    for (std::size_t r = 0; r < schema_.out.size() && r < move.results.size(); ++r) {
      if (as_shard(move.results[r]) &&
          same_but_for_cut(move.results[r], schema_.out[r].placements()[axis])) {
        return true;
      }
    }
    return false;
  }

  // Whether the move cuts otherwise what cannot stay cut as it is: an operand that the axis cuts
  // along a dim which the op needs whole. Less travels than if it were gathered. Not along a dim
  // that has fewer elements than ranks.
  bool recuts(const AxisMove& move, std::size_t axis) const {
    for (std::size_t k = 0; k < schema_.tensors.size(); ++k) {
      if (!schema_.has(k)) continue;
      const Shard* now = as_shard(schema_.spec(k).placements()[axis]);
      const Shard* then = as_shard(move.operands[k]);
      if (!now || !then || may_be_cut(signature_.operands[k].term, now->dim())) continue;
      const DimCut& cut = schema_.spec(k).dim_cuts()[static_cast<std::size_t>(then->dim())];
      return cut.size() >= cut.shard_count() * mesh_.axes()[axis].size;
    }
    return false;
  }

  bool may_be_cut(const Term& term, std::int64_t dim) const {
    const Factor factor = term.factors[static_cast<std::size_t>(dim)];
    return factor != kNoFactor && !signature_.is_whole[static_cast<std::size_t>(factor)];
  }

  bool leaves_written_alone(const AxisMove& move, std::size_t axis) const {
    for (std::size_t k : schema_.written) {
      const Placement& now = schema_.spec(k).placements()[axis];
      if (!same_but_for_cut(now, move.operands[k])) return false;
      for (const Placement& result : move.results) {
        if (!same_but_for_cut(now, result)) return false;
      }
    }
    for (std::size_t r = 0; r < schema_.out.size() && r < move.results.size(); ++r) {
      if (!same_but_for_cut(schema_.out[r].placements()[axis], move.results[r])) return false;
    }
    return true;
  }

  // What is added to a tensor that owes a sum, in place, has to be owed as well.
  bool is_written_owing(std::size_t axis) const {
    return std::any_of(schema_.written.begin(), schema_.written.end(), [&](std::size_t k) {
      return owed_reduction(schema_.spec(k).placements()[axis]).has_value();
    });
  }

  // A slice costs next to nothing: the op reads less by as much as it writes.
  static bool is_sliced(const Placement& now, const Placement& then) {
    return is_replicate(now) && as_shard(then) != nullptr;
  }

  // None if the move is not to be made.
  std::optional<TransitionCost> cost_of(const AxisMove& move, std::size_t axis,
                                        const Rates& rates) const {
    if (move.cut != kNoFactor && !leads(move, axis) && !recuts(move, axis)) return std::nullopt;
    if (!leaves_written_alone(move, axis)) return std::nullopt;
    const Owing owing =
        move.cut == kNoFactor && !is_written_owing(axis) ? Owing::No : Owing::Allowed;
    TransitionCost cost;
    for (std::size_t k = 0; k < schema_.tensors.size(); ++k) {
      if (!schema_.has(k)) continue;
      const Placement& now = schema_.spec(k).placements()[axis];
      const auto one = transition_cost(now, move.operands[k], bytes_[k], rates, owing);
      if (!one) return std::nullopt;
      cost += is_sliced(now, move.operands[k]) ? TransitionCost{false, 1} : *one;
    }
    if (!cost.communicates) return cost;
    for (std::size_t r = 0; r < move.results.size(); ++r) {
      if (!owed_reduction(move.results[r])) continue;
      const std::int64_t bytes = result_bytes(signature_.results[r], axis);
      cost += {true, debt_cost(move.results[r], bytes, rates)};
    }
    return cost;
  }

  const AxisMove* cheapest(std::size_t axis) const {
    const Rates rates = rates_of(model_, mesh_, {axis});
    const AxisMove* best = nullptr;
    std::tuple<bool, std::int64_t, bool> least;
    for (const AxisMove& move : moves_) {
      const std::optional<TransitionCost> cost = cost_of(move, axis, rates);
      if (!cost) continue;
      const bool cuts_nothing = move.cut == kNoFactor;
      const std::tuple rank{cost->communicates, cost->picoseconds, cuts_nothing};
      if (best && !(rank < least)) continue;
      best = &move;
      least = rank;
    }
    return best;
  }

  // All axes together -----------------------------------------------------------------------------

  void find_cuts() {
    cuts_.assign(signature_.factor_sizes.size(), {});
    for (std::size_t factor = 0; factor < cuts_.size(); ++factor) {
      std::vector<std::size_t> axes;
      for (std::size_t axis = 0; axis < chosen_.size(); ++axis) {
        if (chosen_[axis]->cut == static_cast<Factor>(factor)) axes.push_back(axis);
      }
      if (!axes.empty()) cuts_[factor] = cut_of(static_cast<Factor>(factor), axes);
    }
  }

  // Where the op needs elements: factors of which some rank would have none are cut no more. True
  // if there is one.
  bool keep_empty_factors_whole() {
    bool found = false;
    for (std::size_t factor = 0; factor < cuts_.size(); ++factor) {
      if (cuts_[factor].empty()) continue;
      if (!needs_elements_of(signature_, static_cast<Factor>(factor))) continue;
      const DimCut cut(signature_.factor_sizes[factor], cuts_[factor]);
      if (!has_empty_shard(cut, mesh_.ndim())) continue;
      signature_.is_whole[factor] = true;
      found = true;
    }
    return found;
  }

  // As the leading tensor has it, of those that these axes cut; evenly if none does.
  std::vector<CutAxis> cut_of(Factor factor, const std::vector<std::size_t>& axes) const {
    const std::vector<CutAxis>* leading = nullptr;
    std::int64_t weight = -1;
    const auto consider = [&](const DTensorSpec& spec, const Term& term, std::int64_t its_weight) {
      const auto dim = dim_of(term, factor);
      if (!dim || its_weight <= weight) return;
      const DimCut& cut = spec.dim_cuts()[static_cast<std::size_t>(*dim)];
      if (!is_cut_by(cut, axes)) return;
      leading = &cut.axes();
      weight = its_weight;
    };
    constexpr std::int64_t kPinned = std::numeric_limits<std::int64_t>::max();
    for (std::size_t r = 0; r < schema_.out.size(); ++r) {
      consider(schema_.out[r], signature_.results[r].term, kPinned);
    }
    for (std::size_t k = 0; k < schema_.tensors.size(); ++k) {
      if (!schema_.has(k)) continue;
      consider(schema_.spec(k), signature_.operands[k].term, is_written_[k] ? kPinned : bytes_[k]);
    }
    if (leading) return *leading;
    std::vector<CutAxis> even;
    for (std::size_t axis : axes) even.push_back({axis, mesh_.axes()[axis].size, Cut()});
    return even;
  }

  static bool is_cut_by(const DimCut& cut, const std::vector<std::size_t>& axes) {
    if (cut.axes().size() != axes.size()) return false;
    return std::all_of(cut.axes().begin(), cut.axes().end(), [&](const CutAxis& by) {
      return std::find(axes.begin(), axes.end(), by.axis) != axes.end();
    });
  }

  const std::vector<CutAxis>& cuts_at(const Term& term, std::size_t dim) const {
    static const std::vector<CutAxis> none;
    const Factor factor = term.factors[dim];
    return factor == kNoFactor ? none : cuts_[static_cast<std::size_t>(factor)];
  }

  bool stays(std::size_t operand) const {
    const DTensorSpec& spec = schema_.spec(operand);
    const Term& term = signature_.operands[operand].term;
    for (std::size_t axis = 0; axis < chosen_.size(); ++axis) {
      if (!same_but_for_cut(spec.placements()[axis], chosen_[axis]->operands[operand]))
        return false;
    }
    for (std::size_t dim = 0; dim < term.factors.size(); ++dim) {
      if (spec.dim_cuts()[dim].axes() != cuts_at(term, dim)) return false;
    }
    return true;
  }

  DTensorSpec target_of(std::size_t operand) const {
    const DTensorSpec& spec = schema_.spec(operand);
    if (stays(operand)) return spec;
    Placements placements;
    for (const AxisMove* move : chosen_) placements.push_back(move->operands[operand]);
    const ResultSharding sharding =
        placed(signature_.operands[operand].term, std::move(placements), spec.meta().stride());
    return {mesh_, sharding.placements, sharding.order, dense(spec.meta())};
  }

  // Reductions that different axes leave to a result can be done in any order.
  bool can_be_owed_together(std::size_t result) const {
    std::optional<ReduceOp> first;
    for (const AxisMove* move : chosen_) {
      const std::optional<ReduceOp> op = owed_reduction(move->results[result]);
      if (first && op && !commute(*first, *op)) return false;
      if (!first) first = op;
    }
    return true;
  }

  ResultSharding sharding_of(std::size_t result) const {
    Placements placements;
    for (const AxisMove* move : chosen_) placements.push_back(move->results[result]);
    return placed(signature_.results[result].term, std::move(placements),
                  result_stride(signature_.results[result], signature_, schema_));
  }

  // The term's dims, cut as their factors are; placements other than shards as given.
  ResultSharding placed(const Term& term, Placements placements, Shape stride) const {
    ResultSharding result{std::move(placements), {}, shape_of(term, signature_), std::move(stride)};
    if (result.placements.empty()) result.placements.assign(mesh_.ndim(), Replicate());
    if (result.stride.empty()) result.stride = row_major_strides(result.shape);
    for (std::size_t dim = 0; dim < term.factors.size(); ++dim) {
      const std::vector<CutAxis>& cuts = cuts_at(term, dim);
      if (cuts.empty()) continue;
      ShardOrderEntry entry{static_cast<std::int64_t>(dim), {}};
      for (const CutAxis& cut : cuts) {
        result.placements[cut.axis] = Shard(static_cast<std::int64_t>(dim), cut.cut);
        entry.axes.push_back(cut.axis);
      }
      result.order.push_back(std::move(entry));
    }
    return result;
  }

  static bool fits(const ResultSharding& result, const DTensorSpec& out) {
    return result.shape == out.shape() && result.placements == out.placements() &&
           result.order == out.shard_order();
  }

  std::optional<CutLookup> cut_lookup() const {
    if (signature_.looked_up == kNoFactor) return std::nullopt;
    if (cuts_[static_cast<std::size_t>(signature_.looked_up)].empty()) return std::nullopt;
    for (std::size_t k = 0; k < signature_.operands.size(); ++k) {
      if (const auto dim = dim_of(signature_.operands[k].term, signature_.looked_up)) {
        return CutLookup{k, static_cast<std::size_t>(*dim), index_dims(1 - k)};
      }
    }
    return std::nullopt;
  }

  // Where the result has the dims of the indices.
  std::vector<std::size_t> index_dims(std::size_t indices) const {
    std::vector<std::size_t> dims;
    for (const Factor factor : signature_.operands[indices].term.factors) {
      dims.push_back(static_cast<std::size_t>(*dim_of(signature_.results[0].term, factor)));
    }
    return dims;
  }

  const OpSchema& schema_;
  Signature signature_;
  std::vector<AxisMove> moves_;
  const DeviceMesh& mesh_;
  const CostModel& model_;
  std::vector<std::int64_t> bytes_;  // of operands' largest tiles
  std::vector<bool> is_written_;
  std::vector<const AxisMove*> chosen_;     // per axis
  std::vector<std::vector<CutAxis>> cuts_;  // per factor
};

}  // namespace

std::optional<OutputSharding> ShardingPropagator::propagate(const OpSchema& schema) const {
  const std::shared_ptr<const Rule> rule = rules_.find(schema.op);
  if (!rule) return std::nullopt;
  std::optional<Signature> signature = rule->signature(schema);
  if (!signature || schema.tensors.empty()) return std::nullopt;
  if (signature->operands.size() != schema.tensors.size()) {
    throw InternalError("a rule sees another number of tensors than the call has")
        .fact("rule", rule->op + ": " + rule->text)
        .fact("call", to_string(schema));
  }
  return Choice(schema, std::move(*signature), model_).decide();
}

}  // namespace tegula
