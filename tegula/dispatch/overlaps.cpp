// The idea: two outer tensors are views of one if their bases, as autograd knows them, hold the
// same tile: a tensor, or it and what detach() gave. Where they lie in it, their sizes, strides and
// offsets say. A few comparisons of pointers for an op that writes; nothing for others.
#include "tegula/dispatch/overlaps.h"

#include <ATen/ATen.h>

#include "tegula/base/error.h"
#include "tegula/operators/call.h"
#include "tegula/payload/payload.h"

namespace tegula::inner {
namespace {

// A quick look: nothing in common if the tiles are known and lie in different storages.
bool may_share_memory(const Payload& a, const Payload& b) {
  const at::Tensor* tile = a.tile_at_hand();
  const at::Tensor* other = b.tile_at_hand();
  return tile == nullptr || other == nullptr || tile->is_alias_of(*other);
}

const at::Tensor* tile_of_base(const at::Tensor& outer) {
  const Payload* payload = payload_in(outer.is_view() ? at::Tensor(outer._base()) : outer);
  if (payload != nullptr && payload->link()) payload = payload->link()->base.get();
  return payload != nullptr ? payload->tile_at_hand() : nullptr;
}

bool are_the_same(const at::Tensor& a, const at::Tensor& b) {
  return a.storage_offset() == b.storage_offset() && a.sizes() == b.sizes() &&
         a.strides() == b.strides();
}

bool are_views_of_one(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor* tile = tile_of_base(a);
  const at::Tensor* other = tile_of_base(b);
  return tile && other && tile->is_alias_of(*other) && are_the_same(*tile, *other);
}

bool have_elements_in_common(const at::Tensor& a, const at::Tensor& b) {
  if (a.numel() == 0 || b.numel() == 0) return false;
  if (!a.is_non_overlapping_and_dense() || !b.is_non_overlapping_and_dense()) return false;
  const std::int64_t begin = a.storage_offset();
  const std::int64_t other = b.storage_offset();
  return begin < other + b.numel() && other < begin + a.numel();
}

}  // namespace

bool overlaps_itself(const at::Tensor& tensor) {
  for (std::int64_t dim = 0; dim < tensor.dim(); ++dim) {
    if (tensor.stride(dim) == 0 && tensor.size(dim) > 1) return true;
  }
  return false;
}

void check_overlap(const OperatorEntry& entry, const at::Tensor& written, const at::Tensor& read) {
  const Payload* of_written = payload_in(written);
  const Payload* of_read = payload_in(read);
  if (!of_written || !of_read || !may_share_memory(*of_written, *of_read)) return;
  if (written.is_same(read) || entry.notes.may_overlap || !are_views_of_one(written, read)) return;
  if (are_the_same(written, read) || !have_elements_in_common(written, read)) return;
  throw UsageError("an op cannot write a tensor that lies partly where another operand does")
      .fact("op", entry.facts.name)
      .fact("written", described(written))
      .fact("read", described(read))
      .hint("clone() the operand first");
}

void check_overlaps(const OperatorEntry& entry, Arguments arguments) {
  const OpFacts& facts = entry.facts;
  if (facts.tensor_arguments.size() < 2 || entry.notes.change) return;
  for (const std::size_t written : facts.tensor_arguments) {
    if (!facts.written[written] || !arguments[written].isTensor()) continue;
    for (const std::size_t read : facts.tensor_arguments) {
      if (facts.written[read] || !arguments[read].isTensor()) continue;
      check_overlap(entry, arguments[written].toTensor(), arguments[read].toTensor());
    }
  }
}

}  // namespace tegula::inner
