// The one walk over the arguments of a call: where its tensors stand.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <span>
#include <utility>
#include <vector>

#include "tegula/operators/op_facts.h"

namespace tegula::inner {

using Values = std::vector<c10::IValue>;
// The arguments of one call, in the order of the operator's signature.
using Arguments = std::span<const c10::IValue>;

// Calls visit(argument, member, tensor) for every tensor that is given, undefined ones included, in
// the order in which tensors of a call are counted everywhere. `member` is -1 for a tensor that is
// an argument by itself, else its place in the list.
template <class Visit>
void for_each_tensor(const OpFacts& facts, Arguments arguments, Visit&& visit) {
  for (const std::size_t index : facts.tensor_arguments) {
    const c10::IValue& argument = arguments[index];
    if (argument.isTensor()) {
      visit(index, -1, argument.toTensor());
    } else if (argument.isList()) {
      int member = 0;
      for (const c10::IValue& one : argument.toListRef()) {
        if (one.isTensor()) visit(index, member, one.toTensor());
        ++member;
      }
    }
  }
}

// The value with its tensors replaced, one after the other, by replace(member, tensor).
template <class Replace>
c10::IValue with_tensors(const c10::IValue& value, Replace&& replace) {
  if (value.isTensor()) return c10::IValue(at::Tensor(replace(-1, value.toTensor())));
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    list.reserve(value.toListRef().size());
    int member = 0;
    for (const c10::IValue& one : value.toListRef()) {
      list.push_back(replace(member++, one.toTensor()));
    }
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    int member = 0;
    for (const c10::IValue& one : value.toListRef()) {
      list.push_back(one.isNone() ? std::nullopt
                                  : std::optional<at::Tensor>(replace(member, one.toTensor())));
      ++member;
    }
    return list;
  }
  return value;
}

// The same, in place, for all tensors among the arguments: replace(argument, member, tensor).
template <class Replace>
void replace_tensors(const OpFacts& facts, std::span<c10::IValue> arguments, Replace&& replace) {
  for (const std::size_t index : facts.tensor_arguments) {
    arguments[index] = with_tensors(arguments[index], [&](int member, const at::Tensor& tensor) {
      return replace(index, member, tensor);
    });
  }
}

}  // namespace tegula::inner
