// The idea: the tensors of a call are looked at once; everything that must be true of them together
// is asked here.
#include "tegula/operators/call.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <sstream>

#include "tegula/base/error.h"
#include "tegula/base/text.h"
#include "tegula/bridge/torch_types.h"
#include "tegula/payload/guards.h"

namespace tegula::inner {
namespace {

std::string short_text(const c10::IValue& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

}  // namespace

std::string described(const at::Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  if (const PayloadPtr payload = payload_of(tensor)) return to_string(payload->spec());
  if (tensor.layout() != at::kStrided) {
    std::ostringstream out;
    out << "plain " << tensor.layout() << " tensor" << tensor.sizes();
    return out.str();
  }
  return "plain " + std::string(c10::toString(tensor.scalar_type())) +
         bracketed(tensor.sizes().vec());
}

Call::Call(const OperatorEntry& entry, const torch::jit::Stack& stack) : entry_(&entry) {
  const std::size_t count = entry.facts.kinds.size();
  arguments_.assign(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end());
  for_each_tensor(entry.facts, arguments_,
                  [&](std::size_t argument, int member, const at::Tensor& tensor) {
                    tensors_.push_back({argument, member, tensor, payload_of(tensor)});
                  });
  find_mesh();
}

std::optional<std::size_t> Call::argument_named(const std::string& name) const {
  const std::optional<int> index = op().schema().argumentIndexWithName(name);
  return index ? std::optional(static_cast<std::size_t>(*index)) : std::nullopt;
}

std::optional<Coordinate> Call::coordinate() const { return mesh().coordinate_of(world().rank()); }

Call Call::with_argument(std::size_t index, c10::IValue value) const {
  Call other = *this;
  other.arguments_[index] = std::move(value);
  return other;
}

bool Call::has_dtensors() const { return widest_ != nullptr; }
const DeviceMesh& Call::mesh() const { return root_ ? *root_ : widest_->spec().mesh(); }
const World& Call::world() const { return widest_->world(); }

bool Call::can_meet_on_root(const DeviceMesh& other) const {
  const bool are_replicated =
      std::all_of(tensors_.begin(), tensors_.end(), [](const TensorPlace& place) {
        return !place.payload || (place.payload->spec().is_replicated() && !place.payload->link());
      });
  return mesh().root() == other.root() && (facts().is_by_member || are_replicated);
}

void Call::find_mesh() {
  for (const TensorPlace& place : tensors_) {
    const Payload* payload = place.payload.get();
    if (!payload) continue;
    if (!widest_) widest_ = payload;
    const DeviceMesh& its_mesh = payload->spec().mesh();
    const bool is_covered = mesh().covers(its_mesh);
    if (!is_covered && its_mesh.covers(mesh())) {
      widest_ = payload;
    } else if (!is_covered && can_meet_on_root(its_mesh)) {
      root_ = its_mesh.root();
    } else if (!is_covered) {
      throw UsageError("an op cannot mix tensors of meshes that do not cover each other")
          .fact("op", text())
          .fact("one", to_string(widest_->spec()))
          .fact("another", to_string(payload->spec()))
          .hint("redistribute one of them to the other's mesh first");
    }
    if (!(payload->world() == widest_->world())) {
      throw UsageError("an op cannot mix tensors of different worlds")
          .fact("op", text())
          .hint("make all meshes with one World");
    }
  }
}

void Call::check_plain_tensors() const {
  for (const TensorPlace& place : tensors_) {
    if (place.payload || !place.tensor.defined() || place.tensor.dim() == 0) continue;
    if (ImplicitReplication::is_on()) return;
    throw UsageError("an op cannot mix DTensors with a plain tensor that may differ between ranks")
        .fact("op", text())
        .fact("plain", described(place.tensor))
        .fact("beside", to_string(widest_->spec()))
        .hint(
            "distribute it with distribute_tensor, make it from a DTensor with zeros_like or "
            "new_zeros, or put a tegula::ImplicitReplication guard around the code if all ranks "
            "hold the same");
  }
}

std::string Call::text() const {
  std::vector<std::string> parts;
  const auto& declared = op().schema().arguments();
  for (std::size_t index = 0; index < arguments_.size(); ++index) {
    const c10::IValue& value = arguments_[index];
    if (value.isNone()) continue;
    std::string part = declared[index].name();
    if (value.isTensor()) {
      part += ": " + described(value.toTensor());
    } else if (value.isTensorList() || value.isOptionalTensorList()) {
      part +=
          ": " + counted(static_cast<std::int64_t>(value.toListRef().size()), "tensor", "tensors");
    } else if (!value.isGenerator()) {
      part += "=" + short_text(value);
    }
    parts.push_back(std::move(part));
  }
  return facts().name + "(" + join(parts) + ")";
}

}  // namespace tegula::inner
