// OpSchema: one call of an operator as far as a decision depends on it: which op, how its tensors
// are distributed, and the arguments that are no tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "tegula/spec/dtensor_spec.h"

namespace tegula {

// Arguments as rules read them. Tensors are counted through all arguments, list members included.
namespace argument {

struct None {
  bool operator==(const None&) const = default;
};
struct Tensor {
  std::size_t index = 0;
  bool operator==(const Tensor&) const = default;
};
struct TensorList {
  std::size_t first = 0;
  std::size_t count = 0;
  // Where in the list each of them stands, if others are left out; empty: one after the other.
  std::vector<std::size_t> places = {};

  std::size_t place(std::size_t member) const { return places.empty() ? member : places[member]; }
  bool operator==(const TensorList&) const = default;
};
struct Text {
  std::string text;
  bool operator==(const Text&) const = default;
};
// A number whose value no rule looks at, a generator ...
struct Other {
  bool operator==(const Other&) const = default;
};

}  // namespace argument

using Ints = std::vector<std::int64_t>;
using Argument = std::variant<argument::None, argument::Tensor, argument::TensorList, bool,
                              std::int64_t, Ints, argument::Text, argument::Other>;

struct OpSchema {
  std::string op;                                   // "mm", "sum.dim_IntList", "mylib::op"
  std::vector<Argument> arguments;                  // as the operator's signature lists them
  std::vector<std::optional<DTensorSpec>> tensors;  // none: an optional one that is not given
  // Of tensors, by index: written by the op, so that they must stay as they are.
  std::vector<std::size_t> written = {};
  // Tensors that take the results (out=), by result; no rule sees them as operands.
  std::vector<DTensorSpec> out = {};

  // What an argument is. Rules know the operator's signature; InternalError if it is another kind.
  bool is_none(std::size_t argument) const;
  std::size_t tensor(std::size_t argument) const;
  argument::TensorList list(std::size_t argument) const;
  bool flag(std::size_t argument) const;
  std::int64_t integer(std::size_t argument) const;
  const Ints& ints(std::size_t argument) const;
  const std::string& text(std::size_t argument) const;

  // The spec of a tensor that is given.
  const DTensorSpec& spec(std::size_t tensor) const { return *tensors[tensor]; }
  bool has(std::size_t tensor) const { return tensor < tensors.size() && tensors[tensor]; }
};

// "mm(f32[8, 6] as [S(0)], f32[6, 4] as [R])"
std::string to_string(const OpSchema& schema);

}  // namespace tegula
