// The idea: dims of operands are numbered by letters, or by their place from the end where the text
// says "..."; the first operand that has a dim of more than one element decides a factor's size.
#include "tegula/rules/signature.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace tegula {
namespace {

// Letters and spread dims of one call, as factors.
class Numbering {
 public:
  explicit Numbering(const RuleForm& form, Signature& signature)
      : form_(form), signature_(signature) {
    letters_.fill(kNoFactor);
  }

  // False if the shape does not fit the term.
  bool take(const RuleForm::Term& term, const Shape& shape) {
    if (!term.spreads && shape.size() > term.count) return false;
    if (term.spreads && shape.size() < term.count) return false;
    const std::size_t spread = shape.size() > term.count ? shape.size() - term.count : 0;
    if (spread_.size() < spread) spread_.resize(spread, kNoFactor);
    for (std::size_t dim = 0; dim < spread; ++dim) {
      if (!note(spread_[spread - 1 - dim], shape[dim])) return false;
    }
    return take_letters(term, shape, spread);
  }

  Term term_of(const RuleForm::Term& form, const Shape& shape) const {
    Term term;
    term.sizes = shape;
    const std::size_t spread = shape.size() > form.count ? shape.size() - form.count : 0;
    for (std::size_t dim = 0; dim < spread; ++dim) {
      term.factors.push_back(shape[dim] == 1 ? fitting(spread_[spread - 1 - dim], 1)
                                             : spread_[spread - 1 - dim]);
    }
    const std::size_t first = form.count - (shape.size() - spread);
    for (std::size_t dim = spread; dim < shape.size(); ++dim) {
      const char letter = form.letters[first + dim - spread];
      term.factors.push_back(letter == '1' ? kNoFactor : fitting(factor_of(letter), shape[dim]));
    }
    return term;
  }

  Term result_of(const RuleForm::Term& form) const {
    Term term;
    const auto add = [&](Factor factor) {
      term.factors.push_back(factor);
      term.sizes.push_back(
          factor == kNoFactor ? 1 : signature_.factor_sizes[static_cast<std::size_t>(factor)]);
    };
    if (form.spreads) {
      for (std::size_t k = spread_.size(); k-- > 0;) add(spread_[k]);
    }
    for (std::size_t k = 0; k < form.count; ++k) {
      add(form.letters[k] == '1' ? kNoFactor : factor_of(form.letters[k]));
    }
    return term;
  }

  void keep_whole() {
    for (char letter = 'a'; letter <= 'z'; ++letter) {
      const Factor factor = factor_of(letter);
      if (factor != kNoFactor && (form_.whole >> static_cast<unsigned>(letter - 'a') & 1U)) {
        signature_.is_whole[static_cast<std::size_t>(factor)] = true;
      }
    }
  }

 private:
  bool take_letters(const RuleForm::Term& term, const Shape& shape, std::size_t spread) {
    const std::size_t first = term.count - (shape.size() - spread);
    for (std::size_t dim = spread; dim < shape.size(); ++dim) {
      const char letter = term.letters[first + dim - spread];
      if (letter == '1') {
        if (shape[dim] != 1) return false;
      } else if (!note(letters_[static_cast<std::size_t>(letter - 'a')], shape[dim])) {
        return false;
      }
    }
    return true;
  }

  // A dim of one element does not decide; 1 beside n is broadcast.
  bool note(Factor& factor, std::int64_t size) {
    if (factor == kNoFactor) {
      factor = signature_.add_factor(size);
      return true;
    }
    std::int64_t& known = signature_.factor_sizes[static_cast<std::size_t>(factor)];
    if (known == 1) known = size;
    return size == known || size == 1;
  }

  Factor factor_of(char letter) const { return letters_[static_cast<std::size_t>(letter - 'a')]; }
  Factor fitting(Factor factor, std::int64_t size) const {
    return signature_.factor_sizes[static_cast<std::size_t>(factor)] == size ? factor : kNoFactor;
  }

  const RuleForm& form_;
  Signature& signature_;
  std::array<Factor, 26> letters_{};
  std::vector<Factor> spread_;  // from the last dim
};

bool has_broadcast_letter(const RuleForm::Term& term, const Signature& signature,
                          std::size_t operand) {
  const std::vector<Factor>& factors = signature.operands[operand].term.factors;
  const std::size_t dims = std::min(term.count, factors.size());
  for (std::size_t from_end = 1; from_end <= dims; ++from_end) {
    const bool is_letter = term.letters[term.count - from_end] != '1';
    if (is_letter && factors[factors.size() - from_end] == kNoFactor) return true;
  }
  return false;
}

// Whether dim `a` lies inside of dim `b` in memory, by the first operand that can tell; 0 if none
// can.
int order_of_dims(std::size_t a, std::size_t b, const std::vector<const TensorMeta*>& operands,
                  const Shape& shape) {
  for (const TensorMeta* operand : operands) {
    const auto stride_at = [&](std::size_t dim) -> std::int64_t {
      const std::size_t missing = shape.size() - operand->shape().size();
      if (dim < missing) return 0;
      return operand->shape()[dim - missing] == 1 && shape[dim] != 1
                 ? 0
                 : operand->stride()[dim - missing];
    };
    const std::int64_t stride_a = stride_at(a);
    const std::int64_t stride_b = stride_at(b);
    if (stride_a == 0 || stride_b == 0) continue;
    if (stride_a != stride_b) return stride_a < stride_b ? -1 : 1;
    if (shape[a] > shape[b]) return 1;
  }
  return 0;
}

Shape stride_in_order(const Shape& shape, const std::vector<std::size_t>& outer_first) {
  Shape stride(shape.size());
  std::int64_t next = 1;
  for (auto dim = outer_first.rbegin(); dim != outer_first.rend(); ++dim) {
    stride[*dim] = next;
    next *= std::max<std::int64_t>(shape[*dim], 1);
  }
  return stride;
}

// As libtorch has it: strides of dims of one element do not count, nor any of a tensor without
// elements.
bool is_row_major(const TensorMeta& meta) {
  std::int64_t expected = 1;
  bool is_regular = true;
  for (std::size_t dim = meta.shape().size(); dim-- > 0;) {
    const std::int64_t size = meta.shape()[dim];
    if (size == 0) return true;
    if (size == 1) continue;
    is_regular = is_regular && meta.stride()[dim] == expected;
    expected *= size;
  }
  return is_regular;
}

// As libtorch's pointwise ops lay out a result: dims sorted by the operands' strides, unless all
// operands are laid out alike without gaps.
Shape stride_like_operands(const Shape& shape, const std::vector<const TensorMeta*>& operands) {
  const auto all = [&](const auto& holds) {
    return std::all_of(operands.begin(), operands.end(),
                       [&](const TensorMeta* operand) { return holds(*operand); });
  };
  if (all([&](const TensorMeta& one) { return one.shape() == shape; }) && !operands.empty()) {
    const Shape& stride = operands.front()->stride();
    if (all(is_row_major)) return row_major_strides(shape);
    if (all([&](const TensorMeta& one) { return one.stride() == stride && one == dense(one); })) {
      return stride;
    }
  }
  std::vector<std::size_t> inner_first(shape.size());
  std::iota(inner_first.rbegin(), inner_first.rend(), 0);
  for (std::size_t i = 1; i < shape.size(); ++i) {
    std::size_t moving = i;
    for (std::size_t other = i; other-- > 0;) {
      const int order = order_of_dims(inner_first[other], inner_first[moving], operands, shape);
      if (order > 0) {
        std::swap(inner_first[other], inner_first[moving]);
        moving = other;
      } else if (order < 0) {
        break;
      }
    }
  }
  return stride_in_order(shape, {inner_first.rbegin(), inner_first.rend()});
}

}  // namespace

std::optional<Signature> signature_of(const RuleForm& form, const OpSchema& schema) {
  Signature signature;
  Numbering numbering(form, signature);
  if (schema.tensors.size() > form.operand_count) return std::nullopt;
  for (std::size_t k = 0; k < schema.tensors.size(); ++k) {
    if (schema.has(k) && !numbering.take(form.operands[k], schema.spec(k).shape())) {
      return std::nullopt;
    }
  }
  numbering.keep_whole();
  for (std::size_t k = 0; k < schema.tensors.size(); ++k) {
    const RuleForm::Term& operand = form.operands[k];
    signature.operands.push_back(
        {schema.has(k) ? numbering.term_of(operand, schema.spec(k).shape()) : Term{},
         operand.is_linear && schema.has(k), operand.product, schema.has(k)});
  }
  for (std::size_t k = 0; k < schema.tensors.size(); ++k) {
    if (form.operands[k].is_multiplied && has_broadcast_letter(form.operands[k], signature, k)) {
      return std::nullopt;
    }
  }
  for (std::size_t r = 0; r < form.result_count; ++r) {
    const bool is_pointwise = form.results[r].spreads && form.results[r].count == 0;
    signature.results.push_back(
        {numbering.result_of(form.results[r]),
         is_pointwise ? ResultLayout::LikeOperands : ResultLayout::RowMajor});
  }
  return signature;
}

std::optional<std::int64_t> dim_of(const Term& term, Factor factor) {
  const auto found = std::find(term.factors.begin(), term.factors.end(), factor);
  if (found == term.factors.end()) return std::nullopt;
  return found - term.factors.begin();
}

bool needs_elements_of(const Signature& signature, Factor factor) {
  const std::vector<Factor>& exempt = signature.may_be_empty;
  return signature.needs_elements &&
         std::find(exempt.begin(), exempt.end(), factor) == exempt.end();
}

Shape sizes_at(const OpSchema& schema, std::size_t argument) {
  const auto* one = std::get_if<std::int64_t>(&schema.arguments[argument]);
  return one ? Shape{*one} : schema.ints(argument);
}

Shape shape_of(const Term& term, const Signature& signature) {
  Shape shape = term.sizes;
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    if (term.factors[dim] != kNoFactor) {
      shape[dim] = signature.factor_sizes[static_cast<std::size_t>(term.factors[dim])];
    }
  }
  return shape;
}

Shape result_stride(const Result& result, const Signature& signature, const OpSchema& schema) {
  const Shape shape = shape_of(result.term, signature);
  std::vector<const TensorMeta*> operands;
  for (const auto& spec : schema.tensors) {
    if (spec) operands.push_back(&spec->meta());
  }
  if (!result.memory_order.empty()) return stride_in_order(shape, result.memory_order);
  switch (result.layout) {
    case ResultLayout::RowMajor:
      return row_major_strides(shape);
    case ResultLayout::LikeOperands:
      return stride_like_operands(shape, operands);
    case ResultLayout::LikeFirst:
      return dense_strides_like(shape, dense(*operands.front()).stride());
  }
  return row_major_strides(shape);
}

}  // namespace tegula
