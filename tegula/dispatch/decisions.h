// Decisions that a world remembers: one look-up by what a call depends on.
//
// The key of a call holds its tensors' specs and the dims, sizes and flags among its arguments;
// numbers that the op computes with (a step size, an epsilon) are only there by their type, so a
// changing one is no new kind of call.
#pragma once

#include <ATen/core/stack.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "tegula/dispatch/decision.h"
#include "tegula/dispatch/op_facts.h"

namespace tegula {

class CallKey {
 public:
  // To be filled with arguments one by one.
  CallKey() = default;
  // Looks at the arguments on top of the stack. Not is_known() if a decision cannot be looked up:
  // no DTensor, several worlds, a plain tensor with dims, a view without data of its own.
  CallKey(const OpFacts& facts, const torch::jit::Stack& stack);

  void add_tensor(const at::Tensor& tensor);
  void add_count(std::size_t members);
  void add_integer(std::int64_t value);
  void add_flag(bool value);
  void add_none();
  void add_value(const c10::IValue& value);
  void add_type(const c10::IValue& value);
  // Of a number that the op computes with.
  void add_scalar(const at::Scalar& value);
  void give_up() { is_known_ = false; }

  bool is_known() const { return is_known_ && world_ != nullptr; }
  const World& world() const { return *world_; }  // of the first DTensor, as long as that lives
  std::span<const std::uint64_t> words() const { return {words_.data(), words_.size()}; }
  // Of the DTensors, as long as they live.
  std::span<const DTensorSpec* const> specs() const { return {specs_.data(), specs_.size()}; }

 private:
  c10::SmallVector<std::uint64_t, 32> words_;
  c10::SmallVector<const DTensorSpec*, 8> specs_;
  const World* world_ = nullptr;
  bool is_known_ = true;
};

// A part of a world (World::part). Any thread of the rank may use it.
class Decisions {
 public:
  // Of one op; when there are more, all of them are forgotten.
  static constexpr std::size_t kMostPerOp = 1024;

  // `op` counts operators (Kernel::index). Null if there is none, or a rule was added since.
  std::shared_ptr<const Decision> find(std::size_t op, const CallKey& key);
  void remember(std::size_t op, const CallKey& key, std::shared_ptr<const Decision> decision);
  // All of them: what they were decided by (the cost model) is no more.
  void forget();

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::span<const std::uint64_t> words) const;
    std::size_t operator()(const std::vector<std::uint64_t>& words) const {
      return (*this)(std::span<const std::uint64_t>(words));
    }
  };
  struct Equal {
    using is_transparent = void;
    bool operator()(std::span<const std::uint64_t> a, std::span<const std::uint64_t> b) const;
  };
  struct Entry {
    std::shared_ptr<const Decision> decision;
    // Kept, so that a tensor like one that is gone has the same spec, and is found.
    std::vector<DTensorSpec> specs;
  };
  using Table = std::unordered_map<std::vector<std::uint64_t>, Entry, Hash, Equal>;

  void forget_if_rules_changed();

  std::mutex mutex_;
  std::vector<Table> tables_;  // by op
  std::uint64_t rules_version_ = 0;
};

}  // namespace tegula
