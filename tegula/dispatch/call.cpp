#include "tegula/dispatch/call.h"

#include <ATen/ATen.h>

#include <sstream>

#include "tegula/base/error.h"
#include "tegula/base/text.h"
#include "tegula/bridge/torch_types.h"
#include "tegula/dispatch/guards.h"

namespace tegula {
namespace {

void collect(const c10::IValue& value, std::size_t argument, std::vector<TensorPlace>& into) {
  if (value.isTensor()) {
    into.push_back({argument, -1, value.toTensor(), payload_of(value.toTensor())});
  } else if (value.isList()) {
    int member = 0;
    for (const c10::IValue& one : value.toListRef()) {
      if (one.isTensor()) {
        into.push_back({argument, member, one.toTensor(), payload_of(one.toTensor())});
      }
      ++member;
    }
  }
}

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

c10::IValue with_tensors(const c10::IValue& argument,
                         const std::function<at::Tensor(int member, const at::Tensor&)>& replace) {
  if (argument.isTensor()) return replace(-1, argument.toTensor());
  if (argument.isTensorList()) {
    c10::List<at::Tensor> list;
    int member = 0;
    for (const at::Tensor& one : argument.toTensorVector()) list.push_back(replace(member++, one));
    return list;
  }
  if (argument.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    int member = 0;
    for (const c10::IValue& one : argument.toListRef()) {
      list.push_back(one.isNone() ? std::nullopt : std::optional(replace(member, one.toTensor())));
      ++member;
    }
    return list;
  }
  return argument;
}

Call::Call(const c10::OperatorHandle& op, const OpFacts& facts, const torch::jit::Stack& stack)
    : op_(op), facts_(facts) {
  const std::size_t count = op.schema().arguments().size();
  arguments_.assign(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end());
  for (std::size_t index = 0; index < count; ++index) collect(arguments_[index], index, tensors_);
  find_mesh();
}

Call Call::with_argument(std::size_t index, c10::IValue value) const {
  Call other = *this;
  other.arguments_[index] = std::move(value);
  return other;
}

bool Call::has_dtensors() const { return widest_ != nullptr; }
const DeviceMesh& Call::mesh() const { return widest_->spec().mesh(); }
const World& Call::world() const { return widest_->world(); }

void Call::find_mesh() {
  for (const TensorPlace& place : tensors_) {
    const Payload* payload = place.payload.get();
    if (!payload) continue;
    if (!widest_) widest_ = payload;
    const bool is_covered = widest_->spec().mesh().covers(payload->spec().mesh());
    if (!is_covered && payload->spec().mesh().covers(widest_->spec().mesh())) {
      widest_ = payload;
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
            "distribute it with distribute_tensor, or put a tegula::ImplicitReplication guard "
            "around the code if all ranks hold the same");
  }
}

std::string Call::text() const {
  std::vector<std::string> parts;
  const auto& declared = op_.schema().arguments();
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
  return facts_.name + "(" + join(parts) + ")";
}

}  // namespace tegula
