// The idea: an argument is recognized by how it begins; what a text rule needs follows from its
// letters.
#include "tegula/rules/rule_example.h"

#include <array>

#include "tegula/base/text.h"

namespace tegula::inner {
namespace {

// Different for each letter, so that no dim can be taken for another.
class LetterSizes {
 public:
  std::int64_t size_of(char letter) {
    if (letter == '1') return 1;
    std::int64_t& size = sizes_[static_cast<std::size_t>(letter - 'a')];
    if (size == 0) size = 8 + 2 * used_++;
    return size;
  }

  Shape shape_of(const RuleForm::Term& term) {
    Shape shape = term.spreads ? Shape{4, 6} : Shape{};
    for (std::size_t k = 0; k < term.count; ++k) shape.push_back(size_of(term.letters[k]));
    return shape;
  }

 private:
  std::array<std::int64_t, 26> sizes_{};
  std::int64_t used_ = 0;
};

std::string arguments_of(const RuleForm& form) {
  LetterSizes sizes;
  std::vector<std::string> tensors;
  for (std::size_t k = 0; k < form.operand_count; ++k) {
    tensors.push_back("f32" + bracketed(sizes.shape_of(form.operands[k])));
  }
  return join(tensors);
}

class CallReader {
 public:
  CallReader(std::string_view text, const DeviceMesh& mesh, OpSchema& schema)
      : scan_(text, "an example", "f32[8, 6], dim=[1]"), mesh_(mesh), schema_(schema) {}

  void read() {
    do {
      schema_.arguments.push_back(argument());
    } while (scan_.accept(","));
    scan_.expect_end();
  }

 private:
  Argument argument() {
    if (scan_.next_is_integer()) return scan_.integer();
    if (scan_.accept("[")) return list();
    const std::string word = scan_.identifier();
    if (scan_.accept("="))
      return scan_.next_is_integer() || scan_.next_is("[") ? argument() : named();
    return word_or_tensor(word);
  }

  // Behind a name, a word may be text.
  Argument named() {
    const std::string word = scan_.identifier();
    const bool is_text = !scan_.next_is("[") && word != "none" && word != "true" && word != "false";
    return is_text ? Argument(argument::Text{word}) : word_or_tensor(word);
  }

  Argument word_or_tensor(const std::string& word) {
    if (word == "none") return argument::None{};
    if (word == "true" || word == "false") return word == "true";
    return argument::Tensor{tensor(word)};
  }

  Argument list() {
    if (scan_.next_is("]") || scan_.next_is_integer()) return scan_.integers_until("]");
    const std::size_t first = schema_.tensors.size();
    do {
      tensor(scan_.identifier());
    } while (scan_.accept(","));
    scan_.expect("]");
    return argument::TensorList{first, schema_.tensors.size() - first};
  }

  std::size_t tensor(const std::string& dtype) {
    const DType type = parse_dtype(dtype);
    scan_.expect("[");
    const TensorMeta meta(scan_.integers_until("]"), type);
    schema_.tensors.emplace_back(DTensorSpec(mesh_, Placements(mesh_.ndim(), Replicate()), meta));
    return schema_.tensors.size() - 1;
  }

  Scanner scan_;
  const DeviceMesh& mesh_;
  OpSchema& schema_;
};

}  // namespace

std::string example_arguments(const Rule& rule) {
  if (!rule.example.empty() || !rule.form) return rule.example;
  return arguments_of(*rule.form);
}

OpSchema example_call(const Rule& rule, const DeviceMesh& mesh) {
  OpSchema schema{rule.op, {}, {}};
  const std::string arguments = example_arguments(rule);
  if (!arguments.empty()) CallReader(arguments, mesh, schema).read();
  return schema;
}

}  // namespace tegula::inner
