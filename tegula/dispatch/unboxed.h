// A kernel with the operator's own C++ signature, for operators that are called so often that
// putting their arguments on a stack costs too much. It knows one thing only: how to carry out a
// decision that is remembered. Everything else goes to the boxed kernel.
#pragma once

#include <ATen/core/IListRef.h>
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "tegula/dispatch/kernel.h"
#include "tegula/dispatch/local_op.h"
#include "tegula/dispatch/op_errors.h"
#include "tegula/dispatch/overlaps.h"
#include "tegula/dispatch/views.h"
#include "tegula/gradient/leaf_gradient.h"
#include "tegula/payload/host_errors.h"
#include "tegula/payload/local_call.h"

namespace tegula::inner {
namespace unboxed {

// What an argument adds to the key of its call: what CallKey adds for it on a stack.
inline void add(CallKey& key, const at::Tensor& tensor) { key.add_tensor(tensor); }
inline void add(CallKey& key, at::TensorList list) {
  key.add_count(list.size());
  for (const at::Tensor& tensor : list) key.add_tensor(tensor);
}
inline void add(CallKey& key, const at::ITensorListRef& list) {
  key.add_count(list.size());
  for (const at::Tensor& tensor : list) key.add_tensor(tensor);
}
inline void add(CallKey& key, const at::Scalar& number) { key.add_number(number.type()); }
inline void add(CallKey& key, at::ArrayRef<at::Scalar> numbers) { key.add_count(numbers.size()); }
inline void add(CallKey& key, double) { key.add_number(at::kDouble); }
inline void add(CallKey& key, bool flag) { key.add_flag(flag); }
inline void add(CallKey& key, std::int64_t value) { key.add_integer(value); }
inline void add(CallKey& key, const c10::SymInt& value) {
  const std::optional<std::int64_t> known = value.maybe_as_int();
  known ? key.add_integer(*known) : key.give_up();
}
inline void add(CallKey& key, at::ScalarType type) { key.add_integer(static_cast<int>(type)); }
inline void add(CallKey& key, at::MemoryFormat format) {
  key.add_integer(static_cast<int>(format));
}
inline void add(CallKey& key, at::IntArrayRef values) {
  key.add_count(values.size());
  for (std::int64_t value : values) key.add_integer(value);
}
inline void add(CallKey& key, c10::SymIntArrayRef values) {
  key.add_count(values.size());
  for (const c10::SymInt& value : values) add(key, value);
}
inline void add(CallKey& key, at::OptionalIntArrayRef values) {
  values ? add(key, *values) : key.add_none();
}
inline void add(CallKey& key, std::string_view text) { key.add_text(text); }
inline void add(CallKey& key, at::Layout layout) { key.add_integer(static_cast<int>(layout)); }
inline void add(CallKey& key, at::Device device) {
  key.add_integer(static_cast<int>(device.type()));
}
template <std::size_t Count>
void add(CallKey& key, const std::array<bool, Count>& flags) {
  key.add_count(Count);
  for (bool flag : flags) key.add_flag(flag);
}
template <class Value>
void add(CallKey& key, const std::optional<Value>& value) {
  value ? add(key, *value) : key.add_none();
}

// An argument that the op writes.
inline void note(WritesOfOp& writes, const at::Tensor& tensor) { writes.add(tensor); }
inline void note(WritesOfOp& writes, at::TensorList list) {
  for (const at::Tensor& tensor : list) writes.add(tensor);
}
template <class Other>
void note(WritesOfOp&, const Other&) {}

// What stands for an argument in the call on this rank. Tensors are counted as they come.
struct ToTiles {
  const LocalOp& decision;
  std::size_t place = 0;

  Tile operator()(const at::Tensor& tensor) {
    watch_if_leaf(tensor);
    return tile_for(tensor, decision, place++);
  }
  std::optional<at::Tensor> operator()(const std::optional<at::Tensor>& tensor) {
    if (!tensor) return tensor;
    return *(*this)(*tensor);
  }
  std::vector<at::Tensor> operator()(at::TensorList list) { return tiles_of(list); }
  std::vector<at::Tensor> operator()(const at::ITensorListRef& list) { return tiles_of(list); }
  template <class Other>
  const Other& operator()(const Other& other) {
    return other;
  }

 private:
  template <class List>
  std::vector<at::Tensor> tiles_of(const List& list) {
    std::vector<at::Tensor> tiles;
    tiles.reserve(list.size());
    for (const at::Tensor& tensor : list) tiles.push_back(*(*this)(tensor));
    return tiles;
  }
};

// What is handed to the op.
template <class Other>
Other& passed(Other& other) {
  return other;
}
// Ops that write a tensor take it as one that is not const, which is about the handle alone.
inline at::Tensor& passed(Tile& tile) { return const_cast<at::Tensor&>(*tile); }

// Results as DTensors. What the op writes is its first argument.
struct Wrap {
  const LocalOp& decision;
  const OpFacts& facts;
  const World& world;

  at::Tensor operator()(at::Tensor tile) const {
    return wrapped_result(std::move(tile), decision, 0, facts, world);
  }
  std::vector<at::Tensor> operator()(std::vector<at::Tensor> tiles) const {
    for (std::size_t k = 0; k < tiles.size(); ++k) {
      tiles[k] = wrapped_result(std::move(tiles[k]), decision, k, facts, world);
    }
    return tiles;
  }
  template <class... Tensors>
  std::tuple<Tensors...> operator()(std::tuple<Tensors...> tiles) const {
    std::size_t next = 0;
    std::apply(
        [&](Tensors&... each) {
          ((each = wrapped_result(std::move(each), decision, next++, facts, world)), ...);
        },
        tiles);
    return tiles;
  }
};

template <class First, class... Rest>
First& first_of(First& first, Rest&...) {
  return first;
}

// An op that writes its first argument must not read part of it by another.
struct NoOverlap {
  const OperatorEntry& entry;

  template <class First, class... Rest>
  void check(const First& written, const Rest&... rest) const {
    (with(written, rest), ...);
  }

 private:
  void with(const at::Tensor& written, const at::Tensor& read) const {
    check_overlap(entry, written, read);
  }
  template <class Written, class Other>
  void with(const Written&, const Other&) const {}
};

}  // namespace unboxed

// `Op` is one of libtorch's at::_ops.
template <class Op, class Schema = typename Op::schema>
class Unboxed;

template <class Op, class Result, class... Arguments>
class Unboxed<Op, Result(Arguments...)> {
 public:
  // The kernel, ready to be registered.
  static torch::CppFunction kernel(const OperatorEntry& entry) {
    state() = new State{entry.op.typed<Result(Arguments...)>(), Kernel(entry)};
    return torch::CppFunction(TORCH_FN(call));
  }

 private:
  using First = std::decay_t<std::tuple_element_t<0, std::tuple<Arguments...>>>;
  static constexpr bool kMayBeView =
      std::is_same_v<Result, at::Tensor> && std::is_same_v<First, at::Tensor>;

  struct State {
    c10::TypedOperatorHandle<Result(Arguments...)> typed;
    Kernel kernel;
  };
  // Outlives every static object, as operators do.
  static State*& state() {
    static State* made = nullptr;
    return made;
  }

  static Result call(Arguments... arguments) {
    try {
      CallKey key;
      (unboxed::add(key, arguments), ...);
      const std::shared_ptr<const Decision> decision = state()->kernel.known(key);
      if (!decision) return run_boxed(&key, nullptr, arguments...);
      if constexpr (kMayBeView) {
        if (const auto* plan = std::get_if<ViewPlan>(decision.get())) {
          const at::Tensor& base = unboxed::first_of(arguments...);
          watch_if_leaf(base);
          return run_view_of_one(*plan, base);
        }
      }
      const auto* local_op = std::get_if<LocalOp>(decision.get());
      if (!local_op || local_op->rows || !local_op->arguments.empty() || local_op->communicates ||
          key.has_plain_tensor()) {
        return run_boxed(&key, decision.get(), arguments...);
      }
      try {
        return run(*local_op, key.world(), arguments...);
      } catch (...) {
        note_op_error(state()->kernel.entry(), key, key.world());
        throw;
      }
    } catch (const Error& error) {
      translate_for_host(error);
      throw;
    }
  }

  static Result run(const LocalOp& decision, const World& world, Arguments... arguments) {
    if constexpr (std::is_reference_v<Result>) {
      unboxed::NoOverlap{state()->kernel.entry()}.check(arguments...);
    }
    const BelowAutograd below;
    const OpFacts& facts = state()->kernel.entry().facts;
    WritesOfOp writes;
    if (facts.writes) {
      std::size_t index = 0;
      ((facts.written[index++] ? unboxed::note(writes, arguments) : void()), ...);
    }
    unboxed::ToTiles to_tiles{decision};
    // braces: from the first argument to the last
    std::tuple<decltype(to_tiles(arguments))...> tiles{to_tiles(arguments)...};
    const auto plain = [](auto&... tile) -> Result {
      return state()->typed.call(unboxed::passed(tile)...);
    };
    if constexpr (std::is_void_v<Result>) {
      std::apply(plain, tiles);
    } else if constexpr (std::is_reference_v<Result>) {
      std::apply(plain, tiles);
      return unboxed::first_of(arguments...);
    } else {
      const unboxed::Wrap wrap{decision, facts, world};
      return wrap(std::apply(plain, tiles));
    }
  }

  // By way of the stack; with a decision or without one.
  static Result run_boxed(const CallKey* key, const Decision* decision, Arguments... arguments) {
    const PassUsBy ours;  // tensors that we make are not the user's
    torch::jit::Stack stack;
    stack.reserve(sizeof...(Arguments));
    torch::jit::push(stack, arguments...);
    if (decision) {
      state()->kernel.run_known(*key, *decision, stack);
    } else {
      state()->kernel.run_new(*key, stack);
    }
    if constexpr (std::is_void_v<Result>) {
      return;
    } else if constexpr (std::is_reference_v<Result>) {
      return unboxed::first_of(arguments...);
    } else {
      return c10::impl::PopResult<Result>::call(stack);
    }
  }
};

}  // namespace tegula::inner
