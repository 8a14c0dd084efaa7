#include "tegula/families/families.h"

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <memory>
#include <vector>

#include "tegula/dispatch/claim.h"
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

// This one is answered for tensors without data, too: it is registered, not claimed.
std::vector<std::unique_ptr<torch::Library>> let_tensors_become_dtensors() {
  std::vector<std::unique_ptr<torch::Library>> libraries;
  for (const DispatchKey key : {DispatchKey::PrivateUse3, DispatchKey::AutogradPrivateUse3,
                                DispatchKey::Meta, DispatchKey::AutogradMeta}) {
    libraries.push_back(
        std::make_unique<torch::Library>(torch::Library::IMPL, "aten", key, __FILE__, __LINE__));
    libraries.back()->impl("_has_compatible_shallow_copy_type", TORCH_FN(can_become));
  }
  return libraries;
}

}  // namespace

OperatorTable& operator_table() {
  static OperatorTable& table = *new OperatorTable({
      families::compositions,
      families::decompositions,
      families::geometry,
      families::lists,
      families::new_tensors,
      families::random_numbers,
      families::schema_gaps,
      families::unboxed_kernels,
      families::views,
  });
  return table;
}

void claim_operators() {
  // operators outlive every static object
  static const auto& libraries = *new auto(let_tensors_become_dtensors());
  static_cast<void>(libraries);
  claim_operators_of(operator_table());
}

}  // namespace tegula::inner
