// PlayedCall: a call on the ranks of one mesh axis, all of them played by this process: operands
// are cut up, the plain op is run once per rank, and what it gives can be compared with the op on
// the whole. No communication, no World.
#pragma once

#include <ATen/core/Generator.h>

#include <optional>
#include <utility>
#include <vector>

#include "tegula/operators/call_schema.h"
#include "tegula/testing/sample.h"

namespace tegula::inner {

// Where the operands of a call are along the axis.
struct Placing {
  std::vector<Placement> operands;  // one per tensor of the schema
  // Arguments that list sizes: each rank gets those of a tensor placed like this.
  std::vector<std::pair<std::size_t, Placement>> sizes = {};
  // The operand in whose cut dim is looked up: elsewhere its rows count as zeros.
  std::optional<std::size_t> looked_up = std::nullopt;
  // What the op gives on a rank is multiplied by the rank's share; empty: as it is.
  std::vector<double> shares = {};
};

class PlayedCall {
 public:
  // Lists of an op that works member by member have one member.
  PlayedCall(const Sample& sample, std::int64_t ranks, std::uint64_t seed);

  const DeviceMesh& axis() const { return axis_; }
  // With every tensor replicated.
  const OpSchema& schema() const { return call_schema_.schema; }
  const at::Tensor& operand(std::size_t tensor) const;

  // What the op gives on the whole: the tensors that it returns, then those that it has written, in
  // the order of schema().written.
  const std::vector<at::Tensor>& results() const { return results_; }
  std::size_t returned_count() const { return results_.size() - schema().written.size(); }

  // By how much results may differ: the coarsest element type of the call says it.
  double rounding() const;

  // ... and on the ranks: for each result one part per rank. What the op throws passes.
  std::vector<std::vector<at::Tensor>> play(const Placing& placing);

 private:
  std::vector<at::Tensor> run(std::vector<c10::IValue> arguments) const;
  std::vector<at::Tensor> tiles_of(std::size_t tensor, const Placing& placing);
  Shape sizes_at(std::size_t argument, const Placement& placement, std::int64_t rank) const;

  Call call_;
  DeviceMesh axis_;
  CallSchema call_schema_;
  at::Generator random_;
  std::vector<at::Tensor> results_;
};

}  // namespace tegula::inner
