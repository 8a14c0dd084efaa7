// Views of DTensors. A view that each rank can make of its own tile aliases it; any other is a Link
// (payload/payload.h). Either way a write through the view lands in the base. Nothing is sent.
#pragma once

#include <ATen/core/Tensor.h>

#include <variant>
#include <vector>

#include "tegula/operators/call.h"
#include "tegula/operators/view_plan.h"

namespace tegula::inner {

// How a call is carried out whose schema says that its results are views. UsageError for a view of
// a plain tensor.
std::variant<ViewPlan, LinkPlan> plan_view(const Call& call);

// The results of such a call: one tensor, or a list.
Values run_view(const ViewPlan& plan, Arguments arguments);
Values run_view(const LinkPlan& plan, Arguments arguments);
// The same for a plan with one result, from the tensor that is viewed.
at::Tensor run_view_of_one(const ViewPlan& plan, const at::Tensor& base);
// Looks at what a plan gave, so that run_view_of_one need not call the op again.
void note_alias(ViewPlan& plan, Arguments arguments, const Values& results);
inline void note_alias(LinkPlan&, Arguments, const Values&) {}

// What is viewed, where the whole view would begin in the whole's storage, and bits of the whole
// view that a link does not show itself.
struct ViewResult {
  PayloadPtr payload;
  std::int64_t storage_offset = 0;
  bool is_conj = false;
  bool is_neg = false;
};
// The one result, for ops that make their tensor what a view of it is (families/geometry.cpp).
ViewResult view_result(const Call& call);

// What the op makes of a plain whole tensor in the place of the viewed one.
c10::IValue plain_views(const Call& call, const at::Tensor& whole);

}  // namespace tegula::inner
