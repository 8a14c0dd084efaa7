// Rules, which the compiler reads elsewhere, and their meaning for operands of any shape: the first
// line is the rule, the others are the operands.
#include <algorithm>

#include "fuzz/target.h"
#include "tegula/rules/axis_moves.h"
#include "tegula/rules/rule_text.h"
#include "tegula/rules/signature.h"

using namespace tegula;
using namespace tegula::fuzz;

namespace {

std::string print(const RuleForm::Term& term, const RuleForm& form) {
  std::string text = term.spreads ? "..." : term.count == 0 ? "()" : "";
  for (std::size_t k = 0; k < term.count; ++k) {
    text += term.letters[k];
    const bool is_whole = term.letters[k] != '1' && ((form.whole >> (term.letters[k] - 'a')) & 1U);
    if (is_whole) text += '!';
  }
  return text;
}

std::string print(const RuleForm& form) {
  std::string text;
  for (std::size_t o = 0; o < form.operand_count; ++o) {
    const RuleForm::Term& term = form.operands[o];
    if (o > 0) {
      const RuleForm::Term& before = form.operands[o - 1];
      const bool is_product = before.is_multiplied && term.is_multiplied;
      text += before.product != term.product ? " + " : is_product ? " * " : ", ";
    }
    text += (term.is_linear ? "" : "~") + print(term, form);
  }
  text += " ->";
  for (std::size_t r = 0; r < form.result_count; ++r) {
    text += (r > 0 ? ", " : " ") + print(form.results[r], form);
  }
  return text;
}

std::optional<RuleForm> form_of(std::string_view text) {
  try {
    return inner::rule_text::Reader(text).read();
  } catch (const char*) {  // what the compiler would say
    return std::nullopt;
  }
}

// None if the operands are not readable.
std::optional<OpSchema> schema_of(const std::vector<std::string_view>& operands) {
  const DeviceMesh mesh({{"tp", 2}});
  OpSchema schema{"rule", {}, {}};
  for (const std::string_view text : operands) {
    try {
      schema.arguments.emplace_back(argument::Tensor{schema.tensors.size()});
      schema.tensors.emplace_back(DTensorSpec(mesh, {Replicate()}, parse_tensor_meta(text)));
    } catch (const UsageError&) {
      return std::nullopt;
    }
  }
  return schema;
}

// Law: a move gives every operand and every result a placement of a dim that it has.
void check_moves(const Signature& signature) {
  const auto fits = [](const Placement& placement, const Term& term) {
    const Shard* shard = as_shard(placement);
    const auto dims = static_cast<std::int64_t>(term.factors.size());
    return shard == nullptr || (shard->dim() >= 0 && shard->dim() < dims);
  };
  for (const AxisMove& move : axis_moves(signature)) {
    require(move.operands.size() == signature.operands.size() &&
                move.results.size() == signature.results.size(),
            "a move places every tensor", move);
    for (std::size_t o = 0; o < move.operands.size(); ++o) {
      require(fits(move.operands[o], signature.operands[o].term),
              "an operand has the dim that is cut", move);
    }
    for (std::size_t r = 0; r < move.results.size(); ++r) {
      require(fits(move.results[r], signature.results[r].term), "a result has the dim that is cut",
              move);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<std::string_view> lines = lines_of(text_of(data, size));
  const std::optional<RuleForm> form = form_of(lines.front());
  if (!form) return 0;
  const std::optional<RuleForm> again = form_of(print(*form));
  require(again && print(*again) == print(*form), "a rule reads back", print(*form));
  lines.erase(lines.begin());
  const std::optional<OpSchema> schema = schema_of(lines);
  if (!schema) return 0;
  if (const std::optional<Signature> signature = signature_of(*form, *schema)) {
    check_moves(*signature);
  }
  return 0;
}
