#include "tegula/dispatch/plain_operands.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "tegula/base/hash.h"
#include "tegula/comm/agreements.h"
#include "tegula/payload/guards.h"

namespace tegula::inner {
namespace {

constexpr std::int64_t kSampled = 64;  // elements of a large tensor

void add_bytes(Hasher& hasher, const char* bytes, std::size_t count) {
  std::size_t at = 0;
  for (; at + 8 <= count; at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + at, 8);
    hasher.add(word);
  }
  for (; at < count; ++at) hasher.add(static_cast<unsigned char>(bytes[at]));
}

std::uint64_t hash_of(const at::Tensor& tensor) {
  Hasher hasher;
  hasher.add_all(tensor.sizes()).add(static_cast<std::uint64_t>(tensor.scalar_type()));
  if (tensor.numel() == 0) return hasher.result();
  const auto element = static_cast<std::size_t>(tensor.element_size());
  if (is_small_plain(tensor)) {
    const at::Tensor dense = tensor.resolve_conj().resolve_neg().contiguous();
    add_bytes(hasher, static_cast<const char*>(dense.const_data_ptr()), dense.nbytes());
    return hasher.result();
  }
  const auto* const memory = static_cast<const char*>(tensor.const_data_ptr());
  for (std::int64_t k = 0; k < kSampled; ++k) {
    // spread over the tensor, the last element among them; a product of two sizes may be huge
    std::int64_t rest = static_cast<std::int64_t>(static_cast<double>(tensor.numel() - 1) *
                                                  static_cast<double>(k) / (kSampled - 1));
    std::int64_t offset = 0;
    for (std::int64_t dim = tensor.dim() - 1; dim >= 0; --dim) {
      offset += rest % tensor.size(dim) * tensor.stride(dim);
      rest /= tensor.size(dim);
    }
    add_bytes(hasher, memory + static_cast<std::size_t>(offset) * element, element);
  }
  return hasher.result();
}

// Random numbers that each rank drew for the op: its family takes the first rank's.
bool is_drawn(const Call& call, const TensorPlace& place) {
  return call.op().schema().arguments()[place.argument].name() == "random_samples";
}

bool has_bytes(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && tensor.device().is_cpu() && !tensor.is_quantized() &&
         tensor.has_storage();
}

}  // namespace

void agree_on_plain_operands(const Call& call) {
  const std::optional<std::int64_t> fiber = call.mesh().fiber_of(call.world().rank());
  if (!fiber || call.mesh().size() == 1) return;
  for (const TensorPlace& place : call.tensors()) {
    const at::Tensor& tensor = place.tensor;
    if (place.payload || !tensor.defined() || call.facts().written[place.argument]) continue;
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number() || !has_bytes(tensor)) continue;
    if (is_drawn(call, place)) continue;
    comm::agree(call.world(), call.mesh().ranks(*fiber), hash_of(tensor),
                "a plain operand of " + call.facts().name);
  }
}

}  // namespace tegula::inner
