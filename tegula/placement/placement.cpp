// Every question is a visit with one case per kind.
#include "tegula/placement/placement.h"

#include <ostream>

#include "tegula/base/error.h"
#include "tegula/base/hash.h"
#include "tegula/base/overloaded.h"
#include "tegula/base/text.h"

namespace tegula {

using namespace inner;

namespace {

constexpr std::string_view kForm =
    "R, S(0), S(0, sizes=[3, 1, 4]), S(0, blocks=2), P(sum) or M(1000)";
constexpr std::string_view kListForm = "[R, S(0)]";

}  // namespace

Shard::Shard(std::int64_t dim, Cut cut) : dim_(dim) {
  if (!cut.is_even()) cut_ = std::make_shared<const Cut>(std::move(cut));
}

const Cut& Shard::cut() const {
  static const Cut even;
  return cut_ ? *cut_ : even;
}

MaskPartial::MaskPartial(std::int64_t extent) : extent_(extent) {
  if (extent < 0) {
    throw UsageError("cannot look up in a dim of " + std::to_string(extent) + " entries")
        .hint("MaskPartial takes the whole size of the dim that is cut");
  }
}

PlacementKind kind_of(const Placement& placement) {
  return std::visit(Overloaded{
                        [](const Replicate&) { return PlacementKind::Replicate; },
                        [](const Shard&) { return PlacementKind::Shard; },
                        [](const Partial&) { return PlacementKind::Partial; },
                        [](const MaskPartial&) { return PlacementKind::MaskPartial; },
                    },
                    placement);
}

bool is_replicate(const Placement& placement) {
  return std::visit(Overloaded{
                        [](const Replicate&) { return true; },
                        [](const Shard&) { return false; },
                        [](const Partial&) { return false; },
                        [](const MaskPartial&) { return false; },
                    },
                    placement);
}

const Shard* as_shard(const Placement& placement) {
  return std::visit(Overloaded{
                        [](const Replicate&) -> const Shard* { return nullptr; },
                        [](const Shard& shard) { return &shard; },
                        [](const Partial&) -> const Shard* { return nullptr; },
                        [](const MaskPartial&) -> const Shard* { return nullptr; },
                    },
                    placement);
}

std::optional<ReduceOp> owed_reduction(const Placement& placement) {
  using Owed = std::optional<ReduceOp>;
  return std::visit(Overloaded{
                        [](const Replicate&) -> Owed { return std::nullopt; },
                        [](const Shard&) -> Owed { return std::nullopt; },
                        [](const Partial& partial) -> Owed { return partial.op(); },
                        [](const MaskPartial&) -> Owed { return ReduceOp::Sum; },
                    },
                    placement);
}

bool same_but_for_cut(const Placement& a, const Placement& b) {
  const Shard* cut_a = as_shard(a);
  const Shard* cut_b = as_shard(b);
  return cut_a && cut_b ? cut_a->dim() == cut_b->dim() : a == b;
}

std::size_t hash_of(const Placement& placement) {
  Hasher hasher;
  hasher.add(placement.index());
  std::visit(
      Overloaded{
          [](const Replicate&) {},
          [&](const Shard& shard) {
            hasher.add(static_cast<std::uint64_t>(shard.dim()));
            if (!shard.cut().is_even()) hasher.add(shard.cut().hash());
          },
          [&](const Partial& partial) { hasher.add(static_cast<std::uint64_t>(partial.op())); },
          [&](const MaskPartial& mask) { hasher.add(static_cast<std::uint64_t>(mask.extent())); },
      },
      placement);
  return hasher.result();
}

std::string to_string(const Placement& placement) {
  return std::visit(
      Overloaded{
          [](const Replicate&) -> std::string { return "R"; },
          [](const Shard& shard) {
            return "S(" + std::to_string(shard.dim()) + to_string(shard.cut()) + ")";
          },
          [](const Partial& partial) { return "P(" + std::string(name_of(partial.op())) + ")"; },
          [](const MaskPartial& mask) { return "M(" + std::to_string(mask.extent()) + ")"; },
      },
      placement);
}

std::string to_string(const Placements& placements) {
  std::vector<std::string> texts;
  for (const Placement& placement : placements) texts.push_back(to_string(placement));
  return "[" + join(texts) + "]";
}

std::ostream& operator<<(std::ostream& out, const Placement& placement) {
  return out << to_string(placement);
}

Placement parse_placement(Scanner& scan) {
  if (scan.accept_word("R")) return Replicate();
  if (scan.accept_word("S")) {
    scan.expect("(");
    const std::int64_t dim = scan.integer();
    Cut cut = parse_cut(scan);
    scan.expect(")");
    return Shard(dim, std::move(cut));
  }
  if (scan.accept_word("P")) {
    if (!scan.accept("(")) return Partial();
    const ReduceOp op = parse_reduce_op(scan.identifier());
    scan.expect(")");
    return Partial(op);
  }
  if (scan.accept_word("M")) {
    scan.expect("(");
    const std::int64_t extent = scan.integer();
    scan.expect(")");
    return MaskPartial(extent);
  }
  scan.fail("R, S(...), P(...) or M(...)");
}

Placement parse_placement(std::string_view text) {
  Scanner scan(text, "a placement", kForm);
  Placement placement = parse_placement(scan);
  scan.expect_end();
  return placement;
}

Placements parse_placements(std::string_view text) {
  Scanner scan(text, "placements", kListForm);
  const bool bracketed_list = scan.accept("[");
  Placements placements;
  const auto at_close = [&] { return bracketed_list ? scan.next_is("]") : scan.at_end(); };
  if (!at_close()) {
    do {
      placements.push_back(parse_placement(scan));
    } while (scan.accept(","));
  }
  if (bracketed_list) scan.expect("]");
  scan.expect_end();
  return placements;
}

}  // namespace tegula
