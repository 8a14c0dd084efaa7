// One call of an operator that meets DTensors: its tensors, where they stand among the arguments,
// and what must be true of them together.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <optional>
#include <string>
#include <vector>

#include "tegula/operators/arguments.h"
#include "tegula/operators/operator_entry.h"
#include "tegula/payload/payload.h"

namespace tegula::inner {

// A tensor among the arguments: by itself (member -1), or a member of a list.
struct TensorPlace {
  std::size_t argument = 0;
  int member = -1;
  at::Tensor tensor;
  PayloadPtr payload;  // null: plain
};

// "f32[8, 6] on (tp=4) as [S(0)]", "plain f32[3]", "undefined"
std::string described(const at::Tensor& tensor);

class Call {
 public:
  // Looks at the arguments on top of the stack and leaves them there. The entry must outlive it.
  Call(const OperatorEntry& entry, const torch::jit::Stack& stack);

  // The place of the argument of this name; none if the operator has none.
  std::optional<std::size_t> argument_named(const std::string& name) const;
  // This rank's place in the mesh; none if it is outside.
  std::optional<Coordinate> coordinate() const;
  // The same call with another value for one argument that is no tensor.
  Call with_argument(std::size_t index, c10::IValue value) const;

  const OperatorEntry& entry() const { return *entry_; }
  const c10::OperatorHandle& op() const { return entry_->op; }
  const OpFacts& facts() const { return entry_->facts; }
  const OperatorNotes& notes() const { return entry_->notes; }
  const std::vector<c10::IValue>& arguments() const { return arguments_; }
  const std::vector<TensorPlace>& tensors() const { return tensors_; }
  bool has_dtensors() const;

  // The mesh that covers those of all DTensors, and the world they live in. Of meshes none of which
  // covers the others it is their root, if the op treats each tensor by itself (a list op) or all
  // of them are replicated; else, and for different worlds, UsageError.
  const DeviceMesh& mesh() const;
  const World& world() const;
  // UsageError if a plain tensor with dims meets DTensors and nothing says it is replicated.
  void check_plain_tensors() const;

  // "aten::add(self, other, alpha=1)", for errors
  std::string text() const;

 private:
  void find_mesh();
  bool can_meet_on_root(const DeviceMesh& other) const;

  const OperatorEntry* entry_;
  std::vector<c10::IValue> arguments_;
  std::vector<TensorPlace> tensors_;
  const Payload* widest_ = nullptr;  // the payload whose mesh covers the others
  std::optional<DeviceMesh> root_;   // ... or what covers them, if none does
};

}  // namespace tegula::inner
