// A tree of numbers behind a shared pointer. Each list knows its depth and its number of parts when
// it is made, so the limits are checked once and every recursion below is at most 64 calls deep.
#include "tegula/mesh/int_tuple.h"

#include <algorithm>
#include <utility>

#include "tegula/base/error.h"
#include "tegula/base/hash.h"

namespace tegula {

using namespace inner;

namespace {

constexpr std::int64_t kMostLevels = 64;
constexpr std::int64_t kMostParts = 65'536;

void append_leaves(const IntTuple& tuple, std::vector<std::int64_t>& leaves) {
  if (tuple.is_int()) {
    leaves.push_back(tuple.value());
    return;
  }
  for (const IntTuple& item : tuple.items()) append_leaves(item, leaves);
}

IntTuple take_leaves(const IntTuple& profile, std::span<const IntTuple>& leaves) {
  if (profile.is_int()) {
    IntTuple leaf = leaves.front();
    leaves = leaves.subspan(1);
    return leaf;
  }
  std::vector<IntTuple> items;
  for (const IntTuple& item : profile.items()) items.push_back(take_leaves(item, leaves));
  return IntTuple(std::move(items));
}

[[noreturn]] void refuse_coordinate(const IntTuple& shape, const IntTuple& coordinate) {
  throw UsageError("no coordinate " + to_string(coordinate) + " in shape " + to_string(shape))
      .hint("give one item per mode, each from 0 to the size of its mode less 1");
}

IntTuple read_levels(Scanner& scan, std::int64_t levels_left) {
  if (!scan.next_is("(")) {
    if (!scan.next_is_integer()) scan.fail("a whole number or \"(\"");
    return IntTuple(scan.integer());
  }
  if (levels_left == 0) {
    scan.fail("at most " + std::to_string(kMostLevels) + " levels of parentheses");
  }
  scan.expect("(");
  std::vector<IntTuple> items;
  if (scan.accept(")")) return IntTuple(std::move(items));
  do {
    items.push_back(read_levels(scan, levels_left - 1));
  } while (scan.accept(","));
  scan.expect(")");
  return IntTuple(std::move(items));
}

void add_to_hash(const IntTuple& tuple, Hasher& hasher) {
  if (tuple.is_int()) {
    hasher.add(0).add(static_cast<std::uint64_t>(tuple.value()));
    return;
  }
  hasher.add(1 + tuple.items().size());
  for (const IntTuple& item : tuple.items()) add_to_hash(item, hasher);
}

}  // namespace

struct IntTuple::List {
  std::vector<IntTuple> items;
  std::int64_t depth = 1;
  std::int64_t parts = 1;  // this list and everything in it
};

IntTuple::IntTuple() : IntTuple(std::vector<IntTuple>{}) {}

IntTuple::IntTuple(std::vector<IntTuple> items) {
  auto list = std::make_shared<List>();
  for (const IntTuple& item : items) {
    list->depth = std::max(list->depth, item.depth() + 1);
    list->parts += item.is_int() ? 1 : item.list_->parts;
    if (list->depth > kMostLevels || list->parts > kMostParts) {
      throw UsageError("cannot make a tuple of more than " + std::to_string(kMostLevels) +
                       " levels or " + std::to_string(kMostParts) + " parts")
          .fact("items", std::to_string(items.size()))
          .hint("flatten or coalesce before nesting further");
    }
  }
  list->items = std::move(items);
  list_ = std::move(list);
}

IntTuple::IntTuple(const std::vector<std::int64_t>& values)
    : IntTuple(std::vector<IntTuple>(values.begin(), values.end())) {}

std::span<const IntTuple> IntTuple::items() const& {
  return is_int() ? std::span(this, 1) : std::span(list_->items);
}

std::int64_t IntTuple::depth() const { return is_int() ? 0 : list_->depth; }

std::int64_t IntTuple::product() const {
  std::int64_t result = 1;
  bool overflow = false;
  const std::vector<std::int64_t> factors = flatten(*this);
  if (std::find(factors.begin(), factors.end(), 0) != factors.end()) return 0;
  for (std::int64_t factor : factors) {
    overflow = overflow || __builtin_mul_overflow(result, factor, &result);
  }
  if (!overflow) return result;
  throw UsageError("the product of " + to_string(*this) + " does not fit in 63 bits")
      .hint("sizes and offsets go up to 9223372036854775807");
}

bool IntTuple::operator==(const IntTuple& other) const {
  if (is_int() || other.is_int()) {
    return is_int() == other.is_int() && value_ == other.value_;
  }
  return list_ == other.list_ || std::ranges::equal(list_->items, other.list_->items);
}

void check_sizes(const IntTuple& shape) {
  for (std::int64_t size : flatten(shape)) {
    if (size < 1) {
      throw UsageError("size " + std::to_string(size) + " is less than 1")
          .fact("shape", to_string(shape))
          .hint("a shape holds at least one index");
    }
  }
  static_cast<void>(shape.product());  // throws if it does not fit
}

std::vector<std::int64_t> flatten(const IntTuple& tuple) {
  std::vector<std::int64_t> leaves;
  append_leaves(tuple, leaves);
  return leaves;
}

IntTuple replace_leaves(const IntTuple& profile, const std::vector<IntTuple>& leaves) {
  const std::size_t wanted = flatten(profile).size();
  if (wanted != leaves.size()) {
    throw UsageError("cannot replace the numbers of " + to_string(profile) + " by " +
                     std::to_string(leaves.size()))
        .hint("give " + std::to_string(wanted) + ", one for each number");
  }
  std::span<const IntTuple> rest = leaves;
  return take_leaves(profile, rest);
}

bool congruent(const IntTuple& a, const IntTuple& b) {
  if (a.is_int() || b.is_int()) return a.is_int() == b.is_int();
  return std::ranges::equal(a.items(), b.items(), congruent);
}

IntTuple row_major_stride(const IntTuple& shape) {
  check_sizes(shape);
  std::vector<std::int64_t> values = flatten(shape);
  std::int64_t stride = 1;
  for (auto leaf = values.rbegin(); leaf != values.rend(); ++leaf) {
    stride *= std::exchange(*leaf, stride);
  }
  return replace_leaves(shape, std::vector<IntTuple>(values.begin(), values.end()));
}

std::int64_t index_of(const IntTuple& shape, const IntTuple& coordinate) {
  check_sizes(shape);
  if (coordinate.is_int()) {
    const std::int64_t index = coordinate.value();
    if (index < 0 || index >= shape.product()) refuse_coordinate(shape, coordinate);
    return index;
  }
  if (shape.is_int() || shape.rank() != coordinate.rank()) refuse_coordinate(shape, coordinate);
  std::int64_t index = 0;
  for (std::size_t i = 0; i < shape.items().size(); ++i) {
    const IntTuple& mode = shape.items()[i];
    index = index * mode.product() + index_of(mode, coordinate.items()[i]);
  }
  return index;
}

std::string to_string(const IntTuple& tuple) {
  if (tuple.is_int()) return std::to_string(tuple.value());
  std::vector<std::string> texts;
  for (const IntTuple& item : tuple.items()) texts.push_back(to_string(item));
  return "(" + join(texts) + ")";
}

IntTuple read_int_tuple(Scanner& scan) { return read_levels(scan, kMostLevels); }

IntTuple parse_int_tuple(std::string_view text) {
  Scanner scan(text, "a tuple of whole numbers", "(2, (3, 4))");
  IntTuple tuple = read_int_tuple(scan);
  scan.expect_end();
  return tuple;
}

}  // namespace tegula

std::size_t std::hash<tegula::IntTuple>::operator()(const tegula::IntTuple& tuple) const noexcept {
  tegula::inner::Hasher hasher;
  tegula::add_to_hash(tuple, hasher);
  return hasher.result();
}
