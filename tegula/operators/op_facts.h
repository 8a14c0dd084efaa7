// What an operator's schema says that the kernel needs to know, worked out once per operator.
// Families correct what schemas leave out (operator_notes.h).
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tegula::inner {

// What of an argument a decision depends on.
enum class ArgumentKind : std::uint8_t {
  Tensor,
  TensorList,
  Value,  // its value: a dim, a size, a flag
  Type    // only whether it is there and of which type: a number that the op computes with
};

struct OperatorNotes;

struct OpFacts {
  OpFacts(const c10::OperatorHandle& op, const OperatorNotes& notes);

  std::string name;                                   // "aten::add.Tensor"
  std::vector<ArgumentKind> kinds;                    // per argument
  std::vector<std::size_t> tensor_arguments;          // those of kind Tensor or TensorList
  std::vector<bool> written;                          // per argument
  std::vector<bool> is_out;                           // per argument: only there for the result
  std::vector<std::optional<std::size_t>> return_is;  // per return: the written argument that it is
  std::optional<std::size_t> viewed;                  // the argument that the results are views of
  std::optional<std::size_t> generator;               // the argument that is a random generator
  bool is_random = false;
  bool writes = false;   // some argument
  bool has_out = false;  // an argument that is for the result
  // The op whose rule applies: itself, the one that it is the in-place or out= form of, or the one
  // that it applies to each member of its lists.
  std::string rule;
  bool is_by_member = false;
};

// "aten::add.Tensor" -> "add.Tensor", the name that rules go by; others keep their namespace.
std::string rule_name(const std::string& name);
// The other way round: "add.Tensor" -> "aten::add", "Tensor". Takes full names, too.
c10::OperatorName operator_name_of(const std::string& rule);

}  // namespace tegula::inner
