// Layout: a function from indices to offsets, written shape:stride.
//
//   (2, 3):(3, 1)    0 1 2 3 4 5      two rows of three, one after the other
//   (2, 3):(1, 2)    0 2 4 1 3 5      the same sizes, stored by columns
//   (2, (3, 4)):(12, (4, 1))          modes may nest
//
// The items of the shape are the modes. Index and coordinate are related lexicographically, the
// last mode running fastest, as in a torch tensor. A leaf is one size:stride pair; the offset of a
// coordinate is the sum of leaf coordinate times leaf stride. So, as a function of the index, a
// layout depends on its leaves from left to right and not on their nesting.
//
// A layout is an immutable value, safe to read from any thread. Sizes are at least 1, strides at
// least 0, and size and cosize fit in 63 bits: what would break that is a UsageError, in every
// constructor and operation. Every operation returns a layout for which its law holds, or throws
// UsageError. Costs are in leaves, at most 62 of which have a size above 1, and not in the size,
// unless said otherwise.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tegula/mesh/int_tuple.h"

namespace tegula {

struct Leaf {
  std::int64_t size = 1;
  std::int64_t stride = 0;

  bool operator==(const Leaf&) const = default;
};

class Layout {
 public:
  // ():(), which has one index and sends it to 0: a tensor without dims.
  Layout() : Layout(IntTuple()) {}
  // Row-major without gaps: the last leaf has stride 1. Layout(6) is 6:1, the identity on 0 ... 5;
  // Layout(IntTuple{2, 3}) is (2, 3):(3, 1).
  explicit Layout(const IntTuple& shape);
  // Layout({2, 3}, {1, 2}). The stride must nest as the shape does.
  explicit Layout(IntTuple shape, IntTuple stride);

  const IntTuple& shape() const { return shape_; }
  const IntTuple& stride() const { return stride_; }
  const std::vector<Leaf>& leaves() const { return leaves_; }  // slowest first
  std::int64_t rank() const { return shape_.rank(); }
  std::int64_t depth() const { return shape_.depth(); }

  // The number of indices.
  std::int64_t size() const { return size_; }
  // One more than the greatest offset.
  std::int64_t cosize() const { return cosize_; }

  // Mode i by itself; mode 0 of a layout that is a single leaf n:d is that layout.
  Layout mode(std::int64_t i) const;

  // The offset of an index in 0 ... size() - 1.
  std::int64_t operator()(std::int64_t index) const;
  // The offset of a coordinate, which has one item per mode. Each item is again a coordinate of the
  // mode or simply an index into it: for (2, (3, 4)), {1, {2, 3}} and {1, 11} are the same.
  std::int64_t operator()(const IntTuple& coordinate) const;

  // Same shape and same stride. For equality as functions compare what coalesce returns.
  bool operator==(const Layout& other) const {
    return shape_ == other.shape_ && stride_ == other.stride_;
  }

 private:
  IntTuple shape_;
  IntTuple stride_;
  std::vector<Leaf> leaves_;
  std::int64_t size_ = 1;
  std::int64_t cosize_ = 1;
};

// "(2, (3, 4)):(12, (4, 1))". Law: parse_layout(to_string(A)) == A.
std::string to_string(const Layout& layout);
Layout parse_layout(std::string_view text);

// Whether no two indices share an offset. Leaves sorted by stride are peeled off from the greatest
// while each steps over all that is below it; what cannot be peeled is enumerated, n indices in
// O(n log n) time and O(n) memory, and refused above n = 2^22.
bool is_injective(const Layout& layout);

// ---- regrouping ----

// The layout whose mode k is the k-th part.
// Law: concatenate({A, B, ...})({a, b, ...}) == A(a) + B(b) + ...
Layout concatenate(const std::vector<Layout>& parts);

// The chosen modes in the given order, each at most once.
// Law: select(A, {i, j, ...}) == concatenate({A.mode(i), A.mode(j), ...})
Layout select(const Layout& layout, const std::vector<std::int64_t>& modes);

// The same leaves without nesting. Law: flatten(A)(i) == A(i).
Layout flatten(const Layout& layout);

// The same function in the fewest leaves, without nesting; the constant one is 1:0.
// Law: coalesce(A)(i) == A(i), and A and B are the same function iff coalesce(A) == coalesce(B).
Layout coalesce(const Layout& layout);

// Some modes held at an index, the others left free.
// Law: A({c0, c1, ...}) == offset + layout(the items of the free modes).
struct LayoutSlice {
  Layout layout;  // the free modes, in order
  std::int64_t offset = 0;
};
LayoutSlice slice(const Layout& layout, const std::vector<std::optional<std::int64_t>>& coordinate);

// ---- composition and inverses ----

// A after B. The shape refines B's: a leaf of B may become several, so that every coordinate of B
// is one of the result. B must stay inside A: cosize(B) <= size(A).
// Law: compose(A, B)(i) == A(B(i)) for all i < size(B).
// Refused if adding up B's terms would carry from one leaf of coalesce(A) into the next, for then
// the sum of the offsets is not the offset of the sum. When A has at most two coalesced leaves, no
// layout of such a shape exists then; with more, several carries can cancel out by chance, and
// such compositions are refused all the same.
// Cost: leaves(A) * leaves(B) * log(size).
Layout compose(const Layout& a, const Layout& b);

// What A leaves out of 0 ... bound - 1, as the starting points of copies of A, in ascending order.
// Law: concatenate({complement(A, bound), A}) is a bijection on 0 ... bound - 1.
// Exists, and is found, iff with A's leaves sorted by stride size * stride of each divides the next
// one's stride, and the last one's divides the bound; else refused. In particular A is injective.
Layout complement(const Layout& layout, std::int64_t bound);

// Law: A(right_inverse(A)(i)) == i for all i < size(right_inverse(A)).
// Follows the strides 1, n0, n0 * n1, ... as far as A's leaves have them; if A is a bijection on
// 0 ... size - 1, all the way, and then it is the inverse. Never refused; 1:0 if no stride is 1.
Layout right_inverse(const Layout& layout);

// Law: left_inverse(A)(A(i)) == i for all i < size(A); its size is at least cosize(A).
// Refused unless, with A's leaves sorted by stride, each stride divides the next one and steps over
// the leaf before it. In particular A is injective.
Layout left_inverse(const Layout& layout);

// ---- division and product ----
// A tile is a layout of places among the indices of another. Results have the outer part first,
// since it runs slowest: (which tile, which place in the tile).

// A's indices as copies of a tile. Refused as complement and compose are.
// Law: logical_divide(A, T)({r, t}) == A(complement(T, size(A))(r) + T(t)).
Layout logical_divide(const Layout& layout, const Layout& tile);

// Each mode divided by its own tile, the outer and the inner parts gathered.
// Law: zipped_divide(A, {T0, T1, ...})({{r0, r1, ...}, {t0, t1, ...}}) ==
//      logical_divide(A.mode(0), T0)({r0, t0}) + logical_divide(A.mode(1), T1)({r1, t1}) + ...
Layout zipped_divide(const Layout& layout, const std::vector<Layout>& tiles);

// Copies of A laid out by B, without overlap: gaps in A are filled first.
// Law: logical_product(A, B)({b, a}) == C(B(b)) + A(a), where C is the complement of A up to the
// least bound that leaves room for cosize(B) copies. Refused as complement and compose are.
Layout logical_product(const Layout& layout, const Layout& copies);

// The product of layouts of one rank, mode by mode: a matrix of blocks as one matrix.
// Law: blocked_product(A, B)({{b0, a0}, {b1, a1}, ...}) ==
//      logical_product(A, B)({{b0, b1, ...}, {a0, a1, ...}}).
Layout blocked_product(const Layout& block, const Layout& blocks);

}  // namespace tegula

template <>
struct std::hash<tegula::Layout> {
  std::size_t operator()(const tegula::Layout& layout) const noexcept;
};
