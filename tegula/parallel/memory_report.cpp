// The idea: bytes of tiles follow from specs, so everything but the optimizer's habits is
// arithmetic.
#include "tegula/parallel/memory_report.h"

#include <ATen/ATen.h>
#include <torch/nn/module.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>

#include "tegula/base/error.h"
#include "tegula/base/table.h"
#include "tegula/base/text.h"
#include "tegula/bridge/torch_types.h"
#include "tegula/gradient/differentiable.h"
#include "tegula/parallel/alike.h"
#include "tegula/payload/payload.h"
#include "tegula/spec/placed_otherwise.h"
#include "tegula/spec/slices.h"

namespace tegula {

using namespace inner;

namespace {

// How many tensors like the parameter the optimizer keeps for it; none: not known.
std::optional<std::int64_t> tensors_kept(const torch::optim::OptimizerOptions& any) {
  using namespace torch::optim;
  if (const auto* sgd = dynamic_cast<const SGDOptions*>(&any)) return sgd->momentum() != 0 ? 1 : 0;
  if (const auto* adam = dynamic_cast<const AdamOptions*>(&any)) return adam->amsgrad() ? 3 : 2;
  if (const auto* adamw = dynamic_cast<const AdamWOptions*>(&any)) return adamw->amsgrad() ? 3 : 2;
  if (dynamic_cast<const AdagradOptions*>(&any) != nullptr) return 1;
  if (const auto* rms = dynamic_cast<const RMSpropOptions*>(&any)) {
    return 1 + (rms->momentum() > 0 ? 1 : 0) + (rms->centered() ? 1 : 0);
  }
  return std::nullopt;
}

using KeptBy = std::map<c10::TensorImpl*, std::int64_t>;

KeptBy kept_by(const torch::optim::Optimizer& optimizer) {
  KeptBy kept;
  for (const torch::optim::OptimizerParamGroup& group : optimizer.param_groups()) {
    const std::optional<std::int64_t> count = tensors_kept(group.options());
    if (!count) {
      throw UsageError("what this optimizer keeps is not known")
          .hint("SGD, Adam, AdamW, Adagrad and RMSprop of libtorch are");
    }
    for (const at::Tensor& parameter : group.params()) {
      kept[parameter.unsafeGetTensorImpl()] = *count;
    }
  }
  return kept;
}

// The mesh of all DTensors; none if there are none.
std::optional<DeviceMesh> mesh_among(const std::vector<NamedTensor>& tensors) {
  std::optional<DeviceMesh> mesh;
  for (const NamedTensor& one : tensors) {
    if (!payload_in(one.tensor)) continue;
    const DeviceMesh& here = payload_in(one.tensor)->spec().mesh();
    if (!mesh) mesh = here;
    if (*mesh == here) continue;
    throw UsageError("a report is about tensors on one mesh")
        .fact("tensor", in_quotes(one.name))
        .fact("is", to_string(payload_in(one.tensor)->spec()))
        .fact("others", to_string(*mesh))
        .hint("report on the parts of the module one by one");
  }
  return mesh;
}

std::int64_t bytes_at(const DTensorSpec& spec, const Coordinate& at) {
  std::int64_t count = size_of(spec.meta().dtype());
  for (const std::int64_t extent : local_shape(spec, at)) count *= extent;
  return count;
}

// Bytes of a tensor at rest, of its gradient, and while it is used.
struct Held {
  std::int64_t at_rest = 0, gradient = 0, in_use = 0;
  bool stays_gathered = false;
  std::int64_t most_gathered = 0;
};

Held held_at(const at::Tensor& tensor, const Coordinate& at) {
  const Payload* payload = payload_in(tensor);
  if (!payload) {
    const auto bytes = static_cast<std::int64_t>(tensor.nbytes());
    return {bytes, bytes};
  }
  const DTensorSpec& spec = payload->spec();
  Held held{bytes_at(spec, at), bytes_at(gradient_spec(*payload, spec.meta()), at)};
  if (const Gathering* gathering = payload->gathering()) {
    held.in_use = bytes_at(with_axes_whole(spec, gathering->over), at);
    held.stays_gathered = gathering->is_kept;
    held.most_gathered = gathering->most_bytes;
  }
  return held;
}

MemoryBytes bytes_of(const std::vector<NamedTensor>& tensors, const KeptBy& kept,
                     const Coordinate& at) {
  MemoryBytes bytes;
  std::int64_t passing = 0, largest = 0, most = 0;  // of what is let go
  for (const auto& [name, tensor, is_buffer] : tensors) {
    const Held held = held_at(tensor, at);
    if (is_buffer) {
      bytes.buffers += held.at_rest;
      continue;
    }
    bytes.parameters += held.at_rest;
    if (tensor.requires_grad()) {
      bytes.gradients += held.gradient;
      const auto found = kept.find(tensor.unsafeGetTensorImpl());
      if (found != kept.end()) bytes.state += held.at_rest * found->second;
    }
    if (held.stays_gathered) {
      bytes.gathered += held.in_use;
    } else {
      passing += held.in_use;
      largest = std::max(largest, held.in_use);
      most = std::max(most, held.most_gathered);
    }
  }
  bytes.gathered += std::min(passing, std::max(largest, most));
  return bytes;
}

}  // namespace

const MemoryBytes& MemoryReport::fullest() const {
  return *std::max_element(
      ranks.begin(), ranks.end(),
      [](const MemoryBytes& a, const MemoryBytes& b) { return a.total() < b.total(); });
}

MemoryReport memory_report(const torch::nn::Module& module,
                           const torch::optim::Optimizer& optimizer) {
  const std::vector<NamedTensor> tensors = named_tensors(module);
  const KeptBy kept = kept_by(optimizer);
  const std::optional<DeviceMesh> mesh = mesh_among(tensors);
  MemoryReport report;
  if (!mesh) {
    report.ranks.push_back(bytes_of(tensors, kept, {}));
    return report;
  }
  for (std::int64_t place = 0; place < mesh->size(); ++place) {
    report.ranks.push_back(bytes_of(tensors, kept, mesh->coordinate_at(place)));
  }
  return report;
}

std::string to_string(const MemoryReport& report) {
  Table table({"rank", "parameters", "gradients", "state", "gathered", "buffers", "total"});
  const auto add = [&](const std::string& name, const MemoryBytes& one) {
    table.add({name, in_thousands(one.parameters), in_thousands(one.gradients),
               in_thousands(one.state), in_thousands(one.gathered), in_thousands(one.buffers),
               in_thousands(one.total())});
  };
  const bool alike = std::all_of(report.ranks.begin(), report.ranks.end(),
                                 [&](const MemoryBytes& one) { return one == report.ranks[0]; });
  constexpr std::size_t kFew = 16;
  if (alike) {
    add("each", report.ranks[0]);
  } else if (report.ranks.size() > kFew) {
    add("fullest", report.fullest());
  } else {
    for (std::size_t k = 0; k < report.ranks.size(); ++k) add(std::to_string(k), report.ranks[k]);
  }
  std::ostringstream out;
  table.print(out);
  return out.str();
}

}  // namespace tegula
