// Sums of halves (f16) over a cut dim: the parts of the ranks may be more than a half can hold
// where their sum is not, so they are made, sent and added as floats, and the sum is rounded once.
#include <ATen/ATen.h>

#include "tegula/families/recipes.h"
#include "tegula/families/totals.h"
#include "tegula/operators/call.h"

namespace tegula::inner::families {
namespace {

bool is_half(const c10::IValue& argument) {
  return argument.isTensor() && argument.toTensor().defined() &&
         argument.toTensor().scalar_type() == at::kHalf;
}

// The op on floats, its result rounded.
Recipe in_floats(const Call& call) {
  return [op = call.op()](Arguments arguments) -> Values {
    Values stack;
    for (const c10::IValue& argument : arguments) {
      stack.push_back(is_half(argument) ? in_type(argument.toTensor(), at::kFloat) : argument);
    }
    op.callBoxed(&stack);
    return {rounded_to(stack.front().toTensor(), at::kHalf)};
  };
}

// Products ----------------------------------------------------------------------------------------

struct SummedDim {
  std::size_t argument = 0;
  std::int64_t dim = 0;
};

// The dims that an op sums over.
const std::vector<SummedDim>& summed_dims(const std::string& op) {
  static const std::map<std::string, std::vector<SummedDim>> table = {
      {"mm", {{0, 1}, {1, 0}}},
      {"bmm", {{0, 2}, {1, 1}}},
      {"mv", {{0, 1}, {1, 0}}},
      {"dot", {{0, 0}, {1, 0}}},
      {"vdot", {{0, 0}, {1, 0}}},
      {"addmm", {{1, 1}, {2, 0}}},
      {"addmv", {{1, 1}, {2, 0}}},
      {"baddbmm", {{1, 2}, {2, 1}}},
      {"addbmm", {{1, 2}, {2, 1}, {1, 0}, {2, 0}}},
  };
  return table.at(op);
}

Recipe make_product(const Call& call) {
  const Arguments a = call.arguments();
  for (const auto& [argument, dim] : summed_dims(call.facts().rule)) {
    if (is_half(a[argument]) && is_cut(tensor_at(a, argument), dim)) return in_floats(call);
  }
  return nullptr;
}

// Sums --------------------------------------------------------------------------------------------

bool gives_half(const at::Tensor& self, const c10::IValue& dtype) {
  if (!dtype.isNone() && dtype.toScalarType() != at::kHalf) return false;
  return at::isFloatingType(self.scalar_type()) &&
         (self.scalar_type() == at::kHalf || !dtype.isNone());
}

// (self, dtype)
Values sum_of_all(Arguments a) {
  return {rounded_to(at::sum(tensor_at(a, 0), at::kFloat), at::kHalf)};
}

// (self, dims, keepdim, dtype)
template <auto sum>
Values sum_over(Arguments a) {
  const std::vector<std::int64_t> dims = listed(dims_of(tensor_at(a, 0), a[1]));
  return {rounded_to(sum(tensor_at(a, 0), dims, a[2].toBool(), at::kFloat), at::kHalf)};
}

at::Tensor plain_sum(const at::Tensor& self, at::IntArrayRef dims, bool keepdim,
                     at::ScalarType type) {
  return at::sum(self, dims, keepdim, type);
}

at::Tensor sum_without_nan(const at::Tensor& self, at::IntArrayRef dims, bool keepdim,
                           at::ScalarType type) {
  return at::nansum(self, dims, keepdim, type);
}

Recipe make_sum_of_all(const Call& call) {
  const at::Tensor& self = tensor_at(call.arguments(), 0);
  const bool is_sum_of_parts = is_cut(self, dims_of(self, c10::IValue()));
  return is_sum_of_parts && gives_half(self, call.arguments()[1]) ? sum_of_all : nullptr;
}

template <auto sum>
Recipe make_sum(const Call& call) {
  const Arguments a = call.arguments();
  const at::Tensor& self = tensor_at(a, 0);
  return is_cut(self, dims_of(self, a[1])) && gives_half(self, a[3]) ? sum_over<sum> : nullptr;
}

}  // namespace

const RecipeTable& half_recipes() {
  static const RecipeTable table = {
      {"sum", make_sum_of_all},
      {"sum.dim_IntList", make_sum<plain_sum>},
      {"nansum", make_sum<sum_without_nan>},
      {"mm", make_product},
      {"bmm", make_product},
      {"mv", make_product},
      {"dot", make_product},
      {"vdot", make_product},
      {"addmm", make_product},
      {"addmv", make_product},
      {"baddbmm", make_product},
      {"addbmm", make_product},
  };
  return table;
}

}  // namespace tegula::inner::families
