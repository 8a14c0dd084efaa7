// The idea: the operator's signature says of which type an argument is, and so how to read it.
#include "tegula/testing/sample.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "tegula/base/error.h"
#include "tegula/base/text.h"
#include "tegula/bridge/torch_types.h"
#include "tegula/random/random.h"

namespace tegula {

using namespace inner;

namespace {

c10::OperatorName full_name(const std::string& op) {
  const std::string name = op.find("::") == std::string::npos ? "aten::" + op : op;
  const std::size_t dot = name.find('.');
  if (dot == std::string::npos) return {name, ""};
  return {name.substr(0, dot), name.substr(dot + 1)};
}

// Bounds of elements.
struct Range {
  double first = 0;
  double last = 0;
};

class ArgumentReader {
 public:
  ArgumentReader(const Sample& sample, const c10::FunctionSchema& schema, std::uint64_t seed)
      : schema_(schema),
        scan_(sample.arguments, "arguments of a sample", "f64[4, 6], [0, 1], dim=2, true"),
        generator_(replicated_generator({seed, 0})) {}

  std::vector<c10::IValue> read() {
    std::vector<std::optional<c10::IValue>> given(schema_.arguments().size());
    for (std::size_t next = 0; !scan_.at_end(); ++next) {
      const std::size_t index = named_argument().value_or(next);
      if (index >= given.size()) scan_.fail("no more arguments");
      given[index] = value_of(*schema_.arguments()[index].type());
      if (!scan_.at_end()) scan_.expect(",");
    }
    std::vector<c10::IValue> values;
    for (std::size_t index = 0; index < given.size(); ++index) {
      const auto& otherwise = schema_.arguments()[index].default_value();
      if (!given[index] && !otherwise) scan_.fail(schema_.arguments()[index].name());
      values.push_back(given[index] ? *given[index] : *otherwise);
    }
    return values;
  }

 private:
  std::optional<std::size_t> named_argument() {
    for (std::size_t index = 0; index < schema_.arguments().size(); ++index) {
      if (scan_.accept(schema_.arguments()[index].name() + "=")) return index;
    }
    return std::nullopt;
  }

  c10::IValue value_of(const c10::Type& type) {
    switch (type.kind()) {
      case c10::TypeKind::OptionalType:
        if (scan_.accept_word("none")) return {};
        return value_of(*type.expectRef<c10::OptionalType>().getElementType());
      case c10::TypeKind::TensorType:
        return tensor();
      case c10::TypeKind::ListType:
        return list_of(*type.expectRef<c10::ListType>().getElementType());
      case c10::TypeKind::BoolType:
        return truth();
      case c10::TypeKind::FloatType:
        return std::stod(scan_.word());
      case c10::TypeKind::NumberType:
        return number();
      case c10::TypeKind::StringType:
        return scan_.word();
      default:
        return scan_.next_is_integer() ? c10::IValue(scan_.integer()) : element_type();
    }
  }

  c10::IValue list_of(const c10::Type& member) {
    if (member.kind() == c10::TypeKind::TensorType) return tensors();
    if (member.kind() == c10::TypeKind::OptionalType) return tensors_or_none();
    scan_.expect("[");
    const std::vector<std::int64_t> numbers = scan_.integers_until("]");
    if (member.kind() != c10::TypeKind::BoolType) return numbers;
    c10::List<bool> flags;
    for (std::int64_t one : numbers) flags.push_back(one != 0);
    return flags;
  }

  c10::IValue tensors() {
    c10::List<at::Tensor> members;
    scan_.expect("{");
    while (!scan_.accept("}")) {
      members.push_back(tensor());
      if (!scan_.next_is("}")) scan_.expect(",");
    }
    return members;
  }

  c10::IValue tensors_or_none() {
    c10::List<std::optional<at::Tensor>> members;
    scan_.expect("{");
    while (!scan_.accept("}")) {
      members.push_back(scan_.accept_word("none") ? std::nullopt : std::optional(tensor()));
      if (!scan_.next_is("}")) scan_.expect(",");
    }
    return members;
  }

  bool truth() {
    if (scan_.accept_word("true")) return true;
    scan_.expect_word("false");
    return false;
  }

  c10::IValue number() {
    const std::string text = scan_.word();
    if (text.find_first_of(".e") == std::string::npos) return std::int64_t{std::stoll(text)};
    return std::stod(text);
  }

  c10::IValue element_type() { return scalar_type_of(parse_dtype(scan_.word())); }

  std::optional<Range> range() {
    if (!scan_.accept_word("in")) return std::nullopt;
    const std::string text = scan_.word();
    const std::size_t dots = text.find("..");
    if (dots == std::string::npos) scan_.fail("bounds like 0..6");
    return Range{std::stod(text.substr(0, dots)), std::stod(text.substr(dots + 2))};
  }

  at::Tensor tensor() {
    const TensorMeta meta = parse_tensor_meta(scan_);
    const at::Tensor laid = at::empty_strided(meta.shape(), meta.stride(),
                                              at::TensorOptions(scalar_type_of(meta.dtype())));
    return laid.copy_(elements(meta, range()));
  }

  at::Tensor elements(const TensorMeta& meta, std::optional<Range> range) {
    const at::ScalarType type = scalar_type_of(meta.dtype());
    if (type == at::kBool) return at::randint(2, meta.shape(), generator_, at::kLong);
    if (at::isIntegralType(type, /*includeBool=*/true)) {
      const Range bounds = range.value_or(Range{0, 4});
      return at::randint(static_cast<std::int64_t>(bounds.first),
                         static_cast<std::int64_t>(bounds.last) + 1, meta.shape(), generator_,
                         at::kLong);
    }
    const at::ScalarType wide = at::isComplexType(type) ? at::kComplexDouble : at::kDouble;
    if (!range) return at::randn(meta.shape(), generator_, at::TensorOptions(wide));
    return at::rand(meta.shape(), generator_, at::TensorOptions(wide)) *
               (range->last - range->first) +
           range->first;
  }

  const c10::FunctionSchema& schema_;
  Scanner scan_;
  at::Generator generator_;
};

}  // namespace

std::string to_string(const Sample& sample) { return sample.op + "(" + sample.arguments + ")"; }

c10::OperatorHandle operator_of(const Sample& sample) {
  if (auto op = c10::Dispatcher::singleton().findSchema(full_name(sample.op))) return *op;
  throw UsageError("libtorch knows no operator of this name")
      .fact("sample", to_string(sample))
      .hint("overloads are named as in \"sum.dim_IntList\"");
}

std::vector<c10::IValue> arguments_of(const Sample& sample, std::uint64_t seed) {
  const c10::OperatorHandle op = operator_of(sample);
  return ArgumentReader(sample, op.schema(), seed).read();
}

}  // namespace tegula
