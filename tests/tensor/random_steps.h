// The values that a random program has made so far, and the steps that it may take next.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tegula/mesh/device_mesh.h"
#include "tegula/placement/placement.h"
#include "tegula/spec/shard_order.h"
#include "tegula/spec/tensor_meta.h"
#include "tests/placement/random.h"
#include "tests/tensor/random_place.h"

namespace tegula::test {

using Tensors = std::vector<at::Tensor>;

// One value, plain and distributed. Values that share memory are of one family; a family may be
// written as long as autograd has saved no member of it and no leaf is among them.
struct Value {
  at::Tensor plain;
  at::Tensor distributed;
  std::size_t family;
};

struct Pool {
  DeviceMesh mesh;
  DeviceMesh part;  // one axis of it, or all of it; some leaves are placed on it
  Random random;
  std::vector<Value> values = {};
  std::vector<bool> is_writable = {};    // by family
  std::vector<std::size_t> leaves = {};  // the values that gradients are asked for
  std::vector<std::string> lines = {};   // the program so far

  const at::Tensor& plain(std::size_t index) const { return values[index].plain; }
  std::int64_t dim(std::size_t index) const { return values[index].plain.dim(); }

  // A value for which `fits` holds, recent ones more often.
  std::optional<std::size_t> pick(const std::function<bool(const Value&)>& fits);
  // A value of at least one floating-point number with at least `dims` dims.
  std::optional<std::size_t> pick_float(std::int64_t dims = 0);
  // The same, and one without elements will do.
  std::optional<std::size_t> pick_float_or_none(std::int64_t dims = 0);
  std::optional<std::size_t> pick_shaped(const std::function<bool(at::IntArrayRef)>& fits);
  // A new leaf of random numbers.
  std::size_t add_leaf(const Shape& shape);
  // A new leaf with these values, never one that requires grad.
  std::size_t add_constant(const at::Tensor& plain);
  std::size_t add(const at::Tensor& plain, const at::Tensor& distributed);

 private:
  at::Tensor random_numbers(const Shape& shape);
};

// What autograd keeps of a step for the backward pass.
enum class Saves { Nothing, Others, Everything };

struct Step {
  std::string text;                   // "narrow(v3, dim=0, start=1, length=2)"
  std::vector<std::size_t> operands;  // indices of values
  std::function<Tensors(const Tensors&)> run;
  Saves saves = Saves::Everything;
  bool writes = false;  // the results are operands that were written, not new values
};

// A step by chance; nothing if the values at hand do not allow the kind that was drawn.
std::optional<Step> random_step(Pool& pool);

// Kinds of steps, by the file that makes them.
using StepKind = std::optional<Step> (*)(Pool&);
const std::vector<StepKind>& pointwise_steps();
const std::vector<StepKind>& product_steps();
const std::vector<StepKind>& view_steps();
const std::vector<StepKind>& reduction_steps();
const std::vector<StepKind>& indexing_steps();
const std::vector<StepKind>& writing_steps();
const std::vector<StepKind>& placing_steps();

// "name(v1, v2, attributes)"
std::string call_text(const std::string& name, const std::vector<std::size_t>& operands,
                      const std::string& attributes = "");
std::string text_of(at::IntArrayRef numbers);

// A step with one result.
using OneResult = std::function<at::Tensor(const Tensors&)>;
Step one_result(const std::string& name, const std::vector<std::size_t>& operands,
                const std::string& attributes, Saves saves, const OneResult& run);

// A view of a tensor by chance, with its text (".narrow(0, 1, 2)"); only kinds whose result may be
// written. The tensor has at least one dim.
struct RandomView {
  std::string text;
  std::function<at::Tensor(const at::Tensor&)> of;
};
RandomView random_view(Random& random, at::IntArrayRef shape);

// Whole numbers of [0, below).
at::Tensor random_places(Random& random, const Shape& shape, std::int64_t below);

// Whether every value keeps a distance from `kink`, so that rounding does not decide what it gives.
bool is_apart(const at::Tensor& values, double kink);
bool is_apart(const at::Tensor& a, const at::Tensor& b);
// Whether no two values are about the same.
bool is_distinct(const at::Tensor& values);

}  // namespace tegula::test
