// torch::save of what is distributed is refused before it opens the file. libtorch itself opens,
// and so empties, the file first, and looks at tensors then: an earlier checkpoint would be gone.
//
// Where this header is included, torch::save(tensor | list of tensors | module | optimizer, ...)
// means a function at its end, which is more constrained than libtorch's own: it looks for
// DTensors, and then does as libtorch does. Where it is not included, nothing of ours is called
// before libtorch has opened the file. To save whole values, gather them on all ranks and save them
// on one (docs/porting.md).
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/serialize/tensor.h>

#include <concepts>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace tegula::inner {

// UsageError that names the first DTensor.
void check_can_be_saved(const at::Tensor& tensor);
void check_can_be_saved(const std::vector<at::Tensor>& tensors);
void check_can_be_saved(const torch::nn::Module& module);
void check_can_be_saved(const torch::optim::Optimizer& optimizer);

template <std::derived_from<torch::nn::Module> Module>
void check_can_be_saved(const std::shared_ptr<Module>& module) {
  check_can_be_saved(static_cast<const torch::nn::Module&>(*module));
}
// libtorch's holders of modules: torch::nn::Linear and the like.
template <class Holder>
  requires std::derived_from<typename Holder::ContainedType, torch::nn::Module>
void check_can_be_saved(const Holder& holder) {
  check_can_be_saved(holder.ptr());
}

template <class Value>
concept CanHoldDTensors = requires(const Value& value) { check_can_be_saved(value); };

}  // namespace tegula::inner

namespace torch {

template <typename Value, typename... SaveToArgs>
  requires tegula::inner::CanHoldDTensors<Value>
void save(const Value& value, SaveToArgs&&... arguments) {
  tegula::inner::check_can_be_saved(value);
  serialize::OutputArchive archive;
  archive << value;
  archive.save_to(std::forward<SaveToArgs>(arguments)...);
}

// A list is an archive of tensors named by their places, which torch::load reads.
template <typename... SaveToArgs>
  requires tegula::inner::CanHoldDTensors<std::vector<at::Tensor>>
void save(const std::vector<at::Tensor>& tensors, SaveToArgs&&... arguments) {
  tegula::inner::check_can_be_saved(tensors);
  serialize::OutputArchive archive;
  for (std::size_t i = 0; i < tensors.size(); ++i) archive.write(std::to_string(i), tensors[i]);
  archive.save_to(std::forward<SaveToArgs>(arguments)...);
}

}  // namespace torch
