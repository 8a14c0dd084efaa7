#include "tegula/dispatch/plain_form.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "tegula/dispatch/overlaps.h"
#include "tegula/redistribute/redistribute_tile.h"

namespace tegula::inner {
namespace {

// Not all in-place forms take their arguments in the order of the plain form.
bool takes_the_same(const c10::OperatorHandle& plain, const Call& call) {
  std::vector<std::string> names;
  for (std::size_t index = 0; index < call.facts().is_out.size(); ++index) {
    if (!call.facts().is_out[index]) names.push_back(call.op().schema().arguments()[index].name());
  }
  const auto& arguments = plain.schema().arguments();
  return std::equal(names.begin(), names.end(), arguments.begin(), arguments.end(),
                    [](const std::string& a, const c10::Argument& b) { return a == b.name(); });
}

// What the op writes is what it returns: then the plain form's results are these, in their order.
bool returns_what_it_writes(const OpFacts& facts) {
  const auto written = std::count(facts.written.begin(), facts.written.end(), true);
  return static_cast<std::size_t>(written) == facts.return_is.size() &&
         std::all_of(facts.return_is.begin(), facts.return_is.end(),
                     [](const auto& argument) { return argument.has_value(); });
}

bool is_distributed_as_data(const TensorPlace& place) {
  return place.payload && !place.payload->link();
}

bool moves_something(const Call& call) {
  return std::any_of(call.tensors().begin(), call.tensors().end(), [](const TensorPlace& place) {
    return is_distributed_as_data(place) && !place.payload->spec().is_replicated();
  });
}

bool writes_tiles(const Call& call) {
  return std::all_of(call.tensors().begin(), call.tensors().end(), [&](const TensorPlace& place) {
    return !call.facts().written[place.argument] ||
           (place.member < 0 && is_distributed_as_data(place) &&
            place.payload->spec().mesh() == call.mesh() && !overlaps_itself(place.tensor));
  });
}

DTensorSpec densely(const DTensorSpec& spec) { return spec.with_meta(dense(spec.meta())); }

// Some compositions make a plain tensor of what they have found out, the same on all ranks.
at::Tensor on_mesh_of(const at::Tensor& written, const at::Tensor& result) {
  if (!result.defined() || payload_in(result) || result.layout() != at::kStrided) return result;
  const Payload& payload = *payload_in(written);
  return replicated(result, payload.spec().mesh(), payload.world());
}

// A composition may give a view without data of its own.
bool can_take(const at::Tensor& written, const at::Tensor& result) {
  const Payload* from = payload_in(result);
  if (!from || from->link() || result.is_conj() || result.is_neg()) return false;
  return !from->tile().is_conj() && !from->tile().is_neg() &&
         from->spec().mesh() == payload_in(written)->spec().mesh() &&
         written.sizes() == result.sizes() && written.scalar_type() == result.scalar_type();
}

// Not copy_, whose own form this may be.
void write(const at::Tensor& written, const at::Tensor& result) {
  const Payload& to = *payload_in(written);
  const Payload& from = *payload_in(result);
  if (!to.coordinate()) return;
  to.tile().copy_(
      redistribute_tile(to.world(), from.tile(), densely(from.spec()), densely(to.spec())));
}

}  // namespace

Recipe by_plain_form(const Call& call) {
  const OpFacts& facts = call.facts();
  if (!facts.writes || (facts.is_random && !facts.has_out) || facts.is_by_member ||
      facts.rule == rule_name(facts.name) || !returns_what_it_writes(facts) ||
      !writes_tiles(call) || !moves_something(call)) {
    return nullptr;
  }
  const std::optional<c10::OperatorHandle> op =
      c10::Dispatcher::singleton().findSchema(operator_name_of(facts.rule));
  if (!op || !takes_the_same(*op, call) ||
      op->schema().returns().size() != facts.return_is.size()) {
    return nullptr;
  }
  return [op = *op, &facts](Arguments arguments) {
    Values results;
    for (std::size_t index = 0; index < arguments.size(); ++index) {
      if (!facts.is_out[index]) results.push_back(arguments[index]);
    }
    op.callBoxed(&results);
    for (c10::IValue& result : results) {
      const bool is_there = result.isTensor() && result.toTensor().defined();
      if (is_there) result = result.toTensor().resolve_conj().resolve_neg();
    }
    Values given;
    for (const auto& argument : facts.return_is) given.push_back(arguments[*argument]);
    for (std::size_t k = 0; k < given.size(); ++k) {
      if (results[k].isTensor())
        results[k] = on_mesh_of(given[k].toTensor(), results[k].toTensor());
    }
    for (std::size_t k = 0; k < given.size(); ++k) {
      if (!can_take(given[k].toTensor(), results[k].toTensor())) return Values();
    }
    for (std::size_t k = 0; k < given.size(); ++k) {
      write(given[k].toTensor(), results[k].toTensor());
    }
    return given;
  };
}

}  // namespace tegula::inner
