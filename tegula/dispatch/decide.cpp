// The idea: the call in the words of rules (OpSchema), the propagator's answer, and what this rank
// has to do for it. An op over lists is decided member by member.
#include <ATen/ATen.h>

#include "tegula/bridge/torch_types.h"
#include "tegula/dispatch/decision.h"
#include "tegula/ops/families.h"
#include "tegula/plan/redistribute_planner.h"
#include "tegula/propagate/sharding_propagator.h"
#include "tegula/spec/placed_otherwise.h"
#include "tegula/spec/slices.h"

namespace tegula {
namespace {

// A call for a rule, and which tensors of the whole call its own are.
struct Question {
  OpSchema schema;
  std::vector<std::size_t> tensors;
};

Ints ints_of(const c10::IValue& value) {
  Ints numbers;
  for (const c10::IValue& one : value.toListRef()) {
    numbers.push_back(one.isBool() ? static_cast<std::int64_t>(one.toBool()) : one.toInt());
  }
  return numbers;
}

Argument argument_of(const c10::IValue& value, ArgumentKind kind) {
  if (value.isNone()) return argument::None{};
  if (kind == ArgumentKind::Type) return argument::Other{};
  if (value.isBool()) return value.toBool();
  if (value.isInt()) return value.toInt();
  if (value.isIntList() || value.isBoolList()) return ints_of(value);
  return argument::Other{};
}

// Questions are asked about specs on the call's mesh; a plain tensor counts as replicated.
class Asking {
 public:
  explicit Asking(const Call& call) : call_(call) {
    for (const TensorPlace& place : call.tensors()) specs_.push_back(spec_of(place));
  }

  bool is_on_one_mesh() const {
    for (const auto& spec : specs_) {
      if (spec && !(spec->mesh() == call_.mesh())) return false;
    }
    return true;
  }

  const std::optional<DTensorSpec>& spec(std::size_t tensor) const { return specs_[tensor]; }

  Question whole_call() const {
    Question question;
    question.schema.op = call_.facts().rule;
    std::size_t next = 0;
    for (std::size_t index = 0; index < call_.arguments().size(); ++index) {
      const std::size_t first = next;
      while (next < call_.tensors().size() && call_.tensors()[next].argument == index) ++next;
      if (call_.facts().is_out[index]) {
        for (std::size_t k = first; k < next; ++k) take_out(question, k);
        continue;
      }
      const std::size_t begin = question.tensors.size();
      for (std::size_t k = first; k < next; ++k) take(question, k);
      question.schema.arguments.push_back(described(index, begin, next - first));
    }
    return question;
  }

  // The tensors that stand at one place of all lists, and those outside of lists.
  std::vector<Question> by_member() const {
    std::size_t members = 0;
    for (const TensorPlace& place : call_.tensors()) {
      members = std::max(members, static_cast<std::size_t>(place.member + 1));
    }
    std::vector<Question> questions(members);
    for (std::size_t k = 0; k < call_.tensors().size(); ++k) {
      const int member = call_.tensors()[k].member;
      for (std::size_t m = 0; m < members; ++m) {
        if (member < 0 || static_cast<std::size_t>(member) == m) take(questions[m], k);
      }
    }
    for (Question& question : questions) question.schema.op = call_.facts().rule;
    return questions;
  }

 private:
  std::optional<DTensorSpec> spec_of(const TensorPlace& place) const {
    if (!place.tensor.defined()) return std::nullopt;
    if (place.payload) return place.payload->spec();
    return replicated_spec(call_.mesh(), meta_of(place.tensor));
  }

  void take(Question& question, std::size_t tensor) const {
    if (call_.facts().written[call_.tensors()[tensor].argument]) {
      question.schema.written.push_back(question.tensors.size());
    }
    question.schema.tensors.push_back(specs_[tensor]);
    question.tensors.push_back(tensor);
  }

  void take_out(Question& question, std::size_t tensor) const {
    if (specs_[tensor]) question.schema.out.push_back(*specs_[tensor]);
  }

  Argument described(std::size_t index, std::size_t first, std::size_t count) const {
    const c10::IValue& value = call_.arguments()[index];
    switch (call_.facts().kinds[index]) {
      case ArgumentKind::Tensor:
        return count == 0 ? Argument(argument::None{}) : Argument(argument::Tensor{first});
      case ArgumentKind::TensorList:
        return argument::TensorList{first, count};
      case ArgumentKind::Value:
      case ArgumentKind::Type:
        return argument_of(value, call_.facts().kinds[index]);
    }
    return argument::Other{};
  }

  const Call& call_;
  std::vector<std::optional<DTensorSpec>> specs_;
};

// None if the table's shard here is not one run of rows.
std::optional<RowsHere> rows_here(const CutLookup& lookup, const DTensorSpec& table,
                                  const Coordinate& at) {
  const std::vector<Interval> rows = table.dim_cuts()[lookup.dim].intervals(at);
  if (rows.size() != 1) return std::nullopt;
  return RowsHere{1 - lookup.operand, rows[0].begin, rows[0].begin + rows[0].size,
                  table.shape()[lookup.dim]};
}

// What the answer asks this rank to do. False if it cannot.
bool take_answer(const Call& call, const Question& question, const OutputSharding& answer,
                 const Coordinate& at, Draft& draft) {
  for (std::size_t k = 0; k < question.tensors.size(); ++k) {
    const auto& from = question.schema.tensors[k];
    if (!from || *answer.operands[k] == *from) continue;
    const DTensorSpec dense_from = from->with_meta(dense(from->meta()));
    draft.on_tiles.routes.resize(call.tensors().size());
    auto& route = draft.on_tiles.routes[question.tensors[k]];
    route = std::make_shared<const Route>(call.world(), dense_from, *answer.operands[k]);
    draft.on_tiles.communicates = draft.on_tiles.communicates || route->communicates();
  }
  for (const auto& [argument, sharding] : answer.size_arguments) {
    const Shape sizes = local_shape(sharding.spec(call.mesh(), DType::U8), at);
    draft.on_tiles.arguments.emplace_back(argument, sizes);
  }
  if (answer.lookup) {
    draft.on_tiles.rows =
        rows_here(*answer.lookup, *answer.operands[answer.lookup->operand], at);
    if (!draft.on_tiles.rows) return false;
  }
  draft.results.insert(draft.results.end(), answer.results.begin(), answer.results.end());
  return true;
}

}  // namespace

std::optional<Draft> draft_for(const Call& call) {
  const Asking asking(call);
  if (!asking.is_on_one_mesh()) return std::nullopt;
  const ShardingPropagator propagator(rule_table(),
                                      call.world().part<RedistributePlanner>().cost_model());
  const std::optional<Coordinate> here = call.mesh().coordinate_of(call.world().rank());
  const Coordinate at = here ? *here : Coordinate(call.mesh().ndim(), 0);
  Draft draft;
  const std::vector<Question> questions =
      call.facts().is_by_member ? asking.by_member() : std::vector{asking.whole_call()};
  for (const Question& question : questions) {
    const std::optional<OutputSharding> answer = propagator.propagate(question.schema);
    if (!answer || !take_answer(call, question, *answer, at, draft)) return std::nullopt;
  }
  return draft;
}

}  // namespace tegula
