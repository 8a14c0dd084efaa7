// The idea: a step is a function of tensors. It runs on the plain values first; if it gives what
// the program can go on with, it runs on the DTensors, and what is whole must be the same.
#include "tests/tensor/random_programs.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <stdexcept>

#include "tegula/tensor/dtensor.h"
#include "tests/tensor/random_steps.h"

namespace tegula::test {
namespace {

constexpr double kTolerance = 1e-9;
constexpr double kLargest = 30;
constexpr std::int64_t kMostElements = 400;

std::string difference(const at::Tensor& got, const at::Tensor& want) {
  if (got.sizes() != want.sizes())
    return "shape " + text_of(got.sizes()) + " instead of " + text_of(want.sizes());
  if (got.scalar_type() != want.scalar_type())
    return std::string("dtype ") + c10::toString(got.scalar_type()) + " instead of " +
           c10::toString(want.scalar_type());
  if (want.numel() == 0) return "";
  if (!want.is_floating_point()) return at::equal(got, want) ? "" : "other values";
  const double largest = std::max(1.0, want.abs().max().item<double>());
  const double error = (got - want).abs().max().item<double>();
  return error <= kTolerance * largest ? "" : "values that are off by " + std::to_string(error);
}

void check_same(const at::Tensor& distributed, const at::Tensor& plain, const std::string& what) {
  const at::NoGradGuard guard;
  if (!is_dtensor(distributed)) throw std::runtime_error(what + " is no DTensor");
  const at::Tensor got = full_tensor(distributed);
  const std::string wrong = difference(got, plain);
  if (wrong.empty()) return;
  std::ostringstream text;
  text << what << " has " << wrong << "\n  spec " << to_string(spec_of(distributed));
  if (plain.numel() <= 60) text << "\ngot\n" << got << "\nwant\n" << plain;
  throw std::runtime_error(text.str());
}

bool is_fit_to_keep(const at::Tensor& plain) {
  if (plain.numel() > kMostElements) return false;
  return !plain.is_floating_point() || plain.isfinite().all().item<bool>();
}

bool is_large(const at::Tensor& tensor) {
  return tensor.is_floating_point() && tensor.numel() > 0 &&
         tensor.abs().max().item<double>() > kLargest;
}

class RandomProgram {
 public:
  RandomProgram(const DeviceMesh& mesh, std::uint64_t seed) : pool_{mesh, mesh, Random(seed)} {
    if (mesh.ndim() > 1) pool_.part = mesh[pool_.random.pick(mesh.axes()).name];
  }

  void run() {
    const std::int64_t leaves = pool_.random.between(2, 4);
    for (std::int64_t leaf = 0; leaf < leaves; ++leaf) pool_.add_leaf(random_shape());
    const std::int64_t steps = pool_.random.between(10, 20);
    for (std::int64_t taken = 0, tried = 0; taken < steps && tried < 500; ++tried) {
      taken += try_step() ? 1 : 0;
    }
    check_gradients();
  }

  std::string text() const {
    std::string result;
    for (const std::string& line : pool_.lines) result += "  " + line + "\n";
    return result;
  }

 private:
  Shape random_shape() {
    Shape shape;
    const std::int64_t dims = pool_.random.between(1, 3);
    for (std::int64_t dim = 0; dim < dims; ++dim) shape.push_back(pool_.random.between(1, 7));
    return shape;
  }

  bool try_step() {
    std::optional<Step> step = random_step(pool_);
    if (!step) return false;
    Tensors plain;
    Tensors distributed;
    for (std::size_t operand : step->operands) {
      plain.push_back(pool_.values[operand].plain);
      distributed.push_back(pool_.values[operand].distributed);
    }
    if (step->writes) {
      pool_.lines.push_back(step->text);
      step->run(plain);
      step->run(distributed);
      note_saved(*step);
      check_family(pool_.values[step->operands[0]].family);
      return true;
    }
    Tensors want = step->run(plain);
    for (const at::Tensor& tensor : want) {
      if (!is_fit_to_keep(tensor)) return false;
    }
    const bool is_too_large = std::any_of(want.begin(), want.end(), is_large);
    const auto bounded = [&](Tensors results) {
      for (at::Tensor& result : results) {
        if (is_too_large && result.is_floating_point()) result = (result * 0.1).tanh();
      }
      return results;
    };
    want = bounded(want);
    pool_.lines.push_back(step->text + (is_too_large ? ", times 0.1, tanh" : ""));
    note_saved(*step);
    keep(bounded(step->run(distributed)), want, step->saves == Saves::Everything || is_too_large);
    return true;
  }

  void note_saved(const Step& step) {
    if (step.saves == Saves::Nothing) return;
    for (std::size_t place = 0; place < step.operands.size(); ++place) {
      if (place == 0 && step.saves == Saves::Others) continue;
      pool_.is_writable[pool_.values[step.operands[place]].family] = false;
    }
  }

  void keep(const Tensors& distributed, const Tensors& plain, bool are_saved) {
    if (distributed.size() != plain.size()) throw std::runtime_error("another number of results");
    std::string specs;
    for (std::size_t index = 0; index < plain.size(); ++index) {
      const std::size_t made = pool_.add(plain[index], distributed[index]);
      if (are_saved) pool_.is_writable[pool_.values[made].family] = false;
      specs += (index ? ", v" : "v") + std::to_string(made);
    }
    specs += " = " + pool_.lines.back();
    for (const at::Tensor& tensor : distributed) {
      specs += "\n      " + (is_dtensor(tensor) ? to_string(spec_of(tensor)) : "plain");
    }
    pool_.lines.back() = specs;
    for (std::size_t index = 0; index < plain.size(); ++index) {
      check_same(distributed[index], plain[index], "result " + std::to_string(index));
    }
  }

  void check_family(std::size_t family) {
    for (std::size_t index = 0; index < pool_.values.size(); ++index) {
      const Value& value = pool_.values[index];
      if (value.family != family) continue;
      check_same(value.distributed, value.plain,
                 "v" + std::to_string(index) + ", after the write,");
    }
  }

  // Every value counts, so that every step's backward formula does.
  at::Tensor loss(const std::function<const at::Tensor&(const Value&)>& side) const {
    at::Tensor sum;
    for (const Value& value : pool_.values) {
      if (!value.plain.is_floating_point() || !value.plain.requires_grad()) continue;
      const at::Tensor term = side(value).sin().sum();
      sum = sum.defined() ? sum + term : term;
    }
    return sum;
  }

  void check_gradients() {
    pool_.lines.push_back("loss = sum of sin(every value)");
    const at::Tensor plain = loss([](const Value& value) -> auto& { return value.plain; });
    if (!plain.defined()) return;
    const at::Tensor distributed =
        loss([](const Value& value) -> auto& { return value.distributed; });
    check_same(distributed, plain, "the loss");
    Tensors plain_leaves;
    Tensors leaves;
    for (std::size_t leaf : pool_.leaves) {
      plain_leaves.push_back(pool_.values[leaf].plain);
      leaves.push_back(pool_.values[leaf].distributed);
    }
    const Asking asking =
        pool_.random.pick(std::vector<Asking>{Asking::Backward, Asking::Grad, Asking::GradOfGrad});
    pool_.lines.push_back(asking == Asking::Backward ? "loss.backward(), twice"
                          : asking == Asking::Grad   ? "grad(loss, leaves)"
                                                   : "grad(sum of squares of grad(loss, leaves))");
    const Value kept = pool_.values[*pool_.pick([](const Value& value) {
      return value.plain.is_floating_point() && value.plain.requires_grad();
    })];
    if (asking == Asking::Backward) {
      kept.plain.retain_grad();
      kept.distributed.retain_grad();
    }
    std::optional<Tensors> want = gradients(plain, plain_leaves, asking);
    if (!want) return;
    const std::optional<Tensors> got = gradients(distributed, leaves, asking);
    if (!got) throw std::runtime_error("a formula's own derivative is missing");
    for (std::size_t index = 0; index < want->size(); ++index) {
      check_gradient((*got)[index], (*want)[index], leaves[index], pool_.leaves[index]);
    }
    if (asking == Asking::Backward)
      check_same(kept.distributed.grad(), kept.plain.grad(), "a gradient that was retained");
  }

  enum class Asking { Backward, Grad, GradOfGrad };

  static Tensors gradients_by(const at::Tensor& loss, const Tensors& leaves, bool with_graph) {
    return torch::autograd::grad({loss}, leaves, {}, std::nullopt, with_graph,
                                 /*allow_unused=*/true);
  }

  // Nothing if libtorch has no derivative of a backward formula.
  static std::optional<Tensors> gradients(const at::Tensor& loss, const Tensors& leaves,
                                          Asking asking) {
    Tensors grads;
    switch (asking) {
      case Asking::Backward:
        loss.backward({}, /*retain_graph=*/true);
        loss.backward();
        for (const at::Tensor& leaf : leaves) grads.push_back(leaf.grad());
        return grads;
      case Asking::Grad:
        return gradients_by(loss, leaves, false);
      case Asking::GradOfGrad:
        break;
    }
    at::Tensor squares;
    for (const at::Tensor& grad : gradients_by(loss, leaves, true)) {
      if (!grad.defined() || !grad.requires_grad()) continue;
      const at::Tensor term = (grad * 0.01).square().sum();
      squares = squares.defined() ? squares + term : term;
    }
    if (!squares.defined()) return std::nullopt;
    try {
      return gradients_by(squares, leaves, false);
    } catch (const c10::Error& error) {
      if (std::string(error.what()).find("not implemented") == std::string::npos) throw;
      return std::nullopt;
    }
  }

  static void check_gradient(const at::Tensor& got, const at::Tensor& want, const at::Tensor& leaf,
                             std::size_t index) {
    const std::string what = "the gradient of v" + std::to_string(index);
    if (got.defined() != want.defined())
      throw std::runtime_error(what + (got.defined() ? " should not be" : " is missing"));
    if (!want.defined()) return;
    check_same(got, want, what);
    Placements placements = placements_of(leaf);
    for (Placement& placement : placements) {
      if (owed_reduction(placement)) placement = Replicate();
    }
    if (mesh_of(got) != mesh_of(leaf) || placements_of(got) != placements ||
        spec_of(got).shard_order() != spec_of(leaf).shard_order())
      throw std::runtime_error(what + " is " + to_string(spec_of(got)) + " and the leaf is " +
                               to_string(spec_of(leaf)));
  }

  Pool pool_;
};

}  // namespace

void run_random_program(const DeviceMesh& mesh, std::uint64_t seed) {
  RandomProgram program(mesh, seed);
  try {
    program.run();
  } catch (const std::exception& error) {
    throw std::runtime_error("random program of seed " + std::to_string(seed) + ":\n" +
                             program.text() + error.what());
  }
}

}  // namespace tegula::test
