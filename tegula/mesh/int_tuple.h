// IntTuple: a whole number, or a list of IntTuples. Shapes, strides and coordinates are such
// values.
//
//   5    (2, 3)    (2, (3, 4))    ()
//
// Immutable, cheap to copy (copies share their items), safe to read from any thread. At most 64
// levels deep and 65,536 parts in all; whatever would exceed that is a UsageError.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tegula/base/text.h"

namespace tegula {

class IntTuple {
 public:
  // The empty tuple ().
  IntTuple();
  // IntTuple(3) is the number 3. IntTuple{3} is the tuple (3), as IntTuple{2, {3, 4}} is a tuple.
  IntTuple(std::int64_t value) : value_(value) {}
  IntTuple(std::initializer_list<IntTuple> items) : IntTuple(std::vector<IntTuple>(items)) {}
  explicit IntTuple(std::vector<IntTuple> items);
  explicit IntTuple(const std::vector<std::int64_t>& values);

  bool is_int() const { return list_ == nullptr; }
  // The number; 0 for a tuple.
  std::int64_t value() const { return value_; }
  // The items of a tuple; a number is its own single item. Lives as long as this tuple.
  std::span<const IntTuple> items() const&;
  std::span<const IntTuple> items() && = delete;

  // How many items: 1 for a number, 0 for ().
  std::int64_t rank() const { return static_cast<std::int64_t>(items().size()); }
  // How many levels: 0 for a number, 1 for () and (2, 3), 2 for (2, (3, 4)).
  std::int64_t depth() const;
  // All numbers multiplied; 1 for (). A product beyond 63 bits is a UsageError.
  std::int64_t product() const;

  // Same nesting and same numbers: 3 is not (3).
  bool operator==(const IntTuple& other) const;

 private:
  struct List;

  std::int64_t value_ = 0;
  std::shared_ptr<const List> list_;
};

// The numbers from left to right: (2, (3, 4)) -> {2, 3, 4}.
std::vector<std::int64_t> flatten(const IntTuple& tuple);
// The profile with its numbers, from left to right, replaced by the leaves (numbers or tuples).
// Law: replace_leaves(t, flatten(t)) == t. The wrong number of leaves is a UsageError.
IntTuple replace_leaves(const IntTuple& profile, const std::vector<IntTuple>& leaves);
// Same nesting, whatever the numbers.
bool congruent(const IntTuple& a, const IntTuple& b);

// A shape has sizes of at least 1 and a product within 63 bits; anything else is a UsageError, also
// in the two functions below.
void check_sizes(const IntTuple& shape);
// The strides of a shape stored without gaps, the last number running fastest:
// (2, (3, 4)) -> (12, (4, 1)).
IntTuple row_major_stride(const IntTuple& shape);
// The place of a coordinate in that order. The coordinate has one item per item of the shape, each
// again a coordinate or simply an index: in (2, (3, 4)), (1, (2, 3)) and (1, 11) are both 23. What
// is not in the shape is a UsageError.
std::int64_t index_of(const IntTuple& shape, const IntTuple& coordinate);

// "(2, (3, 4))". Law: parse_int_tuple(to_string(t)) == t.
std::string to_string(const IntTuple& tuple);
IntTuple parse_int_tuple(std::string_view text);
// Reads one IntTuple and leaves what follows it.
IntTuple read_int_tuple(Scanner& scan);

}  // namespace tegula

template <>
struct std::hash<tegula::IntTuple> {
  std::size_t operator()(const tegula::IntTuple& tuple) const noexcept;
};
