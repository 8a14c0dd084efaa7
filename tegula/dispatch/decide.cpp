// The idea: the call in the words of rules (operators/call_schema.h), the propagator's answer, and
// what this rank has to do for it. An op over lists is decided member by member.
#include <ATen/ATen.h>

#include <algorithm>

#include "tegula/base/overloaded.h"
#include "tegula/bridge/torch_types.h"
#include "tegula/dispatch/decision.h"
#include "tegula/dispatch/overlaps.h"
#include "tegula/operators/call_schema.h"
#include "tegula/ops/families.h"
#include "tegula/payload/guards.h"
#include "tegula/payload/unexpanded.h"
#include "tegula/plan/redistribute_planner.h"
#include "tegula/propagate/sharding_propagator.h"
#include "tegula/redistribute/routes.h"
#include "tegula/spec/placed_otherwise.h"
#include "tegula/spec/slices.h"

namespace tegula::inner {
namespace {

// A rule's decision needs the tiles of what is written; those of a row are tiles of its base. What
// libtorch says to a write to a tensor that overlaps itself, it says of the whole: a tile may be
// empty.
bool can_follow_a_rule(const Call& call) {
  if (call.facts().is_random) return false;
  for (const TensorPlace& place : call.tensors()) {
    const bool is_written = call.facts().written[place.argument];
    const bool has_a_tile = place.payload && !place.payload->link();
    if (is_written && !has_a_tile && !is_written_row(call, place)) return false;
    if (is_written && !call.notes().may_overlap && overlaps_itself(place.tensor)) return false;
    if (!place.payload && place.tensor.defined() && place.tensor.layout() != at::kStrided) {
      return false;
    }
  }
  return true;
}

bool reads_through_a_link(const Call& call) {
  return std::any_of(call.tensors().begin(), call.tensors().end(), [&](const TensorPlace& place) {
    return place.payload && place.payload->link() && !call.facts().written[place.argument];
  });
}

// What the rule gets to see: a tensor that owes a reduction and was expanded pays before it is
// used, while that costs what one copy of each element costs (Payload::tile_by), not what all of
// them do.
TensorSpecs specs_to_use(const Call& call, const TensorSpecs& held) {
  TensorSpecs used = held;
  if (StrictMode::is_on()) return used;  // there the rule may leave it owed
  for (std::size_t k = 0; k < used.size(); ++k) {
    const TensorPlace& place = call.tensors()[k];
    const bool may_pay = place.payload && !place.payload->link() &&
                         !call.facts().written[place.argument] && can_pay_unexpanded(*held[k]);
    if (may_pay) used[k] = with_reductions_done(*held[k]);
  }
  return used;
}

// None if some rank's shard of the table may not be one run of rows.
std::optional<RowsHere> rows_here(const Call& call, const CallSchema& asked,
                                  const OutputSharding& answer, const Coordinate& at) {
  const CutLookup& lookup = *answer.lookup;
  const DTensorSpec& table = *answer.operands[lookup.operand];
  const DimCut& cut = table.dim_cuts()[lookup.dim];
  if (cut.most_intervals() > 1) return std::nullopt;
  const std::vector<Interval> rows = cut.intervals(at);
  const auto argument_of = [&](std::size_t operand) {
    return call.tensors()[asked.tensors[operand]].argument;
  };
  RowsHere here{argument_of(lookup.operand),
                argument_of(1 - lookup.operand),
                rows[0].begin,
                rows[0].begin + rows[0].size,
                table.shape()[lookup.dim],
                local_shape(answer.results[0].spec(call.mesh(), table.meta().dtype()), at),
                {}};
  here.found.assign(here.result.size(), 1);
  for (const std::size_t dim : lookup.index_dims) here.found[dim] = here.result[dim];
  return here;
}

// Where the answer wants the tensors of the call. False if another member of the lists wants one
// elsewhere.
bool agree_on_targets(const CallSchema& asked, const OutputSharding& answer, TensorSpecs& targets) {
  for (std::size_t k = 0; k < asked.tensors.size(); ++k) {
    std::optional<DTensorSpec>& target = targets[asked.tensors[k]];
    if (target && !(*target == *answer.operands[k])) return false;
    target = answer.operands[k];
  }
  return true;
}

bool owes_what_it_owes(const DTensorSpec& operand, const ResultSharding& result) {
  for (std::size_t axis = 0; axis < result.placements.size(); ++axis) {
    if (owed_reduction(operand.placements()[axis]) && owed_reduction(result.placements[axis])) {
      return true;
    }
  }
  return false;
}

// Operands that owe what a result owes, where that is larger than all of them together: then it
// costs less to pay before.
std::vector<std::size_t> to_pay_first(const OpSchema& schema, const OutputSharding& answer) {
  std::vector<std::size_t> all;
  for (const ResultSharding& result : answer.results) {
    std::vector<std::size_t> owing;
    std::int64_t before = 0, after = 1;
    for (const std::int64_t size : result.shape) after *= size;
    for (std::size_t k = 0; k < schema.tensors.size(); ++k) {
      const bool is_written = std::count(schema.written.begin(), schema.written.end(), k) > 0;
      const std::optional<DTensorSpec>& operand = answer.operands[k];
      if (!operand || is_written || !owes_what_it_owes(*operand, result)) continue;
      owing.push_back(k);
      before += operand->meta().numel();
    }
    if (after > before) all.insert(all.end(), owing.begin(), owing.end());
  }
  return all;
}

std::optional<OutputSharding> answer_for(const ShardingPropagator& propagator, OpSchema schema) {
  std::optional<OutputSharding> answer = propagator.propagate(schema);
  if (!answer || StrictMode::is_on()) return answer;
  const std::vector<std::size_t> paying = to_pay_first(schema, *answer);
  for (const std::size_t k : paying) schema.tensors[k] = with_reductions_done(*schema.tensors[k]);
  return paying.empty() ? answer : propagator.propagate(schema);
}

// Which axes of several ranks cut which dims, in their order.
ShardOrder order_of_several(const DTensorSpec& spec) {
  ShardOrder order = spec.shard_order();
  for (ShardOrderEntry& entry : order) {
    std::erase_if(entry.axes, [&](std::size_t axis) { return spec.mesh().axes()[axis].size == 1; });
  }
  std::erase_if(order, [](const ShardOrderEntry& entry) { return entry.axes.empty(); });
  return order;
}

// Whether every rank's tile is the same by both: they differ along axes of one rank alone.
bool has_same_tiles(const DTensorSpec& a, const DTensorSpec& b) {
  if (a == b) return true;
  if (!(a.mesh() == b.mesh()) || !(a.meta() == b.meta())) return false;
  for (std::size_t axis = 0; axis < a.placements().size(); ++axis) {
    const bool is_alone = a.mesh().axes()[axis].size == 1;
    if (!is_alone && a.placements()[axis] != b.placements()[axis]) return false;
  }
  return order_of_several(a) == order_of_several(b);
}

// What the answer asks this rank to do. False if it cannot.
bool take_answer(const Call& call, const TensorSpecs& held, const CallSchema& asked,
                 const OutputSharding& answer, const Coordinate& at, LocalOpDraft& draft) {
  for (std::size_t k = 0; k < asked.tensors.size(); ++k) {
    const auto& from = held[asked.tensors[k]];
    if (!from || has_same_tiles(*from, *answer.operands[k])) continue;
    const DTensorSpec dense_from = densely(*from);
    draft.local_op.routes.resize(call.tensors().size());
    auto& route = draft.local_op.routes[asked.tensors[k]];
    route = std::make_shared<const Route>(call.world().part<Routes>().find_or_make(
        call.world(), dense_from, *answer.operands[k], {}));
    draft.local_op.communicates = draft.local_op.communicates || route->communicates();
  }
  for (const auto& [argument, sharding] : answer.size_arguments) {
    const Shape sizes = local_shape(sharding.spec(call.mesh(), DType::U8), at);
    const bool is_one = call.arguments()[argument].isInt();
    draft.local_op.arguments.emplace_back(argument, is_one ? c10::IValue(sizes[0]) : sizes);
  }
  if (answer.lookup) {
    if (call.facts().writes) return false;  // what is not here is no result of the op
    draft.local_op.rows = rows_here(call, asked, answer, at);
    if (!draft.local_op.rows) return false;
  }
  for (const DimCut& cut : answer.averaged) {
    if (call.facts().writes) return false;  // the op itself says what is written
    if (cut.size() == 0) continue;          // the mean of nothing is no number, on every rank
    draft.local_op.share *=
        static_cast<double>(cut.local_size(at)) / static_cast<double>(cut.size());
  }
  draft.results.insert(draft.results.end(), answer.results.begin(), answer.results.end());
  return true;
}

}  // namespace

std::string_view name_of(const Decision& decision) {
  return std::visit(Overloaded{
                        [](const LocalOp&) { return std::string_view("rule"); },
                        [](const ViewPlan&) { return std::string_view("view"); },
                        [](const LinkPlan&) { return std::string_view("link"); },
                        [](const Decomposition&) { return std::string_view("decomposition"); },
                        [](const TileOp&) { return std::string_view("tile op"); },
                        [](const Universal&) { return std::string_view("universal"); },
                    },
                    decision);
}

std::optional<LocalOpDraft> draft_local_op(const Call& call) {
  if (!can_follow_a_rule(call)) return std::nullopt;
  const std::optional<TensorSpecs> held = specs_of(call);
  if (!held) return std::nullopt;
  const ShardingPropagator propagator(rule_table(),
                                      call.world().part<RedistributePlanner>().cost_model());
  const std::optional<Coordinate> here = call.coordinate();
  const Coordinate at = here ? *here : Coordinate(call.mesh().ndim(), 0);
  LocalOpDraft draft;
  draft.local_op.communicates = reads_through_a_link(call);
  for (std::size_t k = 0; k < call.tensors().size(); ++k) {
    if (is_written_row(call, call.tensors()[k])) draft.local_op.written_rows.push_back(k);
  }
  TensorSpecs targets(held->size());
  for (const CallSchema& asked : schemas_of(call, specs_to_use(call, *held))) {
    const std::optional<OutputSharding> answer = answer_for(propagator, asked.schema);
    if (!answer || !agree_on_targets(asked, *answer, targets)) return std::nullopt;
    if (!take_answer(call, *held, asked, *answer, at, draft)) return std::nullopt;
  }
  return draft;
}

}  // namespace tegula::inner
