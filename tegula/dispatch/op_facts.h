// What an operator's schema says that the kernel needs to know, worked out once per operator.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string>
#include <vector>

namespace tegula {

struct OpFacts {
  explicit OpFacts(const c10::OperatorHandle& op);

  std::string name;                                   // "aten::add.Tensor"
  std::vector<bool> written;                          // per argument
  std::vector<std::optional<std::size_t>> return_is;  // per return: the written argument that it is
  std::optional<std::size_t> viewed;                  // the argument that the results are views of
  std::optional<std::size_t> generator;               // the argument that is a random generator
  bool is_random = false;
  bool writes = false;   // some argument
  bool has_out = false;  // an argument that is for the result
};

}  // namespace tegula
