#include "tests/tensor/as_plain.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tegula/random/random.h"

namespace tegula {
namespace {

// Without the stack that libtorch prints, and the list of kernels before it.
std::string without_backtrace(std::string text) {
  for (const char* mark :
       {"Exception raised from", "\n\nCPU: registered at", " is only available for"}) {
    text = text.substr(0, text.find(mark));
  }
  return text;
}

struct Outcome {
  Tensors results;
  Tensors gradients;  // undefined where there is none
};

at::Tensor weighted_sum(const at::Tensor& result) {
  const at::Tensor real = result.is_complex() ? at::view_as_real(result.resolve_conj()) : result;
  return (real * real.detach().add(1).sin()).sum();
}

void run_backward(const Tensors& results) {
  at::Tensor loss;
  for (const at::Tensor& result : results) {
    if (!result.defined() || !result.requires_grad()) continue;
    const at::Tensor part = weighted_sum(result);
    loss = loss.defined() ? loss + part : part;
  }
  if (loss.defined()) loss.backward();
}

Outcome outcome_of(const Program& program, const Tensors& inputs, const AsPlain& options) {
  Outcome outcome;
  outcome.results = program(inputs);
  if (options.gradients) run_backward(outcome.results);
  for (const at::Tensor& input : inputs) outcome.gradients.push_back(input.grad());
  return outcome;
}

Tensors fresh_leaves(const Tensors& inputs) {
  Tensors leaves;
  for (const at::Tensor& input : inputs) {
    leaves.push_back(input.detach().clone().set_requires_grad(input.requires_grad()));
  }
  return leaves;
}

Placements all(const Placement& placement, const DeviceMesh& mesh) {
  return Placements(mesh.ndim(), placement);
}

std::vector<Way> ways_to_place(const DeviceMesh& mesh, const Tensors& inputs,
                               const AsPlain& options) {
  if (options.ways) return options.ways(mesh, inputs);
  std::vector<Way> ways(3);
  for (const at::Tensor& input : inputs) {
    const bool cuttable = input.dim() > 0;
    ways[0].push_back(all(cuttable ? Placement(Shard(0)) : Replicate(), mesh));
    ways[1].push_back(all(cuttable ? Placement(Shard(input.dim() - 1)) : Replicate(), mesh));
    ways[2].push_back(all(Replicate(), mesh));
  }
  Random random(static_cast<std::uint64_t>(mesh.size()) * 100 + inputs.size());
  for (int draw = 0; draw < options.draws; ++draw) {
    Way way;
    for (const at::Tensor& input : inputs) {
      way.push_back(some_placements(random, mesh, input, options.partial));
    }
    ways.push_back(way);
  }
  return ways;
}

std::string text_of(const DeviceMesh& mesh, const Way& way) {
  std::string text = to_string(mesh) + ":";
  for (const Placements& placements : way) text += " " + to_string(placements);
  return text;
}

std::string gradient_difference(const at::Tensor& got, const at::Tensor& want,
                                const at::Tensor& input, double tolerance) {
  if (!want.defined()) {
    return got.defined() ? "a gradient where plain tensors have none" : "";
  }
  if (!got.defined()) return "no gradient";
  if (!is_dtensor(got)) return "a plain gradient";
  Placements placements = placements_of(input);
  for (Placement& placement : placements) {
    if (owed_reduction(placement)) placement = Replicate();
  }
  const std::string values = difference(full_tensor(got), want, tolerance);
  if (!values.empty()) return "the gradient " + values;
  if (placements_of(got) != placements) {
    return "the gradient is placed as " + to_string(placements_of(got));
  }
  return "";
}

std::string result_difference(const at::Tensor& got, const at::Tensor& want,
                              const AsPlain& options) {
  if (!want.defined()) return got.defined() ? "is defined" : "";
  if (!got.defined()) return "is undefined";
  if (!is_dtensor(got)) {
    return options.plain_results ? difference(got, want, options.tolerance) : "is plain";
  }
  if (got.sizes() != want.sizes()) {
    std::ostringstream out;
    out << "has sizes " << got.sizes() << ", not " << want.sizes();
    return out.str();
  }
  return difference(full_tensor(got.detach()), want, options.tolerance);
}

Tensors placed(const Tensors& inputs, const DeviceMesh& mesh, const Way& way) {
  Tensors result;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    result.push_back(distribute_tensor(inputs[i].detach().clone(), mesh, way[i], {std::nullopt, {}})
                         .set_requires_grad(inputs[i].requires_grad()));
  }
  return result;
}

void compare(const World& world, const Tensors& inputs, const Program& program, const Outcome& want,
             const AsPlain& options) {
  const DeviceMesh mesh = usual_mesh(world);
  for (const Way& way : ways_to_place(mesh, inputs, options)) {
    const std::string where = text_of(mesh, way);
    try {
      const Tensors operands = placed(inputs, mesh, way);
      const Outcome got = outcome_of(program, operands, options);
      ASSERT_EQ(got.results.size(), want.results.size()) << where;
      for (std::size_t i = 0; i < want.results.size(); ++i) {
        const std::string text = result_difference(got.results[i], want.results[i], options);
        if (!text.empty() && world.rank() == 0) {
          ADD_FAILURE() << "result " << i << " " << text << "\n  " << where;
        }
      }
      for (std::size_t i = 0; i < inputs.size() && options.gradients; ++i) {
        const std::string text = gradient_difference(got.gradients[i], want.gradients[i],
                                                     operands[i], options.tolerance);
        if (!text.empty() && world.rank() == 0) {
          ADD_FAILURE() << "input " << i << ": " << text << "\n  " << where;
        }
      }
    } catch (const std::exception& error) {
      throw std::runtime_error(where + "\n" + without_backtrace(error.what()));
    }
  }
}

}  // namespace

void expect_as_plain(const Tensors& inputs, const Program& program, const AsPlain& options) {
  const Outcome want = outcome_of(program, fresh_leaves(inputs), options);
  for (int ranks : {2, 3, 4}) {
    run_impatient(ranks, [&](World& world) { compare(world, inputs, program, want, options); });
  }
}

void expect_as_plain_on(const World& world, const Tensors& inputs, const Program& program,
                        const AsPlain& options) {
  compare(world, inputs, program, outcome_of(program, fresh_leaves(inputs), options), options);
}

WorldOptions impatient() { return {"", std::chrono::seconds(60)}; }

void run_impatient(int ranks, const std::function<void(World&)>& body) {
  try {
    run_ranks(ranks, body, impatient());
  } catch (const std::exception& error) {
    ADD_FAILURE() << ranks << " ranks: " << without_backtrace(error.what());
  }
}

std::string difference(const at::Tensor& got, const at::Tensor& want, double tolerance) {
  std::ostringstream out;
  if (got.sizes() != want.sizes()) {
    out << "has sizes " << got.sizes() << ", not " << want.sizes();
  } else if (got.scalar_type() != want.scalar_type()) {
    out << "is " << got.scalar_type() << ", not " << want.scalar_type();
  } else if (!at::allclose(got, want, tolerance, tolerance, /*equal_nan=*/true)) {
    out << "is\n" << got.detach() << "\nnot\n" << want.detach();
  }
  return out.str();
}

Placements some_placements(Random& random, const DeviceMesh& mesh, const at::Tensor& tensor,
                           bool partial) {
  Placements placements;
  std::vector<bool> cut(static_cast<std::size_t>(tensor.dim()), false);
  for (const MeshAxis& axis : mesh.axes()) {
    const std::int64_t kind = random.between(0, 5);
    if (kind <= 3 && tensor.dim() > 0) {
      const std::int64_t dim = random.between(0, tensor.dim() - 1);
      const bool ragged = kind == 3 && !cut[static_cast<std::size_t>(dim)];
      cut[static_cast<std::size_t>(dim)] = true;
      placements.emplace_back(
          ragged ? Shard(dim, Cut::ragged(random_sizes(random, tensor.size(dim), axis.size)))
                 : Shard(dim));
    } else if (kind == 4 && partial && tensor.scalar_type() != at::kBool) {
      placements.emplace_back(Partial());
    } else {
      placements.emplace_back(Replicate());
    }
  }
  return placements;
}

at::Tensor numbers(at::IntArrayRef shape, std::uint64_t seed) {
  at::Generator generator = inner::replicated_generator({seed, 0});
  return at::randn(shape, generator, at::TensorOptions(at::kDouble));
}

at::Tensor leaf(at::IntArrayRef shape, std::uint64_t seed) {
  return numbers(shape, seed).set_requires_grad(true);
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing was thrown";
}

bool libtorch_does(const std::function<void()>& call) {
  try {
    call();
    return true;
  } catch (const std::exception&) {  // autograd's "not implemented" is no c10::Error
    return false;
  }
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

DeviceMesh usual_mesh(const World& world) {
  if (world.size() == 4) return world.mesh({{"a", 2}, {"b", 2}});
  return world.mesh({{"a", world.size()}});
}

}  // namespace tegula
