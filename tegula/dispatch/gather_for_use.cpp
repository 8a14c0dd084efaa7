// The idea: the same op once more, on the gathered tensors, which have no such policy: every way to
// carry out a call is open to it.
#include "tegula/dispatch/gather_for_use.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "tegula/operators/call_schema.h"
#include "tegula/ops/families.h"
#include "tegula/redistribute/tile_layout.h"
#include "tegula/spec/placed_otherwise.h"

namespace tegula::inner {
namespace {

bool is_gathered(const PayloadPtr& payload) {
  return payload && payload->gathering() && !payload->link() && !payload->spec().is_partial();
}

// Numbers meet every element alike.
bool is_number(const TensorPlace& place) { return place.tensor.numel() == 1; }

DTensorSpec spec_in_use(const Payload& payload) {
  const DTensorSpec& spec = payload.spec();
  return with_axes_whole(densely(spec), payload.gathering()->over);
}

at::Tensor gathered(const at::Tensor& tensor) {
  const PayloadPtr payload = payload_of(tensor);
  if (!is_gathered(payload)) return tensor;
  const DTensorSpec to = spec_in_use(*payload);
  return outer_tensor(payload->coordinate() ? payload->gathered_tile(to) : no_tile(to), to,
                      payload->world());
}

at::Tensor without_policies(const at::Tensor& tensor) {
  const PayloadPtr payload = payload_of(tensor);
  if (!is_gathered(payload)) return tensor;
  return outer_tensor(c10::make_intrusive<Payload>(PoliciesPtr(), *payload));
}

bool is_pointwise(const Signature& signature, const OpSchema& schema) {
  if (signature.results.empty() || !signature.reads_values) return false;
  for (std::size_t k = 0; k < signature.operands.size(); ++k) {
    if (!schema.has(k) || schema.spec(k).meta().numel() == 1) continue;
    if (signature.operands[k].term.factors != signature.results[0].term.factors) return false;
  }
  return true;
}

// Whether the op, by its rule, combines elements that stand at the same place of tensors of one
// shape.
bool is_pointwise(const Call& call) {
  const std::shared_ptr<const Rule> rule = rule_table().find(call.facts().rule);
  const auto specs = specs_of(call);
  if (!rule || !specs) return false;
  const std::vector<CallSchema> asked = schemas_of(call, *specs);
  return std::all_of(asked.begin(), asked.end(), [&](const CallSchema& one) {
    const std::optional<Signature> signature = rule->signature(one.schema);
    return signature && is_pointwise(*signature, one.schema);
  });
}

using Change = at::Tensor (*)(const at::Tensor&);

Values called_on(const c10::OperatorHandle& op, const OpFacts& facts, Arguments arguments,
                 Change change) {
  Values values(arguments.begin(), arguments.end());
  replace_tensors(facts, values,
                  [&](std::size_t, int, const at::Tensor& tensor) { return change(tensor); });
  op.callBoxed(&values);
  return values;
}

// The policies of the first tensor that is gathered, for a result that lives for a while only.
std::optional<Policies> policies_among(const OpFacts& facts, Arguments arguments) {
  std::optional<Policies> policies;
  for_each_tensor(facts, arguments, [&](std::size_t, int, const at::Tensor& tensor) {
    if (!policies && is_gathered(payload_of(tensor))) policies = policies_of(tensor);
  });
  if (policies) policies->gathering->is_kept = policies->gathering->prefetches = false;
  return policies;
}

}  // namespace

Recipe gather_for_use(const Call& call) {
  const std::vector<TensorPlace>& tensors = call.tensors();
  const OpFacts& facts = call.facts();
  const auto has_policy = [](const TensorPlace& place) { return is_gathered(place.payload); };
  const bool writes_one = std::any_of(tensors.begin(), tensors.end(), [&](const auto& place) {
    return has_policy(place) && facts.written[place.argument];
  });
  if (writes_one || facts.viewed || std::none_of(tensors.begin(), tensors.end(), has_policy)) {
    return nullptr;
  }
  const bool alone = std::all_of(tensors.begin(), tensors.end(), [&](const TensorPlace& place) {
    return !place.tensor.defined() || has_policy(place) || is_number(place);
  });
  const c10::OperatorHandle& op = call.op();
  if (!alone && !is_pointwise(call)) {
    return [op, &facts](Arguments arguments) { return called_on(op, facts, arguments, gathered); };
  }
  if (!alone || facts.is_random || !(call.notes().is_copy || is_pointwise(call))) return nullptr;
  return [op, &facts](Arguments arguments) {
    const std::optional<Policies> policies = policies_among(facts, arguments);
    Values results = called_on(op, facts, arguments, without_policies);
    for (const c10::IValue& result : results) {
      with_tensors(result, [&](int, const at::Tensor& tensor) {
        if (payload_in(tensor)) set_policies(tensor, *policies);
        return tensor;
      });
    }
    return results;
  };
}

}  // namespace tegula::inner
