// Laws are checked by brute force: a layout is its table of offsets, and every law is a statement
// about tables. Each law counts what it really checked, so that it cannot pass on nothing.
#include "tegula/mesh/layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <unordered_set>

#include "tegula/base/error.h"

namespace tegula {
namespace layout_test {

using Table = std::vector<std::int64_t>;

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

Layout layout(const char* text) { return parse_layout(text); }

Table table_of(const Layout& layout) {
  Table table;
  for (std::int64_t i = 0; i < layout.size(); ++i) table.push_back(layout(i));
  return table;
}

bool is_permutation_of_range(Table table) {
  std::ranges::sort(table);
  for (std::int64_t i = 0; i < std::ssize(table); ++i) {
    if (table[static_cast<std::size_t>(i)] != i) return false;
  }
  return true;
}

bool all_different(const Table& table) {
  return std::set<std::int64_t>(table.begin(), table.end()).size() == table.size();
}

// The result, or nothing where the operation refuses.
template <class Operation>
std::optional<Layout> attempt(Operation operation) {
  try {
    return operation();
  } catch (const UsageError&) {
    return std::nullopt;
  }
}

template <class Operation>
std::string message_of(Operation operation) {
  try {
    operation();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

// Row-major strides of the shape as if its dims were stored in another order, with gaps.
Table permuted_strides(const Table& shape, const Table& order, std::int64_t innermost,
                       std::int64_t padding) {
  Table strides(shape.size());
  std::int64_t stride = innermost;
  for (std::int64_t dim : order) {
    strides[static_cast<std::size_t>(dim)] = stride;
    stride *= shape[static_cast<std::size_t>(dim)] + padding;
  }
  return strides;
}

void for_each_shape(std::size_t rank, std::int64_t most, const auto& visit) {
  Table shape(rank, 1);
  for (;;) {
    visit(shape);
    std::size_t i = 0;
    while (i < rank && shape[i] == most) shape[i++] = 1;
    if (i == rank) return;
    ++shape[i];
  }
}

// (a, b) -> ((a, b)) and ((a), b); (a, b, c) -> ((a, b), c) and (a, (b, c)) as well.
void append_nested(const Layout& flat, std::vector<Layout>& layouts) {
  const std::int64_t last = flat.rank() - 1;
  layouts.push_back(concatenate({flat}));
  layouts.push_back(concatenate({select(flat, {0}), last > 0 ? flat.mode(last) : Layout()}));
  if (flat.rank() != 3) return;
  layouts.push_back(concatenate({select(flat, {0, 1}), flat.mode(2)}));
  layouts.push_back(concatenate({flat.mode(0), select(flat, {1, 2})}));
}

// Ranks 0 to 3, sizes 1 to 4, every order of strides, compact, spread and padded, some with a
// stride of 0, flat and nested: without repeats, at most `most` indices each.
std::vector<Layout> small_layouts(std::int64_t most) {
  std::vector<Layout> layouts = {Layout(), Layout(1), Layout(7), Layout(5, 3), Layout(3, 0)};
  for (std::size_t rank = 1; rank <= 3; ++rank) {
    for_each_shape(rank, 4, [&](const Table& shape) {
      if (IntTuple(shape).product() > most) return;
      Table order(rank);
      std::iota(order.begin(), order.end(), 0);
      do {
        for (const auto& [innermost, padding] :
             {std::pair(1, 0), std::pair(2, 0), std::pair(1, 1), std::pair(0, 0)}) {
          Table strides = permuted_strides(shape, order, std::max(innermost, 1), padding);
          if (innermost == 0) strides[static_cast<std::size_t>(order[0])] = 0;
          const Layout flat{IntTuple(shape), IntTuple(strides)};
          layouts.push_back(flat);
          append_nested(flat, layouts);
        }
      } while (std::ranges::next_permutation(order).found);
    });
  }
  std::unordered_set<Layout> unique(layouts.begin(), layouts.end());
  std::erase_if(layouts, [&](const Layout& each) { return unique.erase(each) == 0; });
  return layouts;
}

// Every n-th, for laws about pairs; n is a prime, so as not to beat with the order of enumeration.
std::vector<Layout> every(std::size_t n, const std::vector<Layout>& layouts) {
  std::vector<Layout> some;
  for (std::size_t i = 0; i < layouts.size(); i += n) some.push_back(layouts[i]);
  return some;
}

// Sizes and strides without any order in them: most of them overlap.
std::vector<Layout> irregular_layouts(std::int64_t most_stride) {
  std::vector<Layout> layouts;
  for (std::int64_t size = 1; size <= 6; ++size) {
    for (std::int64_t stride = 0; stride <= most_stride; ++stride)
      layouts.emplace_back(size, stride);
  }
  for_each_shape(2, 4, [&](const Table& shape) {
    for_each_shape(2, most_stride + 1, [&](const Table& stride) {
      layouts.push_back(Layout({shape[0], shape[1]}, {stride[0] - 1, stride[1] - 1}));
    });
  });
  return layouts;
}

// A random bijection on 0 ... size - 1 of nine leaves, randomly nested.
Layout random_bijection(std::mt19937& random) {
  Table shape;
  for (int i = 0; i < 9; ++i) shape.push_back(1 + static_cast<std::int64_t>(random() % 6));
  Table order(shape.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::shuffle(order, random);
  const Layout flat{IntTuple(shape), IntTuple(permuted_strides(shape, order, 1, 0))};
  const auto cut = static_cast<std::int64_t>(random() % 9);
  Table head(static_cast<std::size_t>(cut));
  Table tail(shape.size() - head.size());
  std::iota(head.begin(), head.end(), 0);
  std::iota(tail.begin(), tail.end(), cut);
  return concatenate({select(flat, head), select(flat, tail)});
}

// Whether a table is that of some layout: its longest linear run must be the innermost leaf.
bool is_table_of_a_layout(const Table& table) {
  if (table[0] != 0) return false;
  if (table.size() == 1) return true;
  std::size_t run = 1;
  while (run < table.size() && table[run] == static_cast<std::int64_t>(run) * table[1]) ++run;
  if (table.size() % run != 0) return false;
  Table outer;
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (table[i] != table[i - i % run] + table[i % run]) return false;
    if (i % run == 0) outer.push_back(table[i]);
  }
  return is_table_of_a_layout(outer);
}

// Whether a layout whose shape refines b's has the offsets a(b(i)): each leaf of b must give one,
// and the leaves must add up.
bool is_composable(const Layout& a, const Layout& b) {
  std::vector<Table> images;
  for (const Leaf& leaf : b.leaves()) {
    Table image;
    for (std::int64_t k = 0; k < leaf.size; ++k) image.push_back(a(k * leaf.stride));
    if (!is_table_of_a_layout(image)) return false;
    images.push_back(image);
  }
  for (std::int64_t i = 0; i < b.size(); ++i) {
    std::int64_t rest = i;
    std::int64_t sum = 0;
    for (std::size_t k = images.size(); k-- > 0;) {
      sum += images[k][static_cast<std::size_t>(rest % std::ssize(images[k]))];
      rest /= std::ssize(images[k]);
    }
    if (sum != a(b(i))) return false;
  }
  return true;
}

// The starting points of copies of the table that fill 0 ... bound - 1: the least place not yet
// covered must be the next one, so there is at most one answer.
std::optional<Table> starting_points(const Table& table, std::int64_t bound) {
  std::vector<bool> covered(static_cast<std::size_t>(bound), false);
  Table starts;
  for (std::int64_t start = 0; start < bound; ++start) {
    if (covered[static_cast<std::size_t>(start)]) continue;
    starts.push_back(start);
    for (std::int64_t offset : table) {
      const auto place = static_cast<std::size_t>(start + offset);
      if (place >= covered.size() || covered[place]) return std::nullopt;
      covered[place] = true;
    }
  }
  return starts;
}

TEST(LayoutLaw, OffsetsAreTheDotProductOfLexicographicCoordinatesAndStrides) {
  int checked = 0;
  for (const Layout& each : small_layouts(64)) {
    const std::vector<Leaf>& leaves = each.leaves();
    Table digits(leaves.size(), 0);
    Table offsets;
    for (std::int64_t i = 0; i < each.size(); ++i) {
      std::int64_t offset = 0;
      for (std::size_t k = 0; k < leaves.size(); ++k) offset += digits[k] * leaves[k].stride;
      offsets.push_back(offset);
      for (std::size_t k = leaves.size(); k-- > 0;) {
        digits[k] = (digits[k] + 1) % leaves[k].size;
        if (digits[k] != 0) break;
      }
    }
    ASSERT_EQ(table_of(each), offsets) << to_string(each);
    ASSERT_EQ(each.cosize(), *std::ranges::max_element(offsets) + 1) << to_string(each);
    ++checked;
  }
  EXPECT_GT(checked, 3000);
}

TEST(LayoutLaw, ModesAddUp) {
  int checked = 0;
  for (const Layout& each : small_layouts(24)) {
    if (each.rank() != 2) continue;
    for (std::int64_t i = 0; i < each.mode(0).size(); ++i) {
      for (std::int64_t j = 0; j < each.mode(1).size(); ++j) {
        ASSERT_EQ(each({i, j}), each.mode(0)(i) + each.mode(1)(j)) << to_string(each);
        ASSERT_EQ(each({i, j}), each(i * each.mode(1).size() + j)) << to_string(each);
        ++checked;
      }
    }
  }
  EXPECT_GT(checked, 5000);
}

TEST(LayoutLaw, PrintingAndParsingRoundTrip) {
  const std::vector<Layout> layouts = small_layouts(64);
  std::unordered_set<std::string> texts;
  for (const Layout& each : layouts) {
    ASSERT_EQ(parse_layout(to_string(each)), each);
    ASSERT_EQ(std::hash<Layout>()(parse_layout(to_string(each))), std::hash<Layout>()(each));
    texts.insert(to_string(each));
  }
  EXPECT_GT(layouts.size(), 3000U);
  EXPECT_EQ(texts.size(), layouts.size());
}

TEST(LayoutLaw, InjectiveMeansThatNoOffsetRepeats) {
  std::vector<Layout> layouts = small_layouts(64);
  for (const Layout& each : irregular_layouts(9)) {
    layouts.push_back(each);
    layouts.push_back(concatenate({each, Layout(3, 4)}));
  }
  std::map<bool, int> checked;
  for (const Layout& each : layouts) {
    ASSERT_EQ(is_injective(each), all_different(table_of(each))) << to_string(each);
    ++checked[is_injective(each)];
  }
  EXPECT_GT(checked[true], 1000);
  EXPECT_GT(checked[false], 1000);
}

TEST(LayoutLaw, LayoutsAreTheSameFunctionIffTheyCoalesceToTheSame) {
  std::vector<Layout> layouts = small_layouts(64);
  for (const Layout& each : irregular_layouts(6)) layouts.push_back(each);
  std::map<Table, Layout> coalesced;
  std::set<std::string> forms;
  for (const Layout& each : layouts) {
    const Table table = table_of(each);
    const Layout form = coalesce(each);
    ASSERT_EQ(table_of(form), table) << to_string(each);
    ASSERT_EQ(table_of(flatten(each)), table) << to_string(each);
    ASSERT_LE(flatten(each).depth(), 1);
    ASSERT_EQ(coalesced.emplace(table, form).first->second, form) << to_string(each);
    forms.insert(to_string(form));
  }
  EXPECT_EQ(forms.size(), coalesced.size());
  EXPECT_GT(coalesced.size(), 500U);
  EXPECT_GT(layouts.size(), 4 * coalesced.size() / 3);
}

TEST(LayoutLaw, ASliceIsAnOffsetAndTheFreeModes) {
  int checked = 0;
  for (const Layout& each : small_layouts(24)) {
    if (each.rank() != 3) continue;
    for (std::int64_t fixed = 0; fixed < 3; ++fixed) {
      const std::int64_t index = each.mode(fixed).size() - 1;
      std::vector<std::optional<std::int64_t>> coordinate(3);
      coordinate[static_cast<std::size_t>(fixed)] = index;
      const LayoutSlice part = slice(each, coordinate);
      Table rest = {0, 1, 2};
      std::erase(rest, fixed);
      ASSERT_EQ(part.layout, select(each, rest));
      for (std::int64_t i = 0; i < part.layout.mode(0).size(); ++i) {
        for (std::int64_t j = 0; j < part.layout.mode(1).size(); ++j) {
          Table whole = {i, j};
          whole.insert(whole.begin() + fixed, index);
          ASSERT_EQ(each(IntTuple(whole)), part.offset + part.layout({i, j})) << to_string(each);
          ++checked;
        }
      }
    }
  }
  EXPECT_GT(checked, 3000);
}

TEST(LayoutLaw, CompositionIsFunctionComposition) {
  std::vector<Layout> seconds = irregular_layouts(5);
  for (const Layout& each : small_layouts(8)) seconds.push_back(each);
  int composed = 0;
  int nested = 0;
  int refused = 0;
  int impossible = 0;
  for (const Layout& a : every(127, small_layouts(32))) {
    for (const Layout& b : seconds) {
      if (b.cosize() > a.size()) continue;
      // An exception per case is slow: of those that must be refused, try some.
      if (!is_composable(a, b) && ++impossible % 16 != 0) continue;
      const std::optional<Layout> result = attempt([&] { return compose(a, b); });
      if (!result) {
        // With three leaves or more, carries may cancel out by chance.
        ASSERT_TRUE(coalesce(a).rank() > 2 || !is_composable(a, b))
            << to_string(a) << " with " << to_string(b);
        ++refused;
        continue;
      }
      ASSERT_EQ(result->size(), b.size());
      for (std::int64_t i = 0; i < b.size(); ++i) {
        ASSERT_EQ((*result)(i), a(b(i))) << to_string(a) << " with " << to_string(b);
      }
      for (std::int64_t m = 0; !b.shape().is_int() && m < b.rank(); ++m) {
        ASSERT_EQ(result->mode(m).size(), b.mode(m).size());
      }
      ++composed;
      nested += result->leaves().size() > b.leaves().size() ? 1 : 0;
    }
  }
  EXPECT_GT(composed, 40'000);
  EXPECT_GT(nested, 1000);
  EXPECT_GT(refused, 1000);
}

TEST(LayoutLaw, BijectionsOfManyLeavesComposeWithTheirInversesToTheIdentity) {
  std::mt19937 random(7);
  int checked = 0;
  std::int64_t greatest = 0;
  for (int round = 0; round < 500; ++round) {
    const Layout a = random_bijection(random);
    const Layout inverse = right_inverse(a);
    const Layout identity = coalesce(Layout(a.size()));
    ASSERT_EQ(coalesce(compose(a, inverse)), identity) << to_string(a);
    ASSERT_EQ(coalesce(compose(inverse, a)), identity) << to_string(a);
    ASSERT_EQ(left_inverse(a), inverse) << to_string(a);
    const std::int64_t step = 1 + a.size() / 50;
    for (std::int64_t i = 0; i < a.size(); i += step, ++checked) ASSERT_EQ(a(inverse(i)), i);
    greatest = std::max(greatest, a.size());
  }
  EXPECT_GT(checked, 10'000);
  EXPECT_GT(greatest, 65'536);
}

TEST(LayoutLaw, RandomLayoutsOfManyLeavesCompose) {
  std::mt19937 random(11);
  int composed = 0;
  for (int round = 0; round < 3000; ++round) {
    const Layout a = random_bijection(random);
    const Layout b = select(flatten(random_bijection(random)), {1, 4, 7});
    if (b.cosize() > a.size()) continue;
    const std::optional<Layout> result = attempt([&] { return compose(a, b); });
    if (!result) continue;
    for (std::int64_t i = 0; i < b.size(); ++i) {
      ASSERT_EQ((*result)(i), a(b(i))) << to_string(a) << " with " << to_string(b);
    }
    ++composed;
  }
  EXPECT_GT(composed, 200);
}

TEST(LayoutLaw, ALayoutAndItsComplementFillTheRangeOnce) {
  std::vector<Layout> layouts = irregular_layouts(9);
  for (const Layout& each : small_layouts(16)) layouts.push_back(each);
  int filled = 0;
  int refused = 0;
  for (const Layout& each : layouts) {
    for (std::int64_t bound = 1; bound <= 48; ++bound) {
      const std::optional<Table> starts = starting_points(table_of(each), bound);
      // An exception per case is slow: of those that must be refused, try some.
      if (!starts && bound % 16 != 0) continue;
      const std::optional<Layout> rest = attempt([&] { return complement(each, bound); });
      ASSERT_EQ(rest.has_value(), starts.has_value()) << to_string(each) << " up to " << bound;
      if (!rest) {
        ++refused;
        continue;
      }
      ASSERT_EQ(table_of(*rest), *starts) << to_string(each) << " up to " << bound;
      ASSERT_TRUE(is_permutation_of_range(table_of(concatenate({*rest, each}))));
      ++filled;
    }
  }
  EXPECT_GT(filled, 3000);
  EXPECT_GT(refused, 1000);
}

TEST(LayoutLaw, TheRightInverseUndoesFromTheRight) {
  std::vector<Layout> layouts = small_layouts(64);
  for (const Layout& each : irregular_layouts(6)) layouts.push_back(each);
  int checked = 0;
  int whole = 0;
  for (const Layout& each : layouts) {
    const Layout inverse = right_inverse(each);
    for (std::int64_t i = 0; i < inverse.size(); ++i) {
      ASSERT_EQ(each(inverse(i)), i) << to_string(each);
    }
    checked += inverse.size() > 1 ? 1 : 0;
    if (!is_permutation_of_range(table_of(each))) continue;
    ASSERT_EQ(inverse.size(), each.size()) << to_string(each);
    ASSERT_EQ(right_inverse(inverse), coalesce(each)) << to_string(each);
    ++whole;
  }
  EXPECT_GT(checked, 1000);
  EXPECT_GT(whole, 500);
}

TEST(LayoutLaw, TheLeftInverseUndoesFromTheLeft) {
  std::vector<Layout> layouts = small_layouts(64);
  for (const Layout& each : irregular_layouts(9)) layouts.push_back(each);
  int inverted = 0;
  int gapped = 0;
  for (const Layout& each : layouts) {
    const std::optional<Layout> inverse = attempt([&] { return left_inverse(each); });
    if (!inverse) {
      // Whatever has a complement has a left inverse.
      ASSERT_FALSE(starting_points(table_of(each), 576)) << to_string(each);
      continue;
    }
    ASSERT_GE(inverse->size(), each.cosize()) << to_string(each);
    for (std::int64_t i = 0; i < each.size(); ++i) {
      ASSERT_EQ((*inverse)(each(i)), i) << to_string(each);
    }
    ASSERT_EQ(coalesce(compose(*inverse, each)), coalesce(Layout(each.size()))) << to_string(each);
    ++inverted;
    gapped += each.cosize() > each.size() ? 1 : 0;
  }
  EXPECT_GT(inverted, 1000);
  EXPECT_GT(gapped, 500);
}

TEST(LayoutLaw, DivisionGroupsIndicesIntoTiles) {
  const std::vector<Layout> tiles = irregular_layouts(5);
  int checked = 0;
  for (const Layout& each : every(53, small_layouts(24))) {
    for (const Layout& tile : tiles) {
      if (!starting_points(table_of(tile), each.size())) continue;
      const Layout rest = complement(tile, each.size());
      const std::optional<Layout> divided = attempt([&] { return logical_divide(each, tile); });
      if (!divided) continue;
      ASSERT_EQ(divided->rank(), 2);
      for (std::int64_t r = 0; r < rest.size(); ++r) {
        for (std::int64_t t = 0; t < tile.size(); ++t) {
          ASSERT_EQ((*divided)({r, t}), each(rest(r) + tile(t)))
              << to_string(each) << " by " << to_string(tile);
        }
      }
      ++checked;
    }
  }
  EXPECT_GT(checked, 3000);
}

TEST(LayoutLaw, ZippedDivisionGathersTheTilesOfAllModes) {
  const std::vector<Layout> tiles = {Layout(1), Layout(2), Layout(2, 2), Layout(3), Layout(4)};
  int checked = 0;
  for (const Layout& each : every(13, small_layouts(16))) {
    if (each.rank() != 2) continue;
    for (const Layout& t0 : tiles) {
      for (const Layout& t1 : tiles) {
        if (!starting_points(table_of(t0), each.mode(0).size())) continue;
        if (!starting_points(table_of(t1), each.mode(1).size())) continue;
        const std::optional<Layout> zipped = attempt([&] { return zipped_divide(each, {t0, t1}); });
        if (!zipped) continue;
        const Layout by_mode =
            concatenate({logical_divide(each.mode(0), t0), logical_divide(each.mode(1), t1)});
        for_each_shape(4, 4, [&](const Table& c) {
          if (c[0] * t0.size() > each.mode(0).size() || c[1] * t1.size() > each.mode(1).size() ||
              c[2] > t0.size() || c[3] > t1.size()) {
            return;
          }
          ASSERT_EQ((*zipped)({{c[0] - 1, c[1] - 1}, {c[2] - 1, c[3] - 1}}),
                    by_mode({{c[0] - 1, c[2] - 1}, {c[1] - 1, c[3] - 1}}));
          ++checked;
        });
      }
    }
  }
  EXPECT_GT(checked, 3000);
}

TEST(LayoutLaw, AProductHoldsCopiesThatDoNotOverlap) {
  std::vector<Layout> copies = irregular_layouts(3);
  copies.push_back(layout("((2, 2), 3):((1, 2), 4)"));
  int checked = 0;
  for (const Layout& each : every(127, small_layouts(12))) {
    if (!attempt([&] { return logical_product(each, Layout()); })) continue;
    for (const Layout& copy : copies) {
      const std::optional<Layout> product = attempt([&] { return logical_product(each, copy); });
      if (!product) continue;
      std::optional<Table> starts;
      for (std::int64_t bound = each.size() * copy.cosize(); !starts; ++bound) {
        starts = starting_points(table_of(each), bound);
      }
      for (std::int64_t b = 0; b < copy.size(); ++b) {
        for (std::int64_t a = 0; a < each.size(); ++a) {
          ASSERT_EQ((*product)({b, a}), (*starts)[static_cast<std::size_t>(copy(b))] + each(a))
              << to_string(each) << " by " << to_string(copy);
        }
      }
      ASSERT_EQ(product->mode(1), each);
      ASSERT_EQ(all_different(table_of(*product)), all_different(table_of(copy)));
      ++checked;
    }
  }
  EXPECT_GT(checked, 5000);
}

TEST(LayoutLaw, ABlockedProductIsTheProductModeByMode) {
  int checked = 0;
  const std::vector<Layout> layouts = small_layouts(6);
  for (const Layout& block : every(29, layouts)) {
    if (!attempt([&] { return logical_product(block, Layout()); })) continue;
    for (const Layout& blocks : every(11, layouts)) {
      if (block.rank() != 2 || blocks.rank() != 2) continue;
      const std::optional<Layout> blocked = attempt([&] { return blocked_product(block, blocks); });
      if (!blocked) continue;
      const Layout product = logical_product(block, blocks);
      for (std::int64_t b = 0; b < blocks.size(); ++b) {
        for (std::int64_t a = 0; a < block.size(); ++a) {
          const std::int64_t columns = block.mode(1).size();
          const std::int64_t block_columns = blocks.mode(1).size();
          ASSERT_EQ(
              (*blocked)({{b / block_columns, a / columns}, {b % block_columns, a % columns}}),
              product({b, a}))
              << to_string(block) << " by " << to_string(blocks);
        }
      }
      ++checked;
    }
  }
  EXPECT_GT(checked, 1000);
}

TEST(Layout, IsRowMajorUnlessToldOtherwise) {
  EXPECT_EQ(to_string(Layout(IntTuple{2, {3, 4}})), "(2, (3, 4)):(12, (4, 1))");
  EXPECT_EQ(table_of(Layout(IntTuple{2, 3})), (Table{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(table_of(Layout({2, 3}, {1, 2})), (Table{0, 2, 4, 1, 3, 5}));
  EXPECT_EQ(to_string(Layout()), "():()");
  EXPECT_EQ(Layout().size(), 1);
  EXPECT_EQ(Layout()(0), 0);
}

TEST(Layout, ACoordinateItemMayBeAnIndexIntoItsMode) {
  const Layout nested = layout("(2, (3, 4)):(12, (1, 3))");
  EXPECT_EQ(nested({1, {2, 3}}), 23);
  EXPECT_EQ(nested({1, 11}), 23);
  EXPECT_EQ(nested(IntTuple(23)), 23);
  EXPECT_EQ(nested(IntTuple(Table{1, 1})), 15);
}

TEST(Layout, ComposesLikeAReshapeOfATranspose) {
  const Layout transposed = layout("(4, 6):(1, 4)");
  EXPECT_EQ(to_string(compose(transposed, layout("(2, 12):(12, 1)"))), "(2, (2, 6)):(2, (1, 4))");
  EXPECT_EQ(to_string(compose(transposed, layout("(3, 2):(2, 1)"))), "(3, 2):(8, 4)");
  EXPECT_EQ(to_string(compose(Layout(IntTuple{4, 6}), layout("(6, 4):(1, 6)"))), "(6, 4):(1, 6)");
}

TEST(Layout, DividesAMeshIntoNodes) {
  EXPECT_EQ(to_string(logical_divide(Layout(8), Layout(4))), "(2, 4):(4, 1)");
  EXPECT_EQ(to_string(logical_divide(Layout(8), Layout(4, 2))), "(2, 4):(1, 2)");
  EXPECT_EQ(to_string(zipped_divide(Layout(IntTuple{4, 6}), {Layout(2), Layout(3)})),
            "((2, 2), (2, 3)):((12, 3), (6, 1))");
}

TEST(Layout, ProductsRepeatABlock) {
  EXPECT_EQ(to_string(logical_product(Layout(4), Layout(2))), "(2, 4):(4, 1)");
  EXPECT_EQ(to_string(logical_product(Layout(4, 2), Layout(4))), "((2, 2), 4):((8, 1), 2)");
  EXPECT_EQ(to_string(blocked_product(Layout(IntTuple{2, 2}), Layout(IntTuple{3, 4}))),
            "((3, 2), (4, 2)):((16, 2), (4, 1))");
}

TEST(Layout, ComplementsAreTheRanksOfTheOtherAxes) {
  EXPECT_EQ(to_string(complement(Layout(4, 2), 24)), "(3, 2):(8, 1)");
  EXPECT_EQ(to_string(complement(layout("(2, 2):(1, 6)"), 24)), "(2, 3):(12, 2)");
  EXPECT_EQ(to_string(complement(Layout(8), 8)), "1:0");
}

TEST(Layout, InversesOfATranspositionAreTranspositions) {
  EXPECT_EQ(to_string(right_inverse(layout("(2, 3):(1, 2)"))), "(3, 2):(1, 3)");
  EXPECT_EQ(to_string(left_inverse(layout("(2, 2):(8, 2)"))), "(2, 4, 2):(2, 1, 0)");
  EXPECT_EQ(to_string(right_inverse(Layout(4, 2))), "1:0");
}

TEST(Layout, ASliceHoldsWhatIsLeftFree) {
  const LayoutSlice row = slice(layout("(2, (3, 4)):(12, (4, 1))"), {1, std::nullopt});
  EXPECT_EQ(to_string(row.layout), "((3, 4)):((4, 1))");
  EXPECT_EQ(row.offset, 12);
  const LayoutSlice point = slice(Layout(IntTuple{2, 3}), {1, 2});
  EXPECT_EQ(point.layout, Layout());
  EXPECT_EQ(point.offset, 5);
}

TEST(Layout, OperationsOnHugeLayoutsCostOnlyTheirLeaves) {
  const std::int64_t side = std::int64_t{1} << 30;
  const Layout huge({side, side}, {1, side});
  EXPECT_TRUE(is_injective(huge));
  EXPECT_EQ(coalesce(compose(huge, right_inverse(huge))), Layout(huge.size()));
  EXPECT_EQ(coalesce(compose(left_inverse(huge), huge)), Layout(huge.size()));
  EXPECT_EQ(compose(huge, Layout(side, 2))(side - 1), huge(2 * (side - 1)));
  EXPECT_EQ(complement(Layout(side, side), huge.size()), Layout(side));
  EXPECT_EQ(coalesce(logical_product(Layout(side), Layout(side))), Layout(huge.size()));
  EXPECT_FALSE(is_injective(Layout({side, side}, {1, 1})));
}

TEST(Layout, NumbersAtTheLimitDoNotOverflow) {
  EXPECT_EQ(Layout(kMost).cosize(), kMost);
  EXPECT_EQ(Layout(kMost)(kMost - 1), kMost - 1);
  EXPECT_EQ(Layout(2, kMost - 1).cosize(), kMost);
  EXPECT_EQ(Layout({1, 2}, {kMost, 1}).cosize(), 2);
  EXPECT_EQ(compose(Layout(kMost), Layout(2, kMost - 1)), Layout(2, kMost - 1));
  EXPECT_EQ(coalesce(Layout({2, 2}, {1, kMost - 2})), Layout({2, 2}, {1, kMost - 2}));
  EXPECT_THROW(Layout(IntTuple{kMost, 2}), UsageError);
  EXPECT_THROW(Layout(2, kMost), UsageError);
  EXPECT_THROW(Layout({2, 2}, {kMost - 1, 1}), UsageError);
  EXPECT_THROW(complement(Layout(2, kMost - 1), kMost), UsageError);
  EXPECT_THROW(left_inverse(Layout(2, kMost - 1)), UsageError);
  EXPECT_THROW(logical_product(Layout(2, kMost - 1), Layout(2)), UsageError);
  EXPECT_THROW(logical_product(Layout(kMost), Layout(3)), UsageError);
  EXPECT_THROW(logical_product(Layout(2), Layout(2, kMost - 1)), UsageError);
}

TEST(Layout, WhatIsNoLayoutIsRefused) {
  EXPECT_EQ(message_of([] { Layout({2, 3}, {1, {2, 3}}); }),
            "tegula: cannot make a layout: shape and stride do not nest alike\n"
            "  shape   (2, 3)\n"
            "  stride  (1, (2, 3))\n"
            "  hint    give one stride for each size, like (2, (3, 4)):(12, (4, 1))");
  EXPECT_EQ(message_of([] { Layout(IntTuple{2, 0}); }),
            "tegula: size 0 is less than 1\n"
            "  shape   (2, 0)\n"
            "  hint    a shape holds at least one index");
  EXPECT_EQ(message_of([] { Layout({2, 2}, {-1, 1}); }),
            "tegula: cannot make a layout: stride -1 is negative\n"
            "  shape   (2, 2)\n"
            "  stride  (-1, 1)\n"
            "  hint    strides are 0 or more");
  EXPECT_EQ(message_of([] { Layout(3, kMost); }),
            "tegula: cannot make a layout: the greatest offset does not fit in 63 bits\n"
            "  shape   3\n"
            "  stride  9223372036854775807\n"
            "  hint    offsets go up to 9223372036854775806");
  EXPECT_EQ(message_of([] { Layout(IntTuple{kMost, 2}); }),
            "tegula: the product of (9223372036854775807, 2) does not fit in 63 bits\n"
            "  hint    sizes and offsets go up to 9223372036854775807");
  EXPECT_EQ(message_of([] { layout("(2, 3)"); }),
            "tegula: cannot read a layout: expected \":\" where the text ends\n"
            "  text    (2, 3)\n"
            "  place   character 7\n"
            "  hint    write a layout like (2, 3):(3, 1)");
}

TEST(Layout, WhatIsNotInALayoutIsRefused) {
  EXPECT_EQ(message_of([] { Layout(4)(4); }),
            "tegula: no index 4 in a layout of size 4\n"
            "  layout  4:1\n"
            "  hint    indices are 0 ... 3");
  EXPECT_EQ(message_of([] { Layout(IntTuple{2, 3})({1, 3}); }),
            "tegula: no coordinate 3 in shape 3\n"
            "  hint    give one item per mode, each from 0 to the size of its mode less 1");
  EXPECT_EQ(message_of([] { Layout(IntTuple{2, 3})({1, 2, 0}); }),
            "tegula: no coordinate (1, 2, 0) in shape (2, 3)\n"
            "  hint    give one item per mode, each from 0 to the size of its mode less 1");
  EXPECT_EQ(message_of([] { Layout(4).mode(1); }),
            "tegula: no mode 1 in a layout of rank 1\n"
            "  layout  4:1\n"
            "  hint    modes count from 0");
  EXPECT_EQ(message_of([] { select(Layout(IntTuple{2, 3}), {1, 1}); }),
            "tegula: cannot select mode 1 twice\n"
            "  layout  (2, 3):(3, 1)\n"
            "  hint    name each mode at most once");
  EXPECT_EQ(message_of([] { slice(Layout(4), {}); }),
            "tegula: cannot slice a layout of rank 1 by 0 items\n"
            "  layout  4:1\n"
            "  hint    give one item per mode, an index or nothing");
}

TEST(Layout, CompositionsThatAreNoLayoutAreRefused) {
  EXPECT_EQ(message_of([] { compose(Layout(4), Layout(8)); }),
            "tegula: cannot compose 4:1 with 8:1: the second leaves the indices of the first\n"
            "  first   4:1 with 4 indices\n"
            "  second  8:1 with offsets up to 7\n"
            "  hint    the second's cosize must not exceed the first's size");
  EXPECT_EQ(message_of([] { compose(layout("(3, 2):(1, 3)"), Layout(IntTuple{2, 3})); }),
            "tegula: cannot compose (3, 2):(1, 3) with (2, 3):(3, 1): 3:1 does not divide evenly "
            "over the leaves of the first\n"
            "  first   (3, 2):(1, 3) with 6 indices\n"
            "  second  (2, 3):(3, 1) with offsets up to 5\n"
            "  hint    sizes must divide where leaves end; coalescing the second may help");
  EXPECT_EQ(message_of([] { compose(layout("(2, 2):(5, 1)"), layout("(2, 2):(1, 1)")); }),
            "tegula: cannot compose (2, 2):(5, 1) with (2, 2):(1, 1): the leaves of the second add "
            "up past a leaf of the first\n"
            "  first   (2, 2):(5, 1) with 4 indices\n"
            "  second  (2, 2):(1, 1) with offsets up to 2\n"
            "  hint    indices that the second adds must not carry in the first's shape");
}

TEST(Layout, ACarryThatCancelsOutByChanceIsRefusedAllTheSame) {
  const Layout first = layout("(2, 2, 2):(6, 4, 1)");
  EXPECT_EQ(first(6), 2 * first(3));
  EXPECT_THROW(compose(first, Layout(3, 3)), UsageError);
}

TEST(Layout, WhatHasNoComplementOrInverseIsRefused) {
  EXPECT_EQ(message_of([] { complement(layout("(2, 2):(3, 1)"), 6); }),
            "tegula: cannot complement the layout up to 6: its leaves, sorted by stride, do not "
            "fit into each other\n"
            "  layout  (2, 2):(3, 1)\n"
            "  hint    size times stride of each leaf must divide the next greater stride");
  EXPECT_EQ(message_of([] { complement(Layout(3), 8); }),
            "tegula: cannot complement the layout up to 8: it repeats every 3\n"
            "  layout  3:1\n"
            "  hint    give a bound that is a multiple of 3");
  EXPECT_EQ(message_of([] { left_inverse(layout("(2, 2):(0, 1)")); }),
            "tegula: cannot invert the layout: a stride of 0 makes offsets repeat\n"
            "  layout  (2, 2):(0, 1)\n"
            "  hint    each stride must be a multiple of the next smaller one, and step over its "
            "leaf");
  EXPECT_EQ(message_of([] { logical_product(Layout(2, 0), Layout(2)); }),
            "tegula: cannot make copies of the layout: a stride of 0 makes offsets repeat\n"
            "  layout  2:0\n"
            "  hint    size times stride of each leaf must divide the next greater stride");
  EXPECT_THROW(complement(Layout(1), 0), UsageError);
  EXPECT_THROW(complement(Layout(1), -4), UsageError);
}

TEST(Layout, TilesAndBlocksMustMatchInRank) {
  EXPECT_EQ(message_of([] { zipped_divide(Layout(IntTuple{2, 3}), {Layout(2)}); }),
            "tegula: cannot divide a layout of rank 2 by 1 tile\n"
            "  layout  (2, 3):(3, 1)\n"
            "  hint    give one tile per mode; 1:0 leaves a mode whole");
  EXPECT_EQ(message_of([] { blocked_product(Layout(IntTuple{2, 3}), Layout(2)); }),
            "tegula: cannot make blocks of rank 2 by a layout of rank 1\n"
            "  block   (2, 3):(3, 1)\n"
            "  blocks  2:1\n"
            "  hint    give both the same rank; modes 1:0 do not change a layout");
}

TEST(Layout, AnInjectivityThatWouldTakeTooLongToTellIsRefused) {
  EXPECT_EQ(message_of([] { is_injective(layout("(4096, 4096, 2):(4097, 4098, 900000000)")); }),
            "tegula: cannot tell whether the layout is injective without enumerating 16777216 "
            "indices\n"
            "  layout  (4096, 4096, 2):(4097, 4098, 900000000)\n"
            "  hint    use strides that step over the leaves of smaller stride");
}

TEST(IntTuple, KnowsItsNestingAndItsProduct) {
  const IntTuple nested = {2, {3, 4}};
  EXPECT_EQ(nested.rank(), 2);
  EXPECT_EQ(nested.depth(), 2);
  EXPECT_EQ(nested.product(), 24);
  EXPECT_EQ(flatten(nested), (Table{2, 3, 4}));
  EXPECT_EQ(IntTuple().product(), 1);
  EXPECT_NE(IntTuple(3), IntTuple{3});
  EXPECT_TRUE(congruent(nested, {5, {6, 7}}));
  EXPECT_FALSE(congruent(nested, {5, 6, 7}));
  EXPECT_EQ(replace_leaves(nested, {5, IntTuple{6, 7}, 8}), (IntTuple{5, {IntTuple{6, 7}, 8}}));
  EXPECT_EQ(index_of({2, {3, 4}}, {1, {2, 3}}), 23);
}

TEST(IntTuple, PrintsAndParses) {
  for (const char* text : {"5", "()", "(5)", "(2, (3, 4))", "((), (-1))"}) {
    EXPECT_EQ(to_string(parse_int_tuple(text)), text);
  }
  EXPECT_EQ(message_of([] { parse_int_tuple("(2, x)"); }),
            "tegula: cannot read a tuple of whole numbers: expected a whole number or \"(\" where "
            "\"x)\" stands\n"
            "  text    (2, x)\n"
            "  place   character 5\n"
            "  hint    write a tuple of whole numbers like (2, (3, 4))");
  EXPECT_THROW(replace_leaves({1, 2}, {1}), UsageError);
}

TEST(IntTuple, RefusesToGrowWithoutBounds) {
  EXPECT_THROW(parse_int_tuple(std::string(1'000'000, '(')), UsageError);
  const auto nest = [](bool twice) {
    for (IntTuple tuple = 1;;) tuple = twice ? IntTuple{tuple, tuple} : IntTuple{tuple, 1};
  };
  const std::string expected =
      "tegula: cannot make a tuple of more than 64 levels or 65536 parts\n"
      "  items   2\n"
      "  hint    flatten or coalesce before nesting further";
  EXPECT_EQ(message_of([&] { nest(true); }), expected);
  EXPECT_EQ(message_of([&] { nest(false); }), expected);
}

}  // namespace layout_test
}  // namespace tegula
