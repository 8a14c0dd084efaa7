// The idea: tensors are numbered through all arguments; those that only take results are set aside.
#include "tegula/operators/call_schema.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "tegula/bridge/torch_types.h"
#include "tegula/spec/placed_otherwise.h"

namespace tegula::inner {
namespace {

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
  if (value.isString()) return argument::Text{value.toStringRef()};
  return argument::Other{};
}

// Where the tensors of a list stand, if some members are none.
std::vector<std::size_t> places_of(const c10::IValue& list) {
  if (!list.isOptionalTensorList()) return {};
  std::vector<std::size_t> places;
  for (std::size_t member = 0; member < list.toListRef().size(); ++member) {
    if (list.toListRef()[member].isTensor()) places.push_back(member);
  }
  return places;
}

class SchemaMaker {
 public:
  SchemaMaker(const Call& call, const TensorSpecs& specs) : call_(call), specs_(specs) {}

  CallSchema whole_call() const {
    CallSchema made;
    made.schema.op = call_.facts().rule;
    std::size_t next = 0;
    for (std::size_t index = 0; index < call_.arguments().size(); ++index) {
      const std::size_t first = next;
      while (next < call_.tensors().size() && call_.tensors()[next].argument == index) ++next;
      if (call_.facts().is_out[index]) {
        for (std::size_t k = first; k < next; ++k) take_out(made, k);
        continue;
      }
      const std::size_t begin = made.tensors.size();
      for (std::size_t k = first; k < next; ++k) take(made, k);
      made.schema.arguments.push_back(described(index, begin, next - first));
    }
    return made;
  }

  // The tensors that stand at one place of all lists, and those outside of lists.
  std::vector<CallSchema> by_member() const {
    std::size_t members = 0;
    for (const TensorPlace& place : call_.tensors()) {
      members = std::max(members, static_cast<std::size_t>(place.member + 1));
    }
    std::vector<CallSchema> schemas(members);
    for (std::size_t k = 0; k < call_.tensors().size(); ++k) {
      const int member = call_.tensors()[k].member;
      for (std::size_t m = 0; m < members; ++m) {
        if (member >= 0 && static_cast<std::size_t>(member) != m) continue;
        if (call_.facts().is_out[call_.tensors()[k].argument]) {
          take_out(schemas[m], k);
        } else {
          take(schemas[m], k);
        }
      }
    }
    for (CallSchema& one : schemas) one.schema.op = call_.facts().rule;
    return schemas;
  }

 private:
  void take(CallSchema& made, std::size_t tensor) const {
    if (call_.facts().written[call_.tensors()[tensor].argument]) {
      made.schema.written.push_back(made.tensors.size());
    }
    made.schema.tensors.push_back(specs_[tensor]);
    made.tensors.push_back(tensor);
  }

  void take_out(CallSchema& made, std::size_t tensor) const {
    if (specs_[tensor]) made.schema.out.push_back(*specs_[tensor]);
  }

  Argument described(std::size_t index, std::size_t first, std::size_t count) const {
    const c10::IValue& value = call_.arguments()[index];
    switch (call_.facts().kinds[index]) {
      case ArgumentKind::Tensor:
        return count == 0 ? Argument(argument::None{}) : Argument(argument::Tensor{first});
      case ArgumentKind::TensorList:
        return argument::TensorList{first, count, places_of(value)};
      case ArgumentKind::Value:
      case ArgumentKind::Type:
        return argument_of(value, call_.facts().kinds[index]);
    }
    return argument::Other{};
  }

  const Call& call_;
  const TensorSpecs& specs_;
};

}  // namespace

bool is_written_row(const Call& call, const TensorPlace& place) {
  const Link* link = place.payload ? place.payload->link() : nullptr;
  return call.facts().written[place.argument] && link && link->is_row();
}

std::optional<TensorSpecs> specs_of(const Call& call) {
  TensorSpecs specs;
  for (const TensorPlace& place : call.tensors()) {
    if (!place.tensor.defined()) {
      specs.emplace_back(std::nullopt);
    } else if (!place.payload) {
      specs.emplace_back(replicated_spec(call.mesh(), meta_of(place.tensor)));
    } else if (place.payload->spec().mesh() == call.mesh()) {
      specs.emplace_back(
          is_written_row(call, place)
              ? spec_of_row(place.payload->link()->base->spec(), place.payload->link()->row->dim)
              : place.payload->spec());
    } else {
      return std::nullopt;
    }
  }
  return specs;
}

std::vector<CallSchema> schemas_of(const Call& call, const TensorSpecs& specs) {
  const SchemaMaker maker(call, specs);
  return call.facts().is_by_member ? maker.by_member() : std::vector{maker.whole_call()};
}

}  // namespace tegula::inner
