// Samples of every operator that has a rule.
#pragma once

#include <string>
#include <vector>

#include "tegula/testing/sample.h"

namespace tegula {

// Each of these operators with each of these arguments.
void add(std::vector<Sample>& samples, const std::vector<std::string>& ops,
         const std::vector<std::string>& texts);

// Of files of their own, which rule_samples() takes in.
std::vector<Sample> pointwise_samples();

// At least one per rule, more where arguments matter. All give a new tensor.
const std::vector<Sample>& rule_samples();

// Parts of it, by family.
void add_samples_within(std::vector<Sample>& samples);
// Those of one family each, for rule_samples and edge_samples.
void add_image_samples(std::vector<Sample>& samples);
void add_image_edge_samples(std::vector<Sample>& samples);

// Arguments and shapes at the edge of what rules cover: dims of one element or none, no dims, empty
// lists, unusual numbers. Too special to say which moves are right in general.
const std::vector<Sample>& edge_samples();

// Forms that follow the rule of another op: in place, out=, over lists, fused; and
// calls that their own rule does not cover.
const std::vector<Sample>& other_form_samples();

// Parts of rule_samples(), one function per file.
std::vector<Sample> samples_of_totals();

}  // namespace tegula
