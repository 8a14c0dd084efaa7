// Sample: one call of an operator, written as text, so that it can be listed, printed and made anew
// with other numbers.
//
//   {"mm", "f64[4, 6], f64[6, 5]"}
//   {"sum.dim_IntList", "f64[4, 6], [-1], true"}
//   {"embedding", "f64[7, 3], i64[4, 2] in 0..6"}
//   {"cat", "{f64[4, 6], f64[4, 3]}, 1"}
//   {"index.Tensor", "f64[4, 6], {none, i64[3] in 0..5}"}
//   {"add.Tensor", "f64[4, 6], f64[4, 6] strides [1, 4], alpha=2"}
//
// Arguments stand in the order of the operator's signature, or by name; what is left out has its
// default. Floating and complex elements are normally distributed, or evenly between the given
// bounds; integers are 0 ... 4 or as given, bools are tossed.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tegula {

struct Sample {
  std::string op;  // "sum.dim_IntList"; of aten unless it says otherwise ("mylib::op")
  std::string arguments;
};

// "mm(f64[4, 6], f64[6, 5])"
std::string to_string(const Sample& sample);

// UsageError if libtorch knows no such operator.
c10::OperatorHandle operator_of(const Sample& sample);

// The same elements for the same seed. UsageError if the text does not fit the operator.
std::vector<c10::IValue> arguments_of(const Sample& sample, std::uint64_t seed);

}  // namespace tegula
