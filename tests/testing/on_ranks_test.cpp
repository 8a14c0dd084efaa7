// Every op that has a rule, on ranks: forward and gradient are those of plain tensors, however the
// operands are placed.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tegula/base/error.h"
#include "tegula/families/families.h"
#include "tegula/operators/arguments.h"
#include "tegula/testing/parts.h"
#include "tests/tensor/as_plain.h"
#include "tests/testing/samples.h"

namespace tegula::inner {
namespace on_ranks_test {

// Samples as programs ---------------------------------------------------------------------------

void append_tensors(const c10::IValue& value, Tensors& into) {
  with_tensors(value, [&](int, const at::Tensor& tensor) {
    into.push_back(tensor);
    return tensor;
  });
}

// The sample's call with tensors of its own; what it writes is a copy.
class SampleProgram {
 public:
  explicit SampleProgram(const Sample& sample)
      : op_(operator_of(sample)),
        facts_(operator_table().entry(op_).facts),
        arguments_(arguments_of(sample, 1)) {}

  Tensors inputs() const {
    Tensors tensors;
    for (const c10::IValue& argument : arguments_) append_tensors(argument, tensors);
    return tensors;
  }

  Tensors operator()(const Tensors& inputs) const {
    std::vector<c10::IValue> stack = arguments_;
    std::size_t next = 0;
    for (std::size_t index = 0; index < stack.size(); ++index) {
      stack[index] = with_tensors(stack[index], [&](int, const at::Tensor&) {
        const at::Tensor& input = inputs[next++];
        return facts_.written[index] ? input.clone() : input;
      });
    }
    const std::vector<c10::IValue> arguments = stack;
    op_.callBoxed(&stack);
    Tensors results;
    for (const c10::IValue& result : stack) append_tensors(result, results);
    for (std::size_t index = 0; index < arguments.size(); ++index) {
      if (facts_.written[index]) append_tensors(arguments[index], results);
    }
    return results;
  }

  bool has_out() const { return facts_.has_out; }

 private:
  c10::OperatorHandle op_;
  const OpFacts& facts_;
  std::vector<c10::IValue> arguments_;
};

// Inputs that can require grad do, if libtorch has a gradient for the op.
Tensors leaves_of(const SampleProgram& program) {
  Tensors leaves = program.inputs();
  if (program.has_out()) return leaves;
  for (at::Tensor& leaf : leaves) {
    leaf.set_requires_grad(leaf.is_floating_point() || leaf.is_complex());
  }
  try {
    at::Tensor loss = at::zeros({}, at::kDouble);
    for (const at::Tensor& result : program(leaves)) {
      // not abs: where phases are arbitrary, libtorch refuses a loss that depends on them
      if (result.defined() && result.requires_grad()) loss = loss + at::real(result * result).sum();
    }
    if (loss.requires_grad()) loss.backward();
  } catch (const c10::Error&) {
    for (at::Tensor& leaf : leaves) leaf.set_requires_grad(false);
  }
  for (at::Tensor& leaf : leaves) leaf.mutable_grad() = at::Tensor();
  return leaves;
}

double tolerance_for(const SampleProgram& program) {
  double coarsest = 0;
  for (const Tensors& tensors : {program.inputs(), program(program.inputs())}) {
    for (const at::Tensor& tensor : tensors) {
      if (tensor.defined()) coarsest = std::max(coarsest, rounding_of(tensor.scalar_type()));
    }
  }
  return coarsest;
}

// Ways to place the operands --------------------------------------------------------------------

constexpr std::size_t kMostWays = 20;
constexpr int kDraws = 4;

std::vector<Placement> choices_for(const at::Tensor& tensor) {
  std::vector<Placement> choices{Replicate()};
  for (std::int64_t dim = 0; dim < tensor.dim(); ++dim) choices.emplace_back(Shard(dim));
  if (tensor.scalar_type() != at::kBool) choices.emplace_back(Partial());
  return choices;
}

// All combinations on one axis, or some of them if they are many.
std::vector<Way> combinations(const Tensors& inputs, Random& random) {
  std::vector<Way> ways{{}};
  for (const at::Tensor& input : inputs) {
    std::vector<Way> longer;
    for (const Way& way : ways) {
      for (const Placement& choice : choices_for(input)) {
        longer.push_back(way);
        longer.back().push_back({choice});
      }
    }
    random.shuffle(longer);
    if (longer.size() > 64 * kMostWays) longer.resize(64 * kMostWays);
    ways = std::move(longer);
  }
  if (ways.size() > kMostWays) ways.resize(kMostWays);
  return ways;
}

std::vector<Way> ways_for(const DeviceMesh& mesh, const Tensors& inputs) {
  Random random(static_cast<std::uint64_t>(mesh.size()) + inputs.size());
  std::vector<Way> ways;
  if (mesh.ndim() == 1) ways = combinations(inputs, random);
  for (int draw = 0; draw < kDraws; ++draw) {
    Way way;
    for (const at::Tensor& input : inputs) {
      way.push_back(some_placements(random, mesh, input, true));
    }
    ways.push_back(way);
  }
  return ways;
}

void expect_all_as_plain(int ranks, const std::vector<Sample>& samples) {
  run_impatient(ranks, [&](World& world) {
    for (const Sample& sample : samples) {
      SCOPED_TRACE(to_string(sample));
      const SampleProgram program(sample);
      AsPlain options;
      options.tolerance = tolerance_for(program);
      options.ways = ways_for;
      try {
        expect_as_plain_on(world, leaves_of(program), program, options);
      } catch (const CommError&) {
        throw;
      } catch (const std::exception& error) {
        if (world.rank() == 0) ADD_FAILURE() << error.what();
      }
    }
  });
}

class OnRanks : public testing::TestWithParam<int> {};

TEST_P(OnRanks, OpsWithRulesGiveWhatPlainOnesGive) {
  expect_all_as_plain(GetParam(), rule_samples());
}

TEST_P(OnRanks, EdgesGiveWhatPlainOnesGive) { expect_all_as_plain(GetParam(), edge_samples()); }

TEST_P(OnRanks, OtherFormsGiveWhatPlainOnesGive) {
  expect_all_as_plain(GetParam(), other_form_samples());
}

INSTANTIATE_TEST_SUITE_P(Rules, OnRanks, testing::Values(2, 3, 4));

}  // namespace on_ranks_test
}  // namespace tegula::inner
