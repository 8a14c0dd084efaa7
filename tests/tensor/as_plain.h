// The oracle: a program over tensors gives the same on DTensors, however they are placed, as on
// plain tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "tegula/tensor/dtensor.h"
#include "tests/placement/random.h"

namespace tegula {

using Tensors = std::vector<at::Tensor>;
using Program = std::function<Tensors(const Tensors& inputs)>;

// One list of placements per input.
using Way = std::vector<Placements>;

struct AsPlain {
  double tolerance = 1e-9;
  // Draws of placements per mesh, on top of all S(0), all S(last dim) and all R.
  int draws = 4;
  // Whether inputs may owe reductions.
  bool partial = true;
  // Whether results may be plain tensors.
  bool plain_results = false;
  // Whether gradients of the inputs that require them are compared, too.
  bool gradients = true;
  // If given: the ways to place the inputs, instead of those above.
  std::function<std::vector<Way>(const DeviceMesh& mesh, const Tensors& inputs)> ways = {};
};

// Runs the program on plain tensors, then on 2, 3 and 2x2 ranks with the inputs placed in several
// ways (even, ragged, empty shards; owed sums), and compares values, shapes, dtypes and the
// gradients of the inputs that require grad. Inputs are leaves.
void expect_as_plain(const Tensors& inputs, const Program& program, const AsPlain& options = {});
// The same on the ranks of one world; all of them call it. What fails on a rank is thrown.
void expect_as_plain_on(const World& world, const Tensors& inputs, const Program& program,
                        const AsPlain& options = {});

// Ranks that give up instead of waiting for ever.
WorldOptions impatient();
// run_ranks with these; what a rank throws fails the test.
void run_impatient(int ranks, const std::function<void(World&)>& body);

// Element by element, NaNs alike, with shape and dtype. Empty if they are the same.
std::string difference(const at::Tensor& got, const at::Tensor& want, double tolerance = 1e-9);

// Placements by chance that fit the tensor.
Placements some_placements(Random& random, const DeviceMesh& mesh, const at::Tensor& tensor,
                           bool partial);

// A plain tensor of this shape with other values for each seed; float64.
at::Tensor numbers(at::IntArrayRef shape, std::uint64_t seed = 1);
// The same, as a leaf that requires grad.
at::Tensor leaf(at::IntArrayRef shape, std::uint64_t seed = 1);

// What a call throws, "nothing was thrown" if it does not.
std::string error_of(const std::function<void()>& call);
bool contains(const std::string& text, const std::string& part);
// Whether this libtorch does that with plain tensors: older ones lack some gradients, and refuse
// to pad what has no elements.
bool libtorch_does(const std::function<void()>& call);

// The meshes that tests use, by number of ranks: (a=2), (a=3), (a=2, b=2).
DeviceMesh usual_mesh(const World& world);

}  // namespace tegula
