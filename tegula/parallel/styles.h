// Styles and plans: which modules of a model are split over a mesh axis, and how.
//
//   parallelize_module(*model, mesh["tp"], {{"blocks.*.up", Colwise()},
//                                           {"blocks.*.down", Rowwise()},
//                                           {"tokens", VocabularyCut()}});
//
// A style says where the parameters of one module lie along the axis. What follows from that for
// activations is sharding propagation's work: a Colwise layer leaves its output cut, a Rowwise one
// after it takes it as it is and owes a sum. Where propagation should not choose, `placed` says in
// forward where an activation is to be.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tegula/placement/placement.h"

namespace tegula {

// What a style knows of a parameter.
struct StyledParameter {
  std::string name;  // within its module: "weight"
  at::Tensor tensor;
  bool is_embedding = false;  // a table whose rows are looked up
  std::int64_t ranks = 1;     // along the axis
};

class Style {
 public:
  using Place = std::function<Placement(const StyledParameter& parameter)>;

  // A style of your own; the name is what is printed.
  Style(std::string name, Place place) : name_(std::move(name)), place_(std::move(place)) {}

  const std::string& name() const { return name_; }
  Placement place(const StyledParameter& parameter) const { return place_(parameter); }

 private:
  std::string name_;
  Place place_;
};

// Each rank computes some of the output features: parameters are cut along dim 0, the columns of an
// embedding along dim 1. Nothing is sent in forward; the output is cut along its last dim.
Style Colwise();
// The same for several layers in one, `parts` equal ones side by side (query, key and value; gate
// and up): each rank has its features of every part.
Style PackedColwise(std::int64_t parts);
// The same for unequal parts, given in units of equal length: rows, or heads, which then stay
// whole. PackedColwise({8, 2, 2}) is a query of 8 heads with keys and values of 2: each rank has
// some of the 2 groups of 4, 1 and 1 heads. If there are fewer groups than ranks, each part is cut
// by itself. split_with_sizes (or narrow) of the output along its last dim gives cut parts, without
// communication.
Style PackedColwise(const std::vector<std::int64_t>& units);
// Each rank has some of the input features: matrices are cut along dim 1, biases are replicated,
// the rows of an embedding are cut. The output owes a sum.
Style Rowwise();
// The same where the input is parts side by side, each cut by itself, as a PackedColwise layer of
// these parts leaves it.
Style PackedRowwise(std::int64_t parts);
Style PackedRowwise(const std::vector<std::int64_t>& units);
// The rows of an embedding are cut: each rank looks up what it has, and the output owes a sum.
Style VocabularyCut();
// Parameters are replicated; their gradients add up over the axis wherever activations are cut
// along the sequence.
Style Sequence();
Style Replicated();
// A parameter for which this style counts is a mistake of the plan. A plan that begins with
// {"**", Refused()} has to say something of every parameter.
Style Refused();

// Patterns of modules' names, or of parameters' full names, with styles: * stands for any
// characters up to a dot, ** for any number of parts. The last pattern that matches a parameter
// counts. A module's style holds for its own parameters and for those of the modules in it.
using ParallelPlan = std::vector<std::pair<std::string, Style>>;

// The style of this name: "colwise", "rowwise", "vocabulary", "sequence", "replicated", "refused",
// "packed colwise 3", "packed rowwise [8, 2, 2]". UsageError for another one.
Style style_named(std::string_view name);
// One line per pattern, "blocks.*.up: colwise"; and the reverse, for styles that have a name above.
std::string to_string(const ParallelPlan& plan);
ParallelPlan parse_plan(std::string_view text);

}  // namespace tegula
