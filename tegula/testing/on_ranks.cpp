// The idea: the same call on plain tensors and on ranks that are threads, with gradients of a loss
// that weighs every element differently. What differs is a fault.
#include "tegula/testing/on_ranks.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <random>

#include "tegula/base/text.h"
#include "tegula/families/families.h"
#include "tegula/operators/arguments.h"
#include "tegula/tensor/dtensor.h"
#include "tegula/testing/parts.h"

namespace tegula::inner {
namespace {

using Tensors = std::vector<at::Tensor>;
using Way = std::vector<Placements>;  // one per tensor of the call

constexpr std::uint64_t kSeed = 1;
constexpr int kRandomWays = 6;

void append_tensors(const c10::IValue& value, Tensors& into) {
  with_tensors(value, [&](int, const at::Tensor& tensor) {
    into.push_back(tensor);
    return tensor;
  });
}

class SampleCall {
 public:
  explicit SampleCall(const Sample& sample)
      : op_(operator_of(sample)),
        facts_(operator_table().entry(op_).facts),
        arguments_(arguments_of(sample, kSeed)) {}

  Tensors tensors() const {
    Tensors all;
    for (const c10::IValue& argument : arguments_) append_tensors(argument, all);
    return all;
  }

  bool has_gradient() const {
    using c10::DispatchKey;
    for (const DispatchKey key : {DispatchKey::Autograd, DispatchKey::AutogradCPU,
                                  DispatchKey::CompositeImplicitAutograd}) {
      if (op_.hasKernelForDispatchKey(key)) return true;
    }
    return false;
  }

  // The op's results, then what it writes. What it writes is a copy.
  Tensors run(const Tensors& tensors) const {
    std::vector<c10::IValue> stack = arguments_;
    std::size_t next = 0;
    for (std::size_t index = 0; index < stack.size(); ++index) {
      stack[index] = with_tensors(stack[index], [&](int, const at::Tensor&) {
        const at::Tensor& tensor = tensors[next++];
        return facts_.written[index] && tensor.defined() ? tensor.clone() : tensor;
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

  // With the gradients of the tensors that require one behind them, of a loss that weighs all
  // elements differently.
  Tensors run_with_gradients(const Tensors& tensors) const {
    Tensors results = run(tensors);
    Tensors roots, weights, leaves;
    for (const at::Tensor& result : results) {
      if (!result.defined() || !result.requires_grad()) continue;
      roots.push_back(result);
      weights.push_back(at::cos(result.detach()));
    }
    for (const at::Tensor& tensor : tensors) {
      if (tensor.defined() && tensor.requires_grad()) leaves.push_back(tensor);
    }
    if (roots.empty() || leaves.empty()) return results;
    for (at::Tensor& gradient :
         torch::autograd::grad(roots, leaves, weights, false, false, /*allow_unused=*/true)) {
      results.push_back(std::move(gradient));
    }
    return results;
  }

 private:
  c10::OperatorHandle op_;
  const OpFacts& facts_;
  std::vector<c10::IValue> arguments_;
};

// Leaves that require grad where they can, if the op has a gradient.
Tensors leaves_of(const SampleCall& call) {
  const auto leaves = [&](bool require) {
    Tensors all;
    for (const at::Tensor& tensor : call.tensors()) {
      all.push_back(tensor.defined() ? tensor.detach() : tensor);
      const bool can = all.back().defined() && all.back().is_floating_point();
      if (can) all.back().set_requires_grad(require);
    }
    return all;
  };
  if (!call.has_gradient()) return leaves(/*require=*/false);
  try {  // some have one for other calls only
    call.run_with_gradients(leaves(/*require=*/true));
    return leaves(/*require=*/true);
  } catch (const std::exception&) {
    return leaves(/*require=*/false);
  }
}

Placement unequal(std::int64_t dim, std::int64_t size, std::int64_t ranks) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(ranks), 0);
  sizes.back() = size / 2;
  sizes.front() += size - size / 2;
  return Shard(dim, Cut::ragged(sizes));
}

std::vector<Way> ways_of(const Tensors& tensors, const DeviceMesh& mesh) {
  const Way alike(tensors.size(), Placements(mesh.ndim(), Replicate()));
  std::vector<Way> ways{alike};
  const auto add = [&](std::size_t k, const Placements& placements) {
    ways.push_back(alike);
    ways.back()[k] = placements;
  };
  for (std::size_t k = 0; k < tensors.size(); ++k) {
    if (!tensors[k].defined()) continue;
    for (std::int64_t dim = 0; dim < tensors[k].dim(); ++dim) {
      add(k, Placements(mesh.ndim(), Shard(dim)));
      for (std::size_t axis = 0; axis < mesh.ndim(); ++axis) {
        Placements one = alike[k];
        one[axis] = unequal(dim, tensors[k].size(dim), mesh.axes()[axis].size);
        add(k, one);
        one[axis] = Shard(dim);
        add(k, one);
      }
    }
  }
  std::mt19937_64 random(kSeed);
  for (int draw = 0; draw < kRandomWays; ++draw) {
    Way way = alike;
    for (std::size_t k = 0; k < tensors.size(); ++k) {
      for (Placement& placement : way[k]) {
        const std::int64_t dims = tensors[k].defined() ? tensors[k].dim() : 0;
        const bool may_owe = tensors[k].defined() && tensors[k].is_floating_point();
        const auto pick =
            static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(dims + 2));
        if (pick < dims) placement = Shard(pick);
        if (pick == dims && may_owe) placement = Partial();
      }
    }
    ways.push_back(std::move(way));
  }
  return ways;
}

std::string text_of(const Way& way) {
  std::vector<std::string> texts;
  for (const Placements& placements : way) texts.push_back(to_string(placements));
  return join(texts);
}

Tensors placed(const Tensors& tensors, const Way& way, const DeviceMesh& mesh) {
  Tensors all = tensors;
  for (std::size_t k = 0; k < all.size(); ++k) {
    if (!all[k].defined()) continue;
    const bool require = all[k].requires_grad();
    // a leaf that owes something gets its gradient as a replicated one does
    all[k] = distribute_tensor(all[k].detach(), mesh, way[k]).detach().set_requires_grad(require);
  }
  return all;
}

double tolerance_of(const Tensors& tensors) {
  double coarsest = 0;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined()) coarsest = std::max(coarsest, rounding_of(tensor.scalar_type()));
  }
  return coarsest;
}

// Empty: all as plain.
std::string difference_of_all(const Tensors& got, const Tensors& want, double tolerance) {
  if (got.size() != want.size()) return "another number of results";
  for (std::size_t k = 0; k < got.size(); ++k) {
    if (got[k].defined() != want[k].defined()) return "a result is undefined";
    if (!got[k].defined()) continue;
    const at::Tensor whole = is_dtensor(got[k]) ? full_tensor(got[k].detach()) : got[k];
    const std::string difference = difference_of(whole, want[k].detach(), tolerance);
    if (!difference.empty()) return "result " + std::to_string(k) + ": " + difference;
  }
  return "";
}

}  // namespace

std::vector<std::string> faults_on_ranks(const Sample& sample, const std::vector<MeshAxis>& axes) {
  const SampleCall call(sample);
  const Tensors leaves = leaves_of(call);
  const Tensors want = call.run_with_gradients(leaves);
  Tensors all = want;
  all.insert(all.end(), leaves.begin(), leaves.end());
  const double tolerance = tolerance_of(all);
  std::vector<std::string> faults;
  int ranks = 1;
  for (const MeshAxis& axis : axes) ranks *= static_cast<int>(axis.size);
  run_ranks(ranks, [&](World& world) {
    const DeviceMesh mesh = world.mesh(axes);
    for (const Way& way : ways_of(leaves, mesh)) {
      std::string difference;
      try {
        difference =
            difference_of_all(call.run_with_gradients(placed(leaves, way, mesh)), want, tolerance);
      } catch (const std::exception& error) {
        difference = std::string("it throws: ") + error.what();
      }
      if (difference.empty()) continue;
      if (world.rank() == 0) {
        faults.push_back(to_string(sample) + " on " + to_string(mesh) + " with operands as " +
                         text_of(way) + ": " + difference);
      }
      world.recover();
    }
  });
  return faults;
}

}  // namespace tegula::inner
