// CallKey: what a decision about a call depends on, as a list of numbers. Calls with equal keys are
// of one kind and are carried out alike.
//
// It holds the tensors' specs and policies, the dims, sizes and flags among the arguments, and the
// modes of this thread that libtorch's operators ask for (grad, inference, the default element
// type). Numbers that the op computes with (a step size, an epsilon) are only there by their type,
// so a changing one is no new kind of call. A spec is its id, which is never used again: a key
// cannot come to mean something else.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <span>
#include <string_view>

#include "tegula/comm/world.h"
#include "tegula/operators/arguments.h"
#include "tegula/spec/dtensor_spec.h"

namespace tegula::inner {

class CallKey {
 public:
  // To be filled with arguments one by one, in the order of the signature.
  CallKey();
  // Of the arguments on top of the stack.
  CallKey(const OpFacts& facts, Arguments arguments);

  // A DTensor, or a plain tensor where those count as replicated; undefined is a value, too.
  void add_tensor(const at::Tensor& tensor);
  // That a list of so many members follows.
  void add_count(std::size_t members);
  void add_integer(std::int64_t value);
  void add_flag(bool value);
  void add_text(std::string_view text);
  // A number that the op computes with.
  void add_number(at::ScalarType type);
  void add_none();
  // What has no number: no decision can be looked up.
  void give_up() { is_known_ = false; }

  // Whether there is a plain tensor that is no mere number: ranks have to agree on it.
  bool has_plain_tensor() const { return has_plain_tensor_; }
  // Not if there is no DTensor, several worlds, or a plain tensor that may differ between ranks.
  bool is_known() const { return is_known_ && world_ != nullptr; }
  const World& world() const { return *world_; }  // of the first DTensor, as long as that lives
  std::span<const std::uint64_t> words() const { return {words_.data(), words_.size()}; }

 private:
  void add_plain(const at::Tensor& tensor);
  void add_value(const c10::IValue& value);
  void add_type(const c10::IValue& value);

  c10::SmallVector<std::uint64_t, 32> words_;
  const World* world_ = nullptr;
  bool is_known_ = true;
  bool has_plain_tensor_ = false;
};

}  // namespace tegula::inner
