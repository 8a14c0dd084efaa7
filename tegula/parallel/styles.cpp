#include "tegula/parallel/styles.h"

#include <charconv>

#include "tegula/base/error.h"
#include "tegula/base/text.h"

namespace tegula {
namespace {

constexpr std::string_view kPacked = "packed colwise ";

bool has_features(const StyledParameter& parameter) { return parameter.tensor.dim() > 0; }

Placement by_inputs(const StyledParameter& parameter) {
  if (parameter.is_embedding) return Shard(0);
  return parameter.tensor.dim() > 1 ? Placement(Shard(1)) : Placement(Replicate());
}

Placement everywhere(const StyledParameter&) { return Replicate(); }

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
}

}  // namespace

Style Colwise() {
  return {"colwise", [](const StyledParameter& parameter) -> Placement {
            if (!has_features(parameter)) return Replicate();
            return Shard(parameter.is_embedding ? 1 : 0);
          }};
}

Style PackedColwise(std::int64_t parts) {
  if (parts < 1) {
    throw UsageError("a packed layer consists of one part or more")
        .fact("parts", std::to_string(parts))
        .hint("3 for query, key and value in one");
  }
  return {std::string(kPacked) + std::to_string(parts),
          [parts](const StyledParameter& parameter) -> Placement {
            if (!has_features(parameter)) return Replicate();
            if (parameter.tensor.size(0) % parts == 0) return Shard(0, Cut::in_blocks(parts));
            throw UsageError("a packed parameter does not consist of equal parts")
                .fact("rows", std::to_string(parameter.tensor.size(0)))
                .fact("parts", std::to_string(parts))
                .hint("split the layer, or place it by a style of your own");
          }};
}

Style Rowwise() { return {"rowwise", by_inputs}; }

Style VocabularyCut() {
  return {"vocabulary", [](const StyledParameter& parameter) -> Placement {
            return has_features(parameter) ? Placement(Shard(0)) : Placement(Replicate());
          }};
}

Style Sequence() { return {"sequence", everywhere}; }
Style Replicated() { return {"replicated", everywhere}; }

Style style_named(std::string_view name) {
  for (Style (*style)() : {Colwise, Rowwise, VocabularyCut, Sequence, Replicated}) {
    if (style().name() == name) return style();
  }
  if (name.starts_with(kPacked)) {
    const std::string_view digits = name.substr(kPacked.size());
    std::int64_t parts = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), parts);
    if (error == std::errc() && end == digits.data() + digits.size()) return PackedColwise(parts);
  }
  throw UsageError("there is no style of this name")
      .fact("style", in_quotes(name))
      .hint("colwise, rowwise, vocabulary, sequence, replicated, or packed colwise <parts>");
}

std::string to_string(const ParallelPlan& plan) {
  std::string text;
  for (const auto& [pattern, style] : plan) text += pattern + ": " + style.name() + "\n";
  return text;
}

ParallelPlan parse_plan(std::string_view text) {
  ParallelPlan plan;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = trimmed(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    if (line.empty()) continue;
    const std::size_t colon = line.rfind(':');
    if (colon == std::string_view::npos || trimmed(line.substr(0, colon)).empty()) {
      throw UsageError("a line of a plan has no pattern and style")
          .fact("line", in_quotes(line))
          .hint("write it as blocks.*.up: colwise");
    }
    plan.emplace_back(std::string(trimmed(line.substr(0, colon))),
                      style_named(trimmed(line.substr(colon + 1))));
  }
  return plan;
}

}  // namespace tegula
