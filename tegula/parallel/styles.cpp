// The idea of packed layers: parts that lie side by side are turns of one cut (placement/cut.h), in
// each of which every rank has its chunk of one part.
#include "tegula/parallel/styles.h"

#include <numeric>

#include "tegula/base/error.h"
#include "tegula/base/text.h"
#include "tegula/spec/interval.h"

namespace tegula {

using namespace inner;

namespace {

using Units = std::vector<std::int64_t>;

bool has_features(const StyledParameter& parameter) { return parameter.tensor.dim() > 0; }

Placement by_inputs(const StyledParameter& parameter) {
  if (parameter.is_embedding) return Shard(0);
  return parameter.tensor.dim() > 1 ? Placement(Shard(1)) : Placement(Replicate());
}

Placement everywhere(const StyledParameter&) { return Replicate(); }

// How an axis cuts `size` rows or columns that consist of parts.
using PackedCut = std::function<Cut(std::int64_t size, std::int64_t ranks)>;

PackedCut equal_parts(std::int64_t parts) {
  if (parts < 1) {
    throw UsageError("a packed layer consists of one part or more")
        .fact("parts", std::to_string(parts))
        .hint("3 for query, key and value in one");
  }
  return [parts](std::int64_t size, std::int64_t) {
    if (size % parts == 0) return Cut::in_blocks(parts);
    throw UsageError("a packed parameter does not consist of equal parts")
        .fact("features", std::to_string(size))
        .fact("parts", std::to_string(parts))
        .hint("give the lengths of the parts in units, as in PackedColwise({8, 2, 2})");
  };
}

// The groups are what parts have alike: cut together, each rank's units of one part belong to its
// units of the others. Where there are too few, parts are cut one by one.
PackedCut unequal_parts(const Units& units) {
  std::int64_t all = 0, groups = 0;
  for (const std::int64_t part : units) {
    if (part < 1 || __builtin_add_overflow(all, part, &all)) {
      throw UsageError("a part of a packed layer has one unit or more")
          .fact("units", bracketed(units))
          .hint("{8, 2, 2} for a query of 8 heads with keys and values of 2");
    }
    groups = std::gcd(groups, part);
  }
  if (units.empty()) return equal_parts(0);  // refused there
  return [units, all, groups](std::int64_t size, std::int64_t ranks) {
    if (size % all != 0) {
      throw UsageError("a packed parameter does not consist of these units")
          .fact("features", std::to_string(size))
          .fact("units", bracketed(units) + ", " + std::to_string(all) + " in all")
          .hint("units are rows, or heads of equal size");
    }
    const std::int64_t unit = size / all;
    const bool by_groups = groups >= ranks;
    std::vector<std::int64_t> sizes;
    for (const std::int64_t part : units) {
      const std::int64_t shared = by_groups ? groups : part;
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        sizes.push_back(even_chunk(shared, ranks, rank).size * (part / shared) * unit);
      }
    }
    return Cut::ragged(std::move(sizes));
  };
}

Style packed_colwise(const std::string& parts, const PackedCut& cut) {
  return {"packed colwise " + parts, [cut](const StyledParameter& parameter) -> Placement {
            if (!has_features(parameter)) return Replicate();
            const std::int64_t dim = parameter.is_embedding ? 1 : 0;
            return Shard(dim, cut(parameter.tensor.size(dim), parameter.ranks));
          }};
}

Style packed_rowwise(const std::string& parts, const PackedCut& cut) {
  return {"packed rowwise " + parts, [cut](const StyledParameter& parameter) -> Placement {
            const Placement plain = by_inputs(parameter);
            const Shard* shard = as_shard(plain);
            if (!shard) return plain;
            const std::int64_t dim = shard->dim();
            return Shard(dim, cut(parameter.tensor.size(dim), parameter.ranks));
          }};
}

// "packed colwise 3" and "packed rowwise [8, 2, 2]", read behind the second word.
template <class Make>
Style packed(std::string_view name, std::string_view parts, Make make) {
  Scanner scan(parts, name, "packed colwise 3 or packed colwise [8, 2, 2]");
  if (scan.accept("[")) {
    const Units units = scan.integers_until("]");
    scan.expect_end();
    return make(units);
  }
  const std::int64_t count = scan.integer();
  scan.expect_end();
  return make(count);
}

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
  return packed_colwise(std::to_string(parts), equal_parts(parts));
}

Style PackedColwise(const std::vector<std::int64_t>& units) {
  return packed_colwise(bracketed(units), unequal_parts(units));
}

Style Rowwise() { return {"rowwise", by_inputs}; }

Style PackedRowwise(std::int64_t parts) {
  return packed_rowwise(std::to_string(parts), equal_parts(parts));
}

Style PackedRowwise(const std::vector<std::int64_t>& units) {
  return packed_rowwise(bracketed(units), unequal_parts(units));
}

Style VocabularyCut() {
  return {"vocabulary", [](const StyledParameter& parameter) -> Placement {
            return has_features(parameter) ? Placement(Shard(0)) : Placement(Replicate());
          }};
}

Style Sequence() { return {"sequence", everywhere}; }
Style Replicated() { return {"replicated", everywhere}; }

Style Refused() {
  return {"refused", [](const StyledParameter&) -> Placement {
            throw UsageError("the plan has to name it, and does not").hint("give it a style");
          }};
}

Style style_named(std::string_view name) {
  for (Style (*style)() : {Colwise, Rowwise, VocabularyCut, Sequence, Replicated, Refused}) {
    if (style().name() == name) return style();
  }
  constexpr std::string_view kColwise = "packed colwise ", kRowwise = "packed rowwise ";
  if (name.starts_with(kColwise)) {
    return packed(name, name.substr(kColwise.size()),
                  [](const auto& p) { return PackedColwise(p); });
  }
  if (name.starts_with(kRowwise)) {
    return packed(name, name.substr(kRowwise.size()),
                  [](const auto& p) { return PackedRowwise(p); });
  }
  throw UsageError("there is no style of this name")
      .fact("style", in_quotes(name))
      .hint(
          "colwise, rowwise, vocabulary, sequence, replicated, refused, packed colwise 3 or packed "
          "rowwise [8, 2, 2]");
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
