// Each rule numbers the dims of self as factors of their own, then says which of them results have,
// which must stay whole and in which operands the op is linear.
#include "tegula/rules/signatures.h"

#include <algorithm>

#include "tegula/base/error.h"

namespace tegula::inner {
namespace {

bool is_integral(DType dtype) {
  const std::string_view name = name_of(dtype);
  return name.starts_with('i') || name.starts_with('u') || dtype == DType::Bool;
}

std::vector<bool> reduced_dims(const OpSchema& schema, const ReductionForm& form,
                               std::size_t dims) {
  std::vector<bool> reduced(dims, false);
  if (dims == 0) return reduced;
  Ints listed;
  if (form.dims < schema.arguments.size()) {
    const Argument& argument = schema.arguments[form.dims];
    if (const auto* one = std::get_if<std::int64_t>(&argument)) listed = {*one};
    if (const auto* many = std::get_if<Ints>(&argument)) listed = *many;
  }
  for (std::int64_t dim : listed) reduced[wrapped_dim(dim, dims)] = true;
  if (listed.empty()) std::fill(reduced.begin(), reduced.end(), true);
  return reduced;
}

// No tensors but self: bounds and the like may be tensors in some calls.
bool has_self_alone(const OpSchema& schema) { return schema.tensors.size() == 1 && schema.has(0); }

Signature reduced_signature(const OpSchema& schema, const ReductionForm& form,
                            const std::vector<bool>& reduced, bool keeps) {
  Signature signature;
  signature.over = form.over;
  signature.needs_elements = form.needs_elements;
  const Term self = own_factors(signature, schema.spec(0).shape());
  signature.operands.push_back({.term = self, .is_linear = form.is_linear});
  Term result;
  for (std::size_t dim = 0; dim < reduced.size(); ++dim) {
    if (reduced[dim] && !keeps) continue;
    result.factors.push_back(reduced[dim] ? kNoFactor : self.factors[dim]);
    result.sizes.push_back(reduced[dim] ? 1 : self.sizes[dim]);
  }
  for (std::size_t k = 0; k < form.results; ++k) signature.results.push_back({result});
  for (std::size_t dim = 0; dim < reduced.size() && form.is_mean; ++dim) {
    if (reduced[dim]) signature.averaged.push_back(self.factors[dim]);
  }
  return signature;
}

// libtorch skips tensors of shape [0] when it joins others.
bool have_as_many_dims(const OpSchema& schema) {
  for (std::size_t k = 1; k < schema.tensors.size(); ++k) {
    if (schema.spec(k).ndim() != schema.spec(0).ndim()) return false;
  }
  return true;
}

// libtorch's numbers of memory formats.
enum MemoryFormat : std::int64_t { kContiguous = 0, kPreserve = 1 };

}  // namespace

Term own_factors(Signature& signature, const Shape& shape) {
  Term term;
  term.sizes = shape;
  for (std::int64_t size : shape) term.factors.push_back(signature.add_factor(size));
  return term;
}

void add_optional_operand(Signature& signature, const OpSchema& schema, std::size_t argument,
                          const Term& term) {
  if (schema.is_none(argument)) return;
  const bool is_given = schema.has(schema.tensor(argument));
  signature.operands.push_back({.term = is_given ? term : Term{}, .is_given = is_given});
}

bool has_shape_if_given(const OpSchema& schema, std::size_t argument, const Shape& shape) {
  if (schema.is_none(argument)) return true;
  const std::size_t tensor = schema.tensor(argument);
  return !schema.has(tensor) || schema.spec(tensor).shape() == shape;
}

std::size_t wrapped_dim(std::int64_t dim, std::size_t dims) {
  const auto count = static_cast<std::int64_t>(std::max<std::size_t>(dims, 1));
  const std::int64_t wrapped = dim < 0 ? dim + count : dim;
  if (wrapped < 0 || wrapped >= count) {
    throw UsageError("there is no dim " + std::to_string(dim) + " in a tensor with " +
                     std::to_string(dims) + " dims")
        .hint("dims are 0 ... " + std::to_string(count - 1));
  }
  return static_cast<std::size_t>(wrapped);
}

SignatureOf reduction(ReductionForm form) {
  return [form](const OpSchema& schema) -> std::optional<Signature> {
    if (!has_self_alone(schema)) return std::nullopt;
    const std::vector<bool> reduced =
        reduced_dims(schema, form, static_cast<std::size_t>(schema.spec(0).ndim()));
    const bool keeps = form.keepdim < schema.arguments.size() && schema.flag(form.keepdim);
    return reduced_signature(schema, form, reduced, keeps);
  };
}

SignatureOf reduction_of_all(ReductionForm form) {
  return [form](const OpSchema& schema) -> std::optional<Signature> {
    if (!has_self_alone(schema)) return std::nullopt;
    const std::vector<bool> all(static_cast<std::size_t>(schema.spec(0).ndim()), true);
    return reduced_signature(schema, form, all, /*keeps=*/false);
  };
}

SignatureOf reduction_within(ReductionForm form) {
  return [form](const OpSchema& schema) -> std::optional<Signature> {
    std::optional<Signature> signature = reduction(form)(schema);
    if (!signature) return std::nullopt;
    const std::vector<bool> reduced =
        reduced_dims(schema, form, static_cast<std::size_t>(schema.spec(0).ndim()));
    for (std::size_t dim = 0; dim < reduced.size(); ++dim) {
      if (reduced[dim]) signature->is_whole[dim] = true;
    }
    return signature;
  };
}

SignatureOf along_dim(std::size_t dim, RuleText text, ResultLayout layout) {
  return [dim, form = text.form(), layout](const OpSchema& schema) -> std::optional<Signature> {
    std::optional<Signature> signature = signature_of(form, schema);
    if (!signature) return signature;
    for (Result& result : signature->results) result.layout = layout;
    if (schema.spec(0).ndim() == 0) return signature;
    const std::size_t along =
        wrapped_dim(schema.integer(dim), static_cast<std::size_t>(schema.spec(0).ndim()));
    const Factor factor = signature->operands.front().term.factors[along];
    if (factor != kNoFactor) signature->is_whole[static_cast<std::size_t>(factor)] = true;
    return signature;
  };
}

bool converts_linearly(DType from, DType to) {
  if (to == DType::Bool) return from == DType::Bool;
  return !is_integral(to) || is_integral(from);
}

SignatureOf with_result_type(std::size_t dtype, SignatureOf rule) {
  return [dtype, rule = std::move(rule)](const OpSchema& schema) -> std::optional<Signature> {
    std::optional<Signature> signature = rule(schema);
    if (!signature || schema.is_none(dtype)) return signature;
    const auto type = static_cast<DType>(schema.integer(dtype));
    for (std::size_t k = 0; k < signature->operands.size(); ++k) {
      Operand& operand = signature->operands[k];
      operand.is_linear =
          operand.is_linear && converts_linearly(schema.spec(k).meta().dtype(), type);
    }
    return signature;
  };
}

SignatureOf concatenation(std::size_t dim) {
  return [dim](const OpSchema& schema) -> std::optional<Signature> {
    if (schema.tensors.empty()) return std::nullopt;
    const Shape& first = schema.spec(0).shape();
    if (first.empty() || !have_as_many_dims(schema)) return std::nullopt;
    const std::size_t along = wrapped_dim(schema.integer(dim), first.size());
    Signature signature;
    const Term shared = own_factors(signature, first);
    signature.is_whole[along] = true;
    Result result{shared, ResultLayout::RowMajor};
    std::int64_t length = 0;
    for (std::size_t k = 0; k < schema.tensors.size(); ++k) {
      const Shape& shape = schema.spec(k).shape();
      for (std::size_t other = 0; other < first.size(); ++other) {
        if (other != along && shape[other] != first[other]) return std::nullopt;
      }
      Term term = shared;
      term.factors[along] = kNoFactor;
      term.sizes = shape;
      length += shape[along];
      signature.operands.push_back({.term = term, .is_linear = true, .product = k});
    }
    result.term.factors[along] = kNoFactor;
    result.term.sizes[along] = length;
    signature.results.push_back(result);
    return signature;
  };
}

SignatureOf like_self(std::size_t options) {
  return [options](const OpSchema& schema) -> std::optional<Signature> {
    if (!has_self_alone(schema)) return std::nullopt;
    // layout, device, pinned memory
    for (std::size_t argument = options + 1; argument < options + 4; ++argument) {
      if (!schema.is_none(argument)) return std::nullopt;
    }
    const std::int64_t format =
        schema.is_none(options + 4) ? kPreserve : schema.integer(options + 4);
    if (format != kContiguous && format != kPreserve) return std::nullopt;
    Signature signature;
    signature.reads_values = false;
    const Term self = own_factors(signature, schema.spec(0).shape());
    signature.operands.push_back({self});
    signature.results.push_back(
        {self, format == kPreserve ? ResultLayout::LikeFirst : ResultLayout::RowMajor});
    return signature;
  };
}

SignatureOf stacking(std::size_t dim) {
  return [dim](const OpSchema& schema) -> std::optional<Signature> {
    if (schema.tensors.empty()) return std::nullopt;
    const Shape& shape = schema.spec(0).shape();
    const std::size_t along = wrapped_dim(schema.integer(dim), shape.size() + 1);
    Signature signature;
    const Term shared = own_factors(signature, shape);
    for (std::size_t k = 0; k < schema.tensors.size(); ++k) {
      if (schema.spec(k).shape() != shape) return std::nullopt;
      signature.operands.push_back({.term = shared, .is_linear = true, .product = k});
    }
    Result result{shared, ResultLayout::RowMajor};
    const auto place = static_cast<std::ptrdiff_t>(along);
    result.term.factors.insert(result.term.factors.begin() + place, kNoFactor);
    result.term.sizes.insert(result.term.sizes.begin() + place,
                             static_cast<std::int64_t>(schema.tensors.size()));
    signature.results.push_back(result);
    return signature;
  };
}

}  // namespace tegula::inner
