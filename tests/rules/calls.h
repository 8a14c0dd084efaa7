// Calls for tests, written as they are printed.
#pragma once

#include <string>
#include <vector>

#include "tegula/rules/axis_moves.h"
#include "tegula/rules/rule_table.h"
#include "tegula/spec/dtensor_spec.h"

namespace tegula {

// "f32[8, 6] on (tp=2) as [S(0)]" each; "none" for a tensor that is not given.
inline OpSchema call(std::string op, const std::vector<std::string>& specs,
                     std::vector<Argument> arguments = {}) {
  OpSchema schema{std::move(op), std::move(arguments), {}};
  for (const std::string& spec : specs) {
    schema.tensors.push_back(spec == "none" ? std::nullopt : std::optional(parse_spec(spec)));
  }
  return schema;
}

// Replicated over one axis: "f32[8, 6]" each.
inline OpSchema whole_call(std::string op, const std::vector<std::string>& tensors,
                           std::vector<Argument> arguments = {}) {
  std::vector<std::string> specs;
  for (const std::string& tensor : tensors) {
    specs.push_back(tensor == "none" ? tensor : tensor + " on (tp=2) as [R]");
  }
  return call(std::move(op), specs, std::move(arguments));
}

inline std::vector<std::string> moves_of(const Signature& signature) {
  std::vector<std::string> moves;
  for (const AxisMove& move : axis_moves(signature)) moves.push_back(to_string(move));
  return moves;
}

}  // namespace tegula
