// What works within a dim, or within several: these stay whole, the others may be cut.
#include <algorithm>
#include <numeric>

#include "tegula/ops/families.h"
#include "tegula/rules/signatures.h"

namespace tegula::inner::families {
namespace {

// Fourier transforms ----------------------------------------------------------------------------

using DimsWithin = std::vector<std::size_t>;

DimsWithin transformed_dims(const OpSchema& schema) {
  DimsWithin dims;
  for (std::int64_t dim : schema.ints(1)) {
    dims.push_back(wrapped_dim(dim, static_cast<std::size_t>(schema.spec(0).ndim())));
  }
  return dims;
}

// From the widest to the narrowest.
void sort_by_stride(DimsWithin::iterator begin, DimsWithin::iterator end, const Shape& stride) {
  std::stable_sort(begin, end, [&](std::size_t a, std::size_t b) { return stride[a] > stride[b]; });
}

// How libtorch lays a result out: what is transformed is innermost.
DimsWithin with_innermost(const Shape& stride, const DimsWithin& innermost) {
  DimsWithin order;
  for (std::size_t dim = 0; dim < stride.size(); ++dim) {
    if (std::find(innermost.begin(), innermost.end(), dim) == innermost.end()) order.push_back(dim);
  }
  sort_by_stride(order.begin(), order.end(), stride);
  order.insert(order.end(), innermost.begin(), innermost.end());
  return order;
}

DimsWithin order_of_complex(const Shape& stride, DimsWithin dims) {
  sort_by_stride(dims.begin(), dims.end(), stride);
  return with_innermost(stride, dims);
}

DimsWithin order_from_real(const Shape& stride, DimsWithin dims) {
  sort_by_stride(dims.begin(), dims.end() - 1, stride);
  return with_innermost(stride, dims);
}

// All dims but the last are transformed first, as complex numbers.
DimsWithin order_to_real(const Shape& stride, DimsWithin dims) {
  const std::size_t last = dims.back();
  dims.pop_back();
  DimsWithin order = order_of_complex(stride, dims);
  order.erase(std::find(order.begin(), order.end(), last));
  order.push_back(last);
  return order;
}

// (self, dim, normalization, a flag or a size) -> the same dims, the last of `dim` with as many
// elements as `length` says. Linear.
SignatureOf fourier(DimsWithin (*order)(const Shape& stride, DimsWithin dims),
                    std::int64_t (*length)(const OpSchema& schema, std::int64_t now)) {
  return [order, length](const OpSchema& schema) -> std::optional<Signature> {
    if (schema.ints(1).empty()) return std::nullopt;
    const DimsWithin dims = transformed_dims(schema);
    Signature signature;
    const Term self = own_factors(signature, schema.spec(0).shape());
    Result result{self};
    for (std::size_t dim : dims) {
      signature.is_whole[dim] = true;
      result.term.factors[dim] = kNoFactor;
    }
    result.term.sizes[dims.back()] = length(schema, self.sizes[dims.back()]);
    result.memory_order = order(schema.spec(0).meta().stride(), dims);
    signature.operands = {{.term = self, .is_linear = true}};
    signature.results = {result};
    signature.needs_elements = true;
    return signature;
  };
}

std::int64_t same_length(const OpSchema&, std::int64_t now) { return now; }
std::int64_t length_from_real(const OpSchema& schema, std::int64_t now) {
  return schema.flag(3) ? now / 2 + 1 : now;
}
std::int64_t length_to_real(const OpSchema& schema, std::int64_t) { return schema.integer(3); }

// Others ----------------------------------------------------------------------------------------

// (self, p, dim, maxnorm): the norm of each slice along the dim.
std::optional<Signature> renorm(const OpSchema& schema) {
  Signature signature;
  const Term self = own_factors(signature, schema.spec(0).shape());
  const std::size_t along = wrapped_dim(schema.integer(2), self.sizes.size());
  for (std::size_t dim = 0; dim < self.sizes.size(); ++dim) signature.is_whole[dim] = dim != along;
  signature.operands = {{self}};
  signature.results = {{self}};
  return signature;
}

// A tensor and numbers per slice along a dim, which have one element along the others. None if they
// are not such.
struct SlicesAndNumbers {
  Signature signature;
  Term slices, numbers;
};
std::optional<SlicesAndNumbers> slices_and_numbers(const Shape& slices, const Shape& numbers,
                                                   std::int64_t dim) {
  if (slices.size() != numbers.size() || slices.empty()) return std::nullopt;
  SlicesAndNumbers both;
  both.signature.needs_elements = true;  // libtorch divides by their number
  both.slices = own_factors(both.signature, slices);
  const std::size_t along = wrapped_dim(dim, slices.size());
  both.numbers = both.slices;
  both.numbers.sizes = numbers;
  for (std::size_t other = 0; other < slices.size(); ++other) {
    if (numbers[other] != (other == along ? slices[other] : 1)) return std::nullopt;
    if (other == along) continue;
    both.signature.is_whole[other] = true;
    both.numbers.factors[other] = kNoFactor;
  }
  return both;
}

// (v, g, dim) -> w, norms
std::optional<Signature> weight_norm(const OpSchema& schema) {
  auto both = slices_and_numbers(schema.spec(0).shape(), schema.spec(1).shape(), schema.integer(2));
  if (!both) return std::nullopt;
  both->signature.operands = {{both->slices}, {both->numbers}};
  both->signature.results = {{both->slices}, {both->numbers}};
  return both->signature;
}

// (gradient of w, v, g, norms, dim) -> gradients of v and g
std::optional<Signature> weight_norm_backward(const OpSchema& schema) {
  auto both = slices_and_numbers(schema.spec(0).shape(), schema.spec(2).shape(), schema.integer(4));
  if (!both) return std::nullopt;
  both->signature.operands = {{both->slices}, {both->slices}, {both->numbers}, {both->numbers}};
  both->signature.results = {{both->slices}, {both->numbers}};
  return both->signature;
}

}  // namespace

void add_within(RuleTable& rules) {
  rules.add("_fft_c2c", "within dims", fourier(order_of_complex, same_length),
            "c64[8, 6, 4], dim=[1], normalization=0, forward=true");
  rules.add("_fft_r2c", "within dims", fourier(order_from_real, length_from_real),
            "f32[8, 6, 4], dim=[1], normalization=0, onesided=true");
  rules.add("_fft_c2r", "within dims", fourier(order_to_real, length_to_real),
            "c64[8, 6, 4], dim=[1], normalization=0, last_dim_size=10");

  rules.add("sort.stable", "within a dim",
            along_dim(2, "~... -> ..., ...", ResultLayout::LikeOperands),
            "f32[8, 6], stable=true, dim=1, descending=false");
  rules.add("linalg_cross", "within a dim",
            along_dim(2, "... * ... -> ...", ResultLayout::LikeOperands),
            "f32[8, 3], f32[8, 3], dim=1");
  rules.add("renorm", "within slices of a dim", renorm, "f32[8, 6, 4], p=2, dim=1, maxnorm=1");
  rules.add("_weight_norm_interface", "within slices of a dim", weight_norm,
            "f32[8, 6], f32[8, 1], dim=0");
  rules.add("_weight_norm_interface_backward", "within slices of a dim", weight_norm_backward,
            "f32[8, 6], f32[8, 6], f32[8, 1], f32[8, 1], dim=0");
}

}  // namespace tegula::inner::families
