// A cut is two lists, of blocks and of sizes, checked once when it is made; even if both are empty.
#include "tegula/placement/cut.h"

#include "tegula/base/error.h"
#include "tegula/base/hash.h"
#include "tegula/base/text.h"

namespace tegula {

using namespace inner;

namespace {

constexpr const char* kForms =
    "sizes=[3, 1, 4] has one size per rank; blocks=2 cuts two runs alike";

void check_blocks(const std::vector<std::int64_t>& blocks) {
  for (std::int64_t count : blocks) {
    if (count < 1) {
      throw UsageError("a cut needs at least one block per piece, not " + std::to_string(count))
          .fact("blocks", bracketed(blocks))
          .hint("leave blocks out for a plain cut");
    }
  }
}

void check_rows(const std::vector<std::vector<std::int64_t>>& rows) {
  for (const auto& row : rows) {
    if (row.empty() || row.size() != rows.front().size()) {
      throw UsageError("every piece needs the same number of shard sizes, at least one")
          .fact("sizes", bracketed(rows.front()) + " against " + bracketed(row))
          .hint(kForms);
    }
    for (std::int64_t size : row) {
      if (size < 0) {
        throw UsageError("a shard cannot have " + std::to_string(size) + " elements")
            .fact("sizes", bracketed(row))
            .hint("sizes are 0 or more");
      }
    }
  }
}

std::vector<std::vector<std::int64_t>> parse_rows(Scanner& scan) {
  std::vector<std::vector<std::int64_t>> rows;
  scan.expect("[");
  if (!scan.next_is("[")) return {scan.integers_until("]")};
  do {
    scan.expect("[");
    rows.push_back(scan.integers_until("]"));
  } while (scan.accept(","));
  scan.expect("]");
  return rows;
}

}  // namespace

Cut::Cut(std::vector<std::int64_t> blocks, std::vector<std::vector<std::int64_t>> sizes)
    : blocks_(std::move(blocks)), sizes_(std::move(sizes)) {
  check_blocks(blocks_);
  check_rows(sizes_);
  if (blocks_ == std::vector<std::int64_t>{1}) blocks_.clear();
}

Cut Cut::ragged(std::vector<std::int64_t> sizes) { return Cut({}, {std::move(sizes)}); }

Cut Cut::ragged_per_piece(std::vector<std::vector<std::int64_t>> sizes) {
  return Cut({}, std::move(sizes));
}

Cut Cut::in_blocks(std::int64_t blocks) { return Cut({blocks}, {}); }

std::int64_t Cut::blocks_of(std::int64_t piece) const {
  if (blocks_.empty()) return 1;
  return blocks_[blocks_.size() == 1 ? 0 : static_cast<std::size_t>(piece)];
}

const std::vector<std::int64_t>* Cut::sizes_of(std::int64_t piece) const {
  if (sizes_.empty()) return nullptr;
  return &sizes_[sizes_.size() == 1 ? 0 : static_cast<std::size_t>(piece)];
}

std::size_t Cut::hash() const {
  Hasher hasher;
  hasher.add_all(blocks_).add(sizes_.size());
  for (const auto& row : sizes_) hasher.add_all(row);
  return hasher.result();
}

std::string to_string(const Cut& cut) {
  std::string text;
  if (cut.blocks().size() == 1) text += ", blocks=" + std::to_string(cut.blocks().front());
  if (cut.blocks().size() > 1) text += ", blocks=" + bracketed(cut.blocks());
  if (cut.sizes().size() == 1) text += ", sizes=" + bracketed(cut.sizes().front());
  if (cut.sizes().size() > 1) {
    std::vector<std::string> rows;
    for (const auto& row : cut.sizes()) rows.push_back(bracketed(row));
    text += ", sizes=[" + join(rows) + "]";
  }
  return text;
}

Cut parse_cut(Scanner& scan) {
  std::vector<std::int64_t> blocks;
  std::vector<std::vector<std::int64_t>> sizes;
  bool has_blocks = false;
  while (scan.accept(",")) {
    if (!has_blocks && sizes.empty() && scan.accept_word("blocks")) {
      has_blocks = true;
      scan.expect("=");
      if (scan.accept("[")) {
        if (scan.next_is("]")) scan.fail("a number of blocks");
        blocks = scan.integers_until("]");
      } else {
        blocks = {scan.integer()};
      }
    } else if (sizes.empty() && scan.accept_word("sizes")) {
      scan.expect("=");
      sizes = parse_rows(scan);
    } else {
      scan.fail("blocks= or sizes=");
    }
  }
  return Cut(std::move(blocks), std::move(sizes));
}

}  // namespace tegula
