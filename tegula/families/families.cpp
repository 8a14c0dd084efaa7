#include "tegula/families/families.h"

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <memory>
#include <vector>

#include "tegula/dispatch/claim.h"
#include "tegula/families/running_sum.h"
#include "tegula/payload/payload.h"

namespace tegula::inner {
namespace {

using c10::DispatchKey;

// What `tensor.set_data(other)` asks: a tensor may become a DTensor and back.
bool can_become(const at::Tensor& self, const at::Tensor& from) {
  if (payload_in(from)) carry_storage_message(from);
  return payload_in(self) || payload_in(from) ||
         self.unsafeGetTensorImpl()->has_compatible_shallow_copy_type(from.key_set());
}

bool is_same_size(const at::Tensor& self, const at::Tensor& other) {
  return self.sizes() == other.sizes();
}

// Operators that take a plain tensor beside a DTensor, whatever it holds: they are registered, not
// claimed. The first is answered for tensors without data, too.
std::vector<std::unique_ptr<torch::Library>> operators_of_any_tensors() {
  std::vector<std::unique_ptr<torch::Library>> libraries;
  for (const DispatchKey key : {DispatchKey::PrivateUse3, DispatchKey::AutogradPrivateUse3,
                                DispatchKey::Meta, DispatchKey::AutogradMeta}) {
    libraries.push_back(
        std::make_unique<torch::Library>(torch::Library::IMPL, "aten", key, __FILE__, __LINE__));
    libraries.back()->impl("_has_compatible_shallow_copy_type", TORCH_FN(can_become));
  }
  libraries.front()->impl("is_same_size", TORCH_FN(is_same_size));
  libraries.front()->impl("set_.source_Tensor", TORCH_FN(families::set_to_tensor));
  return libraries;
}

// Operators whose gradient sends less than libtorch's would.
std::unique_ptr<torch::Library> operators_with_gradients() {
  auto library = std::make_unique<torch::Library>(
      torch::Library::IMPL, "aten", DispatchKey::AutogradPrivateUse3, __FILE__, __LINE__);
  library->impl("cumsum", TORCH_FN(families::running_sum));
  return library;
}

}  // namespace

OperatorTable& operator_table() {
  static OperatorTable& table = *new OperatorTable({
      families::attention,
      families::batch_norm,
      families::compositions,
      families::embedding_bags,
      families::geometry,
      families::lists,
      families::decompositions,  // of lists, too
      families::masks,
      families::matrices,
      families::new_tensors,
      families::owners,
      families::adaptive_pooling,
      families::convolutions,
      families::joins,
      families::moved_elements,
      families::padding,
      families::pooling,
      families::random_numbers,
      families::recurrent,
      families::schema_gaps,
      families::triangles,
      families::unboxed_kernels,
      families::view_copies,
      families::views,
  });
  return table;
}

void claim_operators() {
  // operators outlive every static object
  static const auto& libraries = *new auto(operators_of_any_tensors());
  static const auto& gradients = *new auto(operators_with_gradients());
  static_cast<void>(libraries);
  static_cast<void>(gradients);
  claim_operators_of(operator_table());
}

}  // namespace tegula::inner
