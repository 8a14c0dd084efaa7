#include "tegula/placement/placement.h"

#include <ostream>

#include "tegula/base/error.h"
#include "tegula/base/hash.h"
#include "tegula/base/text.h"

namespace tegula {
namespace {

constexpr std::string_view kForm =
    "R, S(0), S(0, sizes=[3, 1, 4]), S(0, blocks=2), P(sum) or M(1000)";
constexpr std::string_view kListForm = "[R, S(0)]";

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};

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

std::optional<ReduceOp> owed_reduction(const Placement& placement) {
  if (const auto* partial = std::get_if<Partial>(&placement)) return partial->op();
  if (std::holds_alternative<MaskPartial>(placement)) return ReduceOp::Sum;
  return std::nullopt;
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
