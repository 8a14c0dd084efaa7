// Linear algebra on batches that are cut: what a factorization says of its matrices is judged by
// all ranks together, so that all of them throw or none.
#include <ATen/ATen.h>

#include "tegula/families/families.h"
#include "tegula/operators/call.h"
#include "tegula/payload/payload.h"

namespace tegula::inner::families {
namespace {

// One number tells whether any matrix failed; the codes travel only then.
Values check_errors(Arguments a) {
  const at::Tensor& codes = a[0].toTensor();
  const at::Tensor worst = payload_of(at::amax(at::abs(codes)))->whole();
  if (worst.item<std::int64_t>() == 0) return {};
  at::_linalg_check_errors(payload_of(codes)->whole(), a[1].toStringView(), a[2].toBool());
  return {};
}

Recipe make_check_errors(const Call& call) {
  const at::Tensor& codes = call.arguments()[0].toTensor();
  const Payload* payload = payload_in(codes);
  if (!payload || payload->link() || codes.numel() == 0) return nullptr;
  return payload->spec().is_sharded() ? check_errors : nullptr;
}

}  // namespace

void matrices(const c10::OperatorHandle& op, OperatorNotes& notes) {
  if (toString(op.operator_name()) == "aten::_linalg_check_errors") {
    notes.decomposition = make_check_errors;
  }
}

}  // namespace tegula::inner::families
