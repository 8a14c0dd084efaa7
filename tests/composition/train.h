// Training by settings, on many ranks and alone.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "tegula/comm/world.h"
#include "tests/composition/settings.h"

namespace tegula::composition {

// Mistakes that the matrix has to find; the step makes one on purpose.
enum class Mutant : std::uint8_t {
  None,
  SkipTpReduction,  // what a layer cut by rows owes is taken for the sum
  TieCountsTwice,   // the gradient of a tied parameter is added for each of its places
  UnweightedMean,   // the mean of the ranks' means, however many samples each has
  ClipPerMesh,      // parameters that are placed otherwise are clipped by a norm of their own
  SkipDpReduction,  // each rank keeps the gradient of its own samples
  DropMicroBatch,   // the first of several micro-batches is forgotten
};
// "skip-tp-reduction" and so on. UsageError for another name.
Mutant mutant_named(std::string_view name);
// Whether settings are such that the mistake matters.
bool matters(Mutant mutant, const Settings& settings);

// What comes out of five steps.
struct Trained {
  std::vector<at::Tensor> parameters;  // whole, in f64, in the order of distinct_parameters
  std::vector<double> losses;          // of each step
};

// The ranks of the world are as many as the settings say. UsageError if not.
Trained train(const Settings& settings, const World& world, Mutant mutant = Mutant::None);
// The same by plain libtorch: the samples of a step at once, on one rank.
Trained train_alone(const Settings& settings);

// How far `got` is from `want`: the largest difference of an element, beside the longest way that
// one has gone in training; and that of losses, relative. Infinite for what is no number.
double difference(const Trained& got, const Trained& want, const Settings& settings);
// What `difference` may be: 1e-9 in f64.
double tolerance(const Settings& settings);

}  // namespace tegula::composition
