// Everything here is arithmetic on leaves, read as digits of a mixed radix. An index into sizes
// (s0, s1, ..., sn) has digits (c0, c1, ..., cn), the last one worth 1, the one before worth sn,
// and so on; its offset is the sum of digit times stride. Two ideas do the work.
//
// compose: A is linear as long as adding indices carries from no digit into the next. So a leaf n:d
// of B is cut where multiples of d first carry, and the digits of all cut leaves together must fit.
//
// complement: leaves that together fill 0 ... bound - 1 are digits as well. Sorted by stride, each
// stride is the one before times its size; what is missing between them is the answer.
#include "tegula/mesh/layout.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "tegula/base/error.h"
#include "tegula/base/hash.h"

namespace tegula {

using namespace inner;

namespace {

constexpr std::int64_t kMostEnumerated = std::int64_t{1} << 22;
constexpr const char* kDigitsHint =
    "size times stride of each leaf must divide the next greater stride";

[[noreturn]] void refuse_layout(const std::string& why, const IntTuple& shape,
                                const IntTuple& stride, const std::string& hint) {
  throw UsageError("cannot make a layout: " + why)
      .fact("shape", to_string(shape))
      .fact("stride", to_string(stride))
      .hint(hint);
}

std::vector<Leaf> checked_leaves(const IntTuple& shape, const IntTuple& stride) {
  check_sizes(shape);
  if (!congruent(shape, stride)) {
    refuse_layout("shape and stride do not nest alike", shape, stride,
                  "give one stride for each size, like (2, (3, 4)):(12, (4, 1))");
  }
  const std::vector<std::int64_t> sizes = flatten(shape);
  const std::vector<std::int64_t> strides = flatten(stride);
  std::vector<Leaf> leaves;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (strides[i] < 0) {
      refuse_layout("stride " + std::to_string(strides[i]) + " is negative", shape, stride,
                    "strides are 0 or more");
    }
    leaves.push_back({sizes[i], strides[i]});
  }
  return leaves;
}

std::optional<std::int64_t> cosize_of(const std::vector<Leaf>& leaves) {
  std::int64_t cosize = 1;
  for (const Leaf& leaf : leaves) {
    std::int64_t reach = 0;
    if (__builtin_mul_overflow(leaf.size - 1, leaf.stride, &reach)) return std::nullopt;
    if (__builtin_add_overflow(cosize, reach, &cosize)) return std::nullopt;
  }
  return cosize;
}

Layout flat_layout(const std::vector<Leaf>& leaves) {
  if (leaves.empty()) return Layout(1, 0);
  if (leaves.size() == 1) return Layout(leaves[0].size, leaves[0].stride);
  std::vector<IntTuple> sizes;
  std::vector<IntTuple> strides;
  for (const Leaf& leaf : leaves) {
    sizes.emplace_back(leaf.size);
    strides.emplace_back(leaf.stride);
  }
  return Layout(IntTuple(std::move(sizes)), IntTuple(std::move(strides)));
}

std::vector<Layout> modes_of(const Layout& layout) {
  std::vector<Layout> modes;
  modes.reserve(static_cast<std::size_t>(layout.rank()));
  for (std::int64_t i = 0; i < layout.rank(); ++i) modes.push_back(layout.mode(i));
  return modes;
}

// A leaf and what a step in it is worth in the index.
struct PlacedLeaf {
  std::int64_t size = 1;
  std::int64_t stride = 0;
  std::int64_t worth = 1;
};

// Smallest stride first, without the leaves of size 1.
std::vector<PlacedLeaf> sorted_leaves(const Layout& layout) {
  std::vector<PlacedLeaf> sorted;
  std::int64_t worth = 1;
  for (auto leaf = layout.leaves().rbegin(); leaf != layout.leaves().rend(); ++leaf) {
    if (leaf->size > 1) sorted.push_back({leaf->size, leaf->stride, worth});
    worth *= leaf->size;
  }
  std::ranges::stable_sort(sorted, {}, &PlacedLeaf::stride);
  return sorted;
}

bool offsets_repeat(const std::vector<PlacedLeaf>& leaves) {
  std::vector<std::int64_t> offsets = {0};
  for (const PlacedLeaf& leaf : leaves) {
    const std::size_t count = offsets.size();
    for (std::int64_t step = 1; step < leaf.size; ++step) {
      for (std::size_t i = 0; i < count; ++i) offsets.push_back(offsets[i] + step * leaf.stride);
    }
  }
  std::ranges::sort(offsets);
  return std::ranges::adjacent_find(offsets) != offsets.end();
}

// Whether slow:... right above fast:... is one leaf cut in two.
bool continues(const Leaf& slow, const Leaf& fast) {
  if (fast.stride == 0) return slow.stride == 0;
  return slow.stride % fast.stride == 0 && slow.stride / fast.stride == fast.size;
}

std::vector<std::int64_t> digits_of(std::int64_t index, const std::vector<Leaf>& radix) {
  std::vector<std::int64_t> digits(radix.size());
  for (std::size_t i = radix.size(); i-- > 0;) {
    digits[i] = index % radix[i].size;
    index /= radix[i].size;
  }
  return digits;
}

// How many of 0, step, 2 * step, ... there are until one carries out of a digit. The slowest digit,
// number 0, has no next one. At least 2 for a step below the product of the radix.
std::int64_t run_until_carry(std::int64_t step, const std::vector<Leaf>& radix) {
  const std::vector<std::int64_t> digits = digits_of(step, radix);
  std::int64_t run = std::numeric_limits<std::int64_t>::max();
  for (std::size_t i = 1; i < radix.size(); ++i) {
    if (digits[i] > 0) run = std::min(run, (radix[i].size - 1) / digits[i] + 1);
  }
  return run;
}

// The leaf as leaves, slowest first, none of which carries; nullopt if a carry falls amid a leaf.
std::optional<std::vector<Leaf>> cut_at_carries(Leaf leaf, const std::vector<Leaf>& radix) {
  std::vector<Leaf> cuts;
  while (leaf.size > 1) {
    const std::int64_t run = std::min(leaf.size, run_until_carry(leaf.stride, radix));
    if (leaf.size % run != 0) return std::nullopt;
    cuts.push_back({run, leaf.stride});
    leaf.size /= run;
    if (leaf.size > 1) leaf.stride *= run;  // still inside the radix, since the leaf is
  }
  std::ranges::reverse(cuts);
  return cuts;
}

// Adds the greatest digits that the leaf reaches; false if they no longer fit.
bool add_digits(const Leaf& leaf, const std::vector<Leaf>& radix, std::vector<std::int64_t>& sums) {
  const std::vector<std::int64_t> digits = digits_of(leaf.stride, radix);
  for (std::size_t i = 1; i < radix.size(); ++i) {
    sums[i] += (leaf.size - 1) * digits[i];
    if (sums[i] >= radix[i].size) return false;
  }
  return true;
}

[[noreturn]] void refuse_composition(const Layout& a, const Layout& b, const std::string& why,
                                     const std::string& hint) {
  throw UsageError("cannot compose " + to_string(a) + " with " + to_string(b) + ": " + why)
      .fact("first", to_string(a) + " with " + counted(a.size(), "index", "indices"))
      .fact("second", to_string(b) + " with offsets up to " + std::to_string(b.cosize() - 1))
      .hint(hint);
}

// What is missing between the leaves of a layout, slowest first, and the length after which the
// whole repeats.
struct Gaps {
  std::vector<Leaf> leaves;
  std::int64_t period = 1;
};

// nullopt if the sorted leaves are no digits.
std::optional<Gaps> gaps_of(const Layout& layout) {
  Gaps gaps;
  for (const PlacedLeaf& leaf : sorted_leaves(layout)) {
    if (leaf.stride == 0 || leaf.stride % gaps.period != 0) return std::nullopt;
    if (leaf.stride > gaps.period) {
      gaps.leaves.insert(gaps.leaves.begin(), {leaf.stride / gaps.period, gaps.period});
    }
    if (__builtin_mul_overflow(leaf.stride, leaf.size, &gaps.period)) return std::nullopt;
  }
  return gaps;
}

// The gaps, and on top of them whole periods.
Layout fill(Gaps gaps, std::int64_t periods) {
  if (periods > 1) gaps.leaves.insert(gaps.leaves.begin(), {periods, gaps.period});
  return flat_layout(gaps.leaves);
}

[[noreturn]] void refuse(const Layout& layout, const std::string& sentence,
                         const std::string& hint) {
  throw UsageError(sentence).fact("layout", to_string(layout)).hint(hint);
}

// Why the sorted leaves of a layout are no digits.
std::string flaw_of(const Layout& layout) {
  for (const Leaf& leaf : layout.leaves()) {
    if (leaf.size > 1 && leaf.stride == 0) return "a stride of 0 makes offsets repeat";
  }
  return "its leaves, sorted by stride, do not fit into each other";
}

}  // namespace

Layout::Layout(const IntTuple& shape) : Layout(shape, row_major_stride(shape)) {}

Layout::Layout(IntTuple shape, IntTuple stride)
    : shape_(std::move(shape)),
      stride_(std::move(stride)),
      leaves_(checked_leaves(shape_, stride_)),
      size_(shape_.product()) {
  const std::optional<std::int64_t> cosize = cosize_of(leaves_);
  if (!cosize) {
    refuse_layout("the greatest offset does not fit in 63 bits", shape_, stride_,
                  "offsets go up to 9223372036854775806");
  }
  cosize_ = *cosize;
}

Layout Layout::mode(std::int64_t i) const {
  if (i < 0 || i >= rank()) {
    refuse(*this, "no mode " + std::to_string(i) + " in a layout of rank " + std::to_string(rank()),
           "modes count from 0");
  }
  const auto place = static_cast<std::size_t>(i);
  return Layout(shape_.items()[place], stride_.items()[place]);
}

std::int64_t Layout::operator()(std::int64_t index) const {
  if (index < 0 || index >= size_) {
    refuse(*this,
           "no index " + std::to_string(index) + " in a layout of size " + std::to_string(size_),
           "indices are 0 ... " + std::to_string(size_ - 1));
  }
  std::int64_t offset = 0;
  for (auto leaf = leaves_.rbegin(); leaf != leaves_.rend(); ++leaf) {
    offset += index % leaf->size * leaf->stride;
    index /= leaf->size;
  }
  return offset;
}

std::int64_t Layout::operator()(const IntTuple& coordinate) const {
  return (*this)(index_of(shape_, coordinate));
}

std::string to_string(const Layout& layout) {
  return to_string(layout.shape()) + ":" + to_string(layout.stride());
}

Layout parse_layout(std::string_view text) {
  Scanner scan(text, "a layout", "(2, 3):(3, 1)");
  IntTuple shape = read_int_tuple(scan);
  scan.expect(":");
  IntTuple stride = read_int_tuple(scan);
  scan.expect_end();
  return Layout(std::move(shape), std::move(stride));
}

bool is_injective(const Layout& layout) {
  std::vector<PlacedLeaf> rest = sorted_leaves(layout);
  std::int64_t size = layout.size();
  std::int64_t cosize = layout.cosize();
  while (!rest.empty()) {
    const PlacedLeaf top = rest.back();
    const std::int64_t cosize_below = cosize - (top.size - 1) * top.stride;
    if (top.stride < cosize_below) break;
    rest.pop_back();
    cosize = cosize_below;
    size /= top.size;
  }
  if (rest.empty()) return true;
  if (rest.front().stride == 0 || size > cosize) return false;
  if (size > kMostEnumerated) {
    refuse(layout,
           "cannot tell whether the layout is injective without enumerating " +
               std::to_string(size) + " indices",
           "use strides that step over the leaves of smaller stride");
  }
  return !offsets_repeat(rest);
}

Layout concatenate(const std::vector<Layout>& parts) {
  std::vector<IntTuple> shapes;
  std::vector<IntTuple> strides;
  for (const Layout& part : parts) {
    shapes.push_back(part.shape());
    strides.push_back(part.stride());
  }
  return Layout(IntTuple(std::move(shapes)), IntTuple(std::move(strides)));
}

Layout select(const Layout& layout, const std::vector<std::int64_t>& modes) {
  std::vector<Layout> chosen;
  std::vector<bool> seen(static_cast<std::size_t>(layout.rank()), false);
  for (std::int64_t mode : modes) {
    chosen.push_back(layout.mode(mode));
    if (seen[static_cast<std::size_t>(mode)]) {
      refuse(layout, "cannot select mode " + std::to_string(mode) + " twice",
             "name each mode at most once");
    }
    seen[static_cast<std::size_t>(mode)] = true;
  }
  return concatenate(chosen);
}

Layout flatten(const Layout& layout) { return flat_layout(layout.leaves()); }

Layout coalesce(const Layout& layout) {
  std::vector<Leaf> merged;
  for (const Leaf& leaf : layout.leaves()) {
    if (leaf.size == 1) continue;
    if (!merged.empty() && continues(merged.back(), leaf)) {
      merged.back() = {merged.back().size * leaf.size, leaf.stride};
    } else {
      merged.push_back(leaf);
    }
  }
  return flat_layout(merged);
}

LayoutSlice slice(const Layout& layout,
                  const std::vector<std::optional<std::int64_t>>& coordinate) {
  if (std::ssize(coordinate) != layout.rank()) {
    refuse(layout,
           "cannot slice a layout of rank " + std::to_string(layout.rank()) + " by " +
               counted(std::ssize(coordinate), "item", "items"),
           "give one item per mode, an index or nothing");
  }
  std::vector<Layout> free;
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < coordinate.size(); ++i) {
    Layout mode = layout.mode(static_cast<std::int64_t>(i));
    if (coordinate[i]) {
      offset += mode(*coordinate[i]);
    } else {
      free.push_back(std::move(mode));
    }
  }
  return {concatenate(free), offset};
}

Layout compose(const Layout& a, const Layout& b) {
  if (b.cosize() > a.size()) {
    refuse_composition(a, b, "the second leaves the indices of the first",
                       "the second's cosize must not exceed the first's size");
  }
  const Layout coalesced = coalesce(a);
  const std::vector<Leaf>& radix = coalesced.leaves();
  std::vector<std::int64_t> digit_sums(radix.size(), 0);
  std::vector<IntTuple> shapes;
  std::vector<IntTuple> strides;
  for (const Leaf& leaf : b.leaves()) {
    std::optional<std::vector<Leaf>> cuts = cut_at_carries(leaf, radix);
    if (!cuts) {
      refuse_composition(a, b,
                         to_string(Layout(leaf.size, leaf.stride)) +
                             " does not divide evenly over the leaves of the first",
                         "sizes must divide where leaves end; coalescing the second may help");
    }
    for (Leaf& cut : *cuts) {
      if (!add_digits(cut, radix, digit_sums)) {
        refuse_composition(a, b, "the leaves of the second add up past a leaf of the first",
                           "indices that the second adds must not carry in the first's shape");
      }
      cut.stride = coalesced(cut.stride);
    }
    const Layout image = flat_layout(*cuts);
    shapes.push_back(image.shape());
    strides.push_back(image.stride());
  }
  return Layout(replace_leaves(b.shape(), shapes), replace_leaves(b.shape(), strides));
}

Layout complement(const Layout& layout, std::int64_t bound) {
  const std::string sentence = "cannot complement the layout up to " + std::to_string(bound) + ": ";
  std::optional<Gaps> gaps = gaps_of(layout);
  if (!gaps) refuse(layout, sentence + flaw_of(layout), kDigitsHint);
  if (bound < 1 || bound % gaps->period != 0) {
    refuse(layout, sentence + "it repeats every " + std::to_string(gaps->period),
           "give a bound that is a multiple of " + std::to_string(gaps->period));
  }
  return fill(*gaps, bound / gaps->period);
}

Layout right_inverse(const Layout& layout) {
  std::vector<Leaf> inverse;
  std::int64_t next = 1;
  for (const PlacedLeaf& leaf : sorted_leaves(layout)) {
    if (leaf.stride != next) continue;
    inverse.insert(inverse.begin(), {leaf.size, leaf.worth});
    next *= leaf.size;
  }
  return coalesce(flat_layout(inverse));
}

Layout left_inverse(const Layout& layout) {
  const std::vector<PlacedLeaf> sorted = sorted_leaves(layout);
  std::vector<Leaf> inverse;
  PlacedLeaf below = {.size = 1, .stride = 1, .worth = 0};
  for (const PlacedLeaf& leaf : sorted) {
    const std::int64_t room = leaf.stride / below.stride;
    if (leaf.stride % below.stride != 0 || room < below.size) {
      refuse(layout, "cannot invert the layout: " + flaw_of(layout),
             "each stride must be a multiple of the next smaller one, and step over its leaf");
    }
    inverse.insert(inverse.begin(), {room, below.worth});
    below = leaf;
  }
  inverse.insert(inverse.begin(), {below.size, below.worth});
  return coalesce(flat_layout(inverse));
}

Layout logical_divide(const Layout& layout, const Layout& tile) {
  return compose(layout, concatenate({complement(tile, layout.size()), tile}));
}

Layout zipped_divide(const Layout& layout, const std::vector<Layout>& tiles) {
  if (std::ssize(tiles) != layout.rank()) {
    refuse(layout,
           "cannot divide a layout of rank " + std::to_string(layout.rank()) + " by " +
               counted(std::ssize(tiles), "tile", "tiles"),
           "give one tile per mode; 1:0 leaves a mode whole");
  }
  std::vector<Layout> outer;
  std::vector<Layout> inner;
  for (std::size_t i = 0; i < tiles.size(); ++i) {
    const Layout divided = logical_divide(layout.mode(static_cast<std::int64_t>(i)), tiles[i]);
    outer.push_back(divided.mode(0));
    inner.push_back(divided.mode(1));
  }
  return concatenate({concatenate(outer), concatenate(inner)});
}

Layout logical_product(const Layout& layout, const Layout& copies) {
  std::optional<Gaps> gaps = gaps_of(layout);
  if (!gaps) refuse(layout, "cannot make copies of the layout: " + flaw_of(layout), kDigitsHint);
  const std::int64_t copies_per_period = gaps->period / layout.size();
  const std::int64_t periods = (copies.cosize() - 1) / copies_per_period + 1;
  return concatenate({compose(fill(*gaps, periods), copies), layout});
}

Layout blocked_product(const Layout& block, const Layout& blocks) {
  if (block.rank() != blocks.rank()) {
    throw UsageError("cannot make blocks of rank " + std::to_string(block.rank()) +
                     " by a layout of rank " + std::to_string(blocks.rank()))
        .fact("block", to_string(block))
        .fact("blocks", to_string(blocks))
        .hint("give both the same rank; modes 1:0 do not change a layout");
  }
  const Layout product = logical_product(block, concatenate(modes_of(blocks)));
  const std::vector<Layout> outer = modes_of(product.mode(0));
  const std::vector<Layout> inner = modes_of(block);
  std::vector<Layout> zipped;
  zipped.reserve(inner.size());
  for (std::size_t i = 0; i < inner.size(); ++i) {
    zipped.push_back(concatenate({outer[i], inner[i]}));
  }
  return concatenate(zipped);
}

}  // namespace tegula

std::size_t std::hash<tegula::Layout>::operator()(const tegula::Layout& layout) const noexcept {
  const std::hash<tegula::IntTuple> of;
  return tegula::inner::Hasher().add(of(layout.shape())).add(of(layout.stride())).result();
}
