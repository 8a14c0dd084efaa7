// Views of DTensors. A view that each rank can make of its own tile aliases it; any other is a Link
// (payload.h). Either way a write through the view lands in the base.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "tegula/dispatch/call.h"

namespace tegula {

struct ViewResult {
  PayloadPtr payload;
  std::int64_t storage_offset = 0;  // where the whole view would begin in the whole's storage
};

// A call on a tile; its place among the arguments is left empty.
struct TileCall {
  c10::OperatorHandle op;
  std::vector<c10::IValue> arguments;
};

// How a view op is carried out on tiles that are placed alike, by this rank.
struct ViewPlan {
  struct Result {
    std::size_t call = 0;
    int member = -1;  // of the list that the call gives; -1: it gives one tensor
    DTensorSpec spec;
    Payload::Layout layout = Payload::Layout::Regular;
    std::int64_t offset = 0;  // from where the viewed tensor begins
  };
  std::size_t viewed = 0;  // the argument
  std::vector<TileCall> calls;
  std::vector<Result> results;
  bool is_list = false;
};

// None if a rank cannot make its part as a view of its tile.
std::optional<ViewPlan> plan_views(const Call& call);
std::vector<ViewResult> views_by_plan(const ViewPlan& plan, const Payload& self,
                                      std::int64_t storage_offset);

// The results of an op whose schema says that they are views: one, or the members of the list.
// Nothing is sent. UsageError for as_strided of a tensor whose elements are not where its strides
// say.
std::vector<ViewResult> views_of(const Call& call);

}  // namespace tegula
