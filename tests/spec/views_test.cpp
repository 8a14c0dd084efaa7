#include "tegula/spec/views.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tegula/spec/slices.h"
#include "tests/spec/generated.h"

namespace tegula::inner {
namespace views_test {

// A row-major array that names the elements of a whole tensor. A view is a whole array whose
// elements are named after those of the tensor that it looks at.
struct Array {
  Shape shape;
  std::vector<std::int64_t> names;
  bool operator==(const Array&) const = default;
};

std::int64_t count(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

Array whole_array(const Shape& shape) {
  Array array{shape, std::vector<std::int64_t>(static_cast<std::size_t>(count(shape)))};
  std::iota(array.names.begin(), array.names.end(), 0);
  return array;
}

std::int64_t name_at(const Array& array, const std::vector<std::int64_t>& index) {
  std::int64_t place = 0;
  for (std::size_t dim = 0; dim < index.size(); ++dim)
    place = place * array.shape[dim] + index[dim];
  return array.names[static_cast<std::size_t>(place)];
}

// The elements at these indices of each dim.
Array taken(const Array& array, const std::vector<std::vector<std::int64_t>>& indices) {
  Array result;
  for (const auto& of_dim : indices) {
    result.shape.push_back(static_cast<std::int64_t>(of_dim.size()));
  }
  for (const Coordinate& at : all_coordinates(result.shape)) {
    std::vector<std::int64_t> index;
    for (std::size_t dim = 0; dim < indices.size(); ++dim) {
      index.push_back(indices[dim][static_cast<std::size_t>(at[dim])]);
    }
    result.names.push_back(name_at(array, index));
  }
  return result;
}

std::vector<std::int64_t> counted_from(std::int64_t begin, std::int64_t end, std::int64_t step) {
  std::vector<std::int64_t> numbers;
  for (std::int64_t number = begin; number < end; number += step) numbers.push_back(number);
  return numbers;
}

// The rank's tile of an array that is distributed by the spec.
Array tile_of(const Array& whole, const DTensorSpec& spec, const Coordinate& at) {
  std::vector<std::vector<std::int64_t>> indices;
  for (const std::vector<Interval>& intervals : slice_at(spec, at)) {
    indices.emplace_back();
    for (const Interval& interval : intervals) {
      for (std::int64_t i = interval.begin; i < interval.end(); ++i) indices.back().push_back(i);
    }
  }
  return taken(whole, indices);
}

// Dim d becomes dim to[d]; a dim that goes away is looked at where it is 0; a dim of the result
// that comes from nowhere has this size.
Array moved(const Array& array, const std::vector<std::optional<std::int64_t>>& to,
            std::size_t dims, std::int64_t size_of_new) {
  Array result{Shape(dims, size_of_new), {}};
  for (std::size_t dim = 0; dim < to.size(); ++dim) {
    if (to[dim]) result.shape[static_cast<std::size_t>(*to[dim])] = array.shape[dim];
  }
  for (const Coordinate& at : all_coordinates(result.shape)) {
    std::vector<std::int64_t> index;
    for (const auto& place : to) index.push_back(place ? at[static_cast<std::size_t>(*place)] : 0);
    result.names.push_back(name_at(array, index));
  }
  return result;
}

Array sliced_array(const Array& array, const DimSlice& slice) {
  std::vector<std::vector<std::int64_t>> indices;
  for (std::int64_t size : array.shape) indices.push_back(counted_from(0, size, 1));
  indices[static_cast<std::size_t>(slice.dim)] = counted_from(slice.begin, slice.end, slice.step);
  return taken(array, indices);
}

Array regrouped_array(const Array& array, const Shape& shape) { return {shape, array.names}; }

void expect_same_debts(const DTensorSpec& view, const DTensorSpec& spec) {
  EXPECT_TRUE(view.mesh() == spec.mesh());
  for (std::size_t axis = 0; axis < spec.mesh().ndim(); ++axis) {
    const Placement& before = spec.placements()[axis];
    if (!as_shard(before)) {
      EXPECT_EQ(view.placements()[axis], before) << to_string(spec) << " -> " << to_string(view);
    }
  }
}

std::vector<Coordinate> places(const DTensorSpec& spec) {
  return all_coordinates(spec.mesh().shape());
}

DTensorSpec some_spec(Random& random, const Shape& shape) {
  return generated_spec(random, generated_mesh(random, 3), TensorMeta(shape, DType::F32));
}

Shape some_shape(Random& random, std::int64_t least, std::int64_t most) {
  Shape shape(static_cast<std::size_t>(random.between(least, most)));
  for (std::int64_t& size : shape) size = random.one_in(10) ? 0 : random.between(1, 6);
  return shape;
}

TEST(ViewsLaw, TheTileOfMovedDimsIsTheTileWithItsDimsMoved) {
  Random random(1);
  for (int round = 0; round < 2000; ++round) {
    const Shape shape = some_shape(random, 0, 4);
    const DTensorSpec spec = some_spec(random, shape);
    std::vector<std::int64_t> new_places =
        counted_from(0, static_cast<std::int64_t>(shape.size()) + (random.one_in(3) ? 1 : 0), 1);
    random.shuffle(new_places);
    std::vector<std::optional<std::int64_t>> to;
    for (std::size_t dim = 0; dim < shape.size(); ++dim) to.emplace_back(new_places[dim]);
    const Array whole = whole_array(shape);
    const std::int64_t size_of_new = random.between(1, 3);
    const Array view = moved(whole, to, new_places.size(), size_of_new);
    const auto view_spec = with_dims_moved(spec, to, TensorMeta(view.shape, DType::F32));
    ASSERT_TRUE(view_spec) << to_string(spec);
    expect_same_debts(*view_spec, spec);
    for (const Coordinate& at : places(spec)) {
      ASSERT_EQ(tile_of(view, *view_spec, at),
                moved(tile_of(whole, spec, at), to, new_places.size(), size_of_new))
          << to_string(spec) << " -> " << to_string(*view_spec);
    }
  }
}

TEST(ViewsLaw, ADimCanGoAwayUnlessItIsCut) {
  Random random(2);
  for (int round = 0; round < 1000; ++round) {
    Shape shape = some_shape(random, 1, 4);
    const auto gone =
        static_cast<std::size_t>(random.between(0, static_cast<std::int64_t>(shape.size()) - 1));
    shape[gone] = random.between(1, 3);
    const DTensorSpec spec = some_spec(random, shape);
    std::vector<std::optional<std::int64_t>> to;
    for (std::size_t dim = 0; dim < shape.size(); ++dim) {
      if (dim == gone) {
        to.emplace_back(std::nullopt);
      } else {
        to.emplace_back(static_cast<std::int64_t>(dim < gone ? dim : dim - 1));
      }
    }
    const Array whole = whole_array(shape);
    const Array view = moved(whole, to, shape.size() - 1, 1);
    const auto view_spec = with_dims_moved(spec, to, TensorMeta(view.shape, DType::F32));
    ASSERT_EQ(view_spec.has_value(), !spec.dim_cuts()[gone].is_cut()) << to_string(spec);
    if (!view_spec) continue;
    for (const Coordinate& at : places(spec)) {
      ASSERT_EQ(tile_of(view, *view_spec, at),
                moved(tile_of(whole, spec, at), to, shape.size() - 1, 1))
          << to_string(spec) << " -> " << to_string(*view_spec);
    }
  }
}

DimSlice some_slice(Random& random, const Shape& shape) {
  DimSlice slice;
  slice.dim = random.between(0, static_cast<std::int64_t>(shape.size()) - 1);
  const std::int64_t size = shape[static_cast<std::size_t>(slice.dim)];
  slice.begin = random.between(0, size);
  slice.end = random.between(slice.begin, size);
  slice.step = random.between(1, 4);
  return slice;
}

TEST(ViewsLaw, TheTileOfASliceIsTheSliceOfTheTile) {
  Random random(3);
  int cut = 0;
  for (int round = 0; round < 4000; ++round) {
    const Shape shape = some_shape(random, 1, 3);
    const DTensorSpec spec = some_spec(random, shape);
    const DimSlice slice = some_slice(random, shape);
    const Array whole = whole_array(shape);
    const Array view = sliced_array(whole, slice);
    const auto view_spec = sliced(spec, slice, TensorMeta(view.shape, DType::F32));
    const DimCut& dim_cut = spec.dim_cuts()[static_cast<std::size_t>(slice.dim)];
    if (!view_spec) {
      EXPECT_GT(dim_cut.most_intervals(), 1) << to_string(spec);
      continue;
    }
    expect_same_debts(*view_spec, spec);
    if (dim_cut.is_cut()) ++cut;
    for (const Coordinate& at : places(spec)) {
      DimSlice mine = slice;
      if (dim_cut.is_cut()) mine = slice_within(slice, dim_cut.intervals(at));
      ASSERT_EQ(tile_of(view, *view_spec, at), sliced_array(tile_of(whole, spec, at), mine))
          << to_string(spec) << " -> " << to_string(*view_spec) << " by " << slice.begin << ":"
          << slice.end << ":" << slice.step;
    }
  }
  EXPECT_GT(cut, 1000);
}

TEST(ViewsLaw, ASliceWithinAnIntervalHoldsWhatTheSliceHasOfIt) {
  for (std::int64_t begin = 0; begin <= 7; ++begin) {
    for (std::int64_t end = begin; end <= 7; ++end) {
      for (std::int64_t step = 1; step <= 4; ++step) {
        for (std::int64_t first = 0; first <= 7; ++first) {
          for (std::int64_t size = 0; first + size <= 7; ++size) {
            const DimSlice mine = slice_within({0, begin, end, step}, {first, size});
            std::vector<std::int64_t> want;
            for (std::int64_t element : counted_from(begin, end, step)) {
              if (element >= first && element < first + size) want.push_back(element - first);
            }
            ASSERT_EQ(counted_from(mine.begin, mine.end, mine.step), want)
                << begin << ":" << end << ":" << step << " in " << first << " + " << size;
            ASSERT_GE(mine.begin, 0);
            ASSERT_LE(mine.begin, mine.end);
            ASSERT_LE(mine.end, size);
          }
        }
      }
    }
  }
}

// Every way to write `count` as a product of up to `most` sizes.
void add_shapes(std::int64_t count, std::size_t most, Shape& begun, std::vector<Shape>& into) {
  if (count == 1) into.push_back(begun);
  if (begun.size() == most) return;
  for (std::int64_t size = 1; size <= count; ++size) {
    if (count % size != 0) continue;
    begun.push_back(size);
    add_shapes(count / size, most, begun, into);
    begun.pop_back();
  }
}

std::vector<Shape> shapes_of(std::int64_t count) {
  std::vector<Shape> shapes;
  Shape begun;
  add_shapes(count, 4, begun, shapes);
  return shapes;
}

void check_regrouped(const DTensorSpec& spec, const Shape& shape, int& found) {
  const Array whole = whole_array(spec.shape());
  const auto view_spec = regrouped(spec, TensorMeta(shape, DType::F32));
  if (!view_spec) return;
  ++found;
  ASSERT_EQ(view_spec->shape(), shape);
  expect_same_debts(*view_spec, spec);
  const Array view = regrouped_array(whole, shape);
  for (const Coordinate& at : places(spec)) {
    ASSERT_EQ(tile_of(view, *view_spec, at).names, tile_of(whole, spec, at).names)
        << to_string(spec) << " -> " << to_string(*view_spec);
    ASSERT_EQ(count(local_shape(*view_spec, at)), count(local_shape(spec, at)));
  }
}

TEST(ViewsLaw, RegroupedTilesHoldTheSameElementsInTheSameOrder) {
  Random random(4);
  int found = 0;
  for (const std::int64_t total : {1, 4, 6, 8, 12, 16, 24}) {
    const std::vector<Shape> shapes = shapes_of(total);
    for (int round = 0; round < 1500; ++round) {
      const DTensorSpec spec = some_spec(random, random.pick(shapes));
      check_regrouped(spec, random.pick(shapes), found);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(found, 2000);
}

TEST(ViewsLaw, ATensorThatIsNotCutCanBeRegroupedFreely) {
  Random random(5);
  const std::vector<Shape> shapes = shapes_of(12);
  for (int round = 0; round < 200; ++round) {
    const DTensorSpec spec = some_spec(random, random.pick(shapes));
    if (spec.is_sharded()) continue;
    const TensorMeta meta(random.pick(shapes), DType::F32);
    EXPECT_EQ(regrouped(spec, meta), spec.with_meta(meta));
  }
}

TEST(ViewsLaw, RegroupingToTheSameShapeChangesNothing) {
  Random random(6);
  for (int round = 0; round < 1000; ++round) {
    const Shape shape = some_shape(random, 0, 4);
    if (count(shape) == 0) continue;
    const DTensorSpec spec = some_spec(random, shape);
    const auto same = regrouped(spec, spec.meta());
    ASSERT_TRUE(same) << to_string(spec);
    for (const Coordinate& at : places(spec)) {
      EXPECT_EQ(slice_at(*same, at), slice_at(spec, at)) << to_string(spec);
    }
  }
}

// --- examples

std::string regrouped_text(const char* spec, const Shape& shape) {
  const auto view = regrouped(parse_spec(spec), TensorMeta(shape, DType::F32));
  return view ? to_string(*view) : "none";
}

TEST(Views, RegroupingKeepsCutsThatTheNewDimsCanExpress) {
  EXPECT_EQ(regrouped_text("f32[8, 6] on (a=2) as [S(0)]", {48}), "f32[48] on (a=2) as [S(0)]");
  EXPECT_EQ(regrouped_text("f32[4, 6] on (a=2) as [S(1)]", {24}),
            "f32[24] on (a=2) as [S(0, blocks=4)]");
  EXPECT_EQ(regrouped_text("f32[24] on (a=2) as [S(0, blocks=4)]", {4, 6}),
            "f32[4, 6] on (a=2) as [S(1)]");
  EXPECT_EQ(regrouped_text("f32[48] on (a=2) as [S(0)]", {8, 6}), "f32[8, 6] on (a=2) as [S(0)]");
  EXPECT_EQ(regrouped_text("f32[8, 6] on (a=2, b=2) as [S(0), S(0)]", {4, 2, 6}),
            "f32[4, 2, 6] on (a=2, b=2) as [S(0), S(0)]");
  EXPECT_EQ(regrouped_text("f32[8, 6] on (a=2, b=3) as [S(0), S(1)]", {2, 4, 3, 2}),
            "f32[2, 4, 3, 2] on (a=2, b=3) as [S(0), S(2)]");
  EXPECT_EQ(regrouped_text("f32[5, 4, 6] on (a=2) as [S(1)]", {5, 2, 2, 6}),
            "f32[5, 2, 2, 6] on (a=2) as [S(1)]");
  EXPECT_EQ(regrouped_text("f32[8, 6] on (a=2) as [P(sum)]", {48}), "f32[48] on (a=2) as [P(sum)]");
}

TEST(Views, TwoCutDimsBecomeOneThatTheInnerAxisCutsInBlocks) {
  const char* const rows = "f32[24, 5] on (a=2, b=2) as [S(0), S(0, blocks=2)]";
  EXPECT_EQ(regrouped_text("f32[4, 6, 5] on (a=2, b=2) as [S(0), S(1)]", {24, 5}), rows);
  EXPECT_EQ(regrouped_text(rows, {4, 6, 5}), "f32[4, 6, 5] on (a=2, b=2) as [S(0), S(1)]");
  EXPECT_EQ(regrouped_text("f32[4, 6] on (a=2, b=2) as [S(1), S(0)]", {24}),
            "f32[24] on (a=2, b=2) as [S(0, blocks=2)[1], S(0)[0]]");
  EXPECT_EQ(regrouped_text("f32[24] on (a=2, b=2) as [S(0), S(0)]", {2, 12}),
            "f32[2, 12] on (a=2, b=2) as [S(0), S(1)]");
}

TEST(ViewsLaw, DimsThatBecomeOneAndAreSplitAgainAreCutAsBefore) {
  for (const std::int64_t b : {1, 2, 3, 4, 7}) {
    for (const std::int64_t s : {2, 3, 5, 6}) {
      for (const char* const cut :
           {"[S(0), S(1), R]", "[S(1), S(0), R]", "[S(0), S(1), S(1)]", "[S(0), S(0), S(1)]",
            "[S(0), R, S(2)]", "[S(2), S(1), S(0)]"}) {
        const std::string shape = "f32[" + std::to_string(b) + ", " + std::to_string(s) + ", 6]";
        const DTensorSpec spec = parse_spec(shape + " on (a=2, b=3, c=2) as " + cut);
        const auto rows = regrouped(spec, TensorMeta({b * s, 6}, DType::F32));
        ASSERT_TRUE(rows) << to_string(spec);
        const auto back = regrouped(*rows, spec.meta());
        ASSERT_TRUE(back) << to_string(*rows);
        for (const Coordinate& at : places(spec)) {
          if (count(local_shape(spec, at)) == 0) continue;
          EXPECT_EQ(slice_at(*back, at), slice_at(spec, at)) << to_string(spec);
        }
      }
    }
  }
}

TEST(Views, UnevenCutsBecomeListedSizes) {
  EXPECT_EQ(regrouped_text("f32[5, 6] on (a=2) as [S(0)]", {30}),
            "f32[30] on (a=2) as [S(0, sizes=[18, 12])]");
  EXPECT_EQ(regrouped_text("f32[30] on (a=2) as [S(0, sizes=[18, 12])]", {5, 6}),
            "f32[5, 6] on (a=2) as [S(0)]");
}

TEST(Views, RegroupingThatMixesShardsIsNone) {
  EXPECT_EQ(regrouped_text("f32[8, 6] on (a=4) as [S(0)]", {6, 8}), "none");
  EXPECT_EQ(regrouped_text("f32[6] on (a=4) as [S(0)]", {2, 3}), "none");
  EXPECT_EQ(regrouped_text("f32[0, 6] on (a=2) as [S(0)]", {0}), "none");
}

TEST(Views, SizesOfOneComeAndGo) {
  EXPECT_EQ(regrouped_text("f32[8, 6] on (a=2) as [S(0)]", {1, 8, 1, 6, 1}),
            "f32[1, 8, 1, 6, 1] on (a=2) as [S(1)]");
  EXPECT_EQ(regrouped_text("f32[1, 8, 1, 6, 1] on (a=2) as [S(3)]", {8, 6}),
            "f32[8, 6] on (a=2) as [S(1)]");
}

TEST(Views, ASliceOfACutDimIsRagged) {
  const auto text = [](const char* spec, const DimSlice& slice, const Shape& shape) {
    const auto view = sliced(parse_spec(spec), slice, TensorMeta(shape, DType::F32));
    return view ? to_string(*view) : "none";
  };
  EXPECT_EQ(text("f32[8] on (a=4) as [S(0)]", {0, 1, 6, 1}, {5}),
            "f32[5] on (a=4) as [S(0, sizes=[1, 2, 2, 0])]");
  EXPECT_EQ(text("f32[8] on (a=4) as [S(0)]", {0, 0, 8, 2}, {4}), "f32[4] on (a=4) as [S(0)]");
  EXPECT_EQ(text("f32[8, 3] on (a=4) as [S(0)]", {1, 1, 3, 1}, {8, 2}),
            "f32[8, 2] on (a=4) as [S(0)]");
  EXPECT_EQ(text("f32[8] on (a=2) as [S(0, blocks=2)]", {0, 1, 6, 1}, {5}),
            "f32[5] on (a=2) as [S(0, sizes=[1, 2, 2, 0])]");
  EXPECT_EQ(text("f32[8] on (a=2) as [S(0, blocks=2)]", {0, 0, 8, 2}, {4}), "none");
  // query, key and value side by side
  EXPECT_EQ(text("f32[12] on (a=2) as [S(0, blocks=3)]", {0, 4, 8, 1}, {4}),
            "f32[4] on (a=2) as [S(0)]");
  EXPECT_EQ(text("f32[12] on (a=2) as [S(0, blocks=3)]", {0, 5, 7, 1}, {2}),
            "f32[2] on (a=2) as [S(0)]");
  EXPECT_EQ(text("f32[12] on (a=2) as [S(0, blocks=3)]", {0, 4, 12, 1}, {8}),
            "f32[8] on (a=2) as [S(0, blocks=2)]");
  EXPECT_EQ(text("f32[8] on (a=2) as [P(max)]", {0, 1, 6, 1}, {5}), "f32[5] on (a=2) as [P(max)]");
}

// Query of four heads, key and value of two: side by side, by heads of two, and one of them.
TEST(Views, UnequalPartsOfAPackedDimAreCutByThemselves) {
  const char* const packed = "f32[16] on (a=2) as [S(0, sizes=[4, 4, 2, 2, 2, 2])]";
  const auto part = [&](std::int64_t begin, std::int64_t end) {
    const TensorMeta meta({end - begin}, DType::F32);
    return to_string(*sliced(parse_spec(packed), {0, begin, end, 1}, meta));
  };
  EXPECT_EQ(part(0, 8), "f32[8] on (a=2) as [S(0)]");
  EXPECT_EQ(part(8, 12), "f32[4] on (a=2) as [S(0)]");
  EXPECT_EQ(part(8, 16), "f32[8] on (a=2) as [S(0, blocks=2)]");
  EXPECT_EQ(part(6, 13), "f32[7] on (a=2) as [S(0, sizes=[0, 2, 2, 2, 1, 0])]");
  EXPECT_EQ(regrouped_text(packed, {8, 2}),
            "f32[8, 2] on (a=2) as [S(0, sizes=[2, 2, 1, 1, 1, 1])]");
  EXPECT_EQ(regrouped_text("f32[8, 2] on (a=2) as [S(0, sizes=[2, 2, 1, 1, 1, 1])]", {16}), packed);
  EXPECT_EQ(regrouped_text("f32[3, 16] on (a=2) as [S(1, sizes=[4, 4, 2, 2, 2, 2])]", {48}),
            "f32[48] on (a=2) as [S(0, blocks=3, sizes=[4, 4, 2, 2, 2, 2])]");
  EXPECT_EQ(
      regrouped_text("f32[48] on (a=2) as [S(0, blocks=3, sizes=[4, 4, 2, 2, 2, 2])]", {3, 16}),
      "f32[3, 16] on (a=2) as [S(1, sizes=[4, 4, 2, 2, 2, 2])]");
  EXPECT_EQ(regrouped_text("f32[8] on (a=2) as [S(0, sizes=[2, 2, 1, 1, 1, 1])]", {4, 2}), "none");
}

TEST(Views, ShardOrdersMoveAlong) {
  const DTensorSpec spec = parse_spec("f32[8, 6] on (a=2, b=2) as [S(0)[1], S(0)[0]]");
  EXPECT_EQ(to_string(*with_dims_moved(spec, {1, 0}, TensorMeta({6, 8}, DType::F32))),
            "f32[6, 8] on (a=2, b=2) as [S(1)[1], S(1)[0]]");
  EXPECT_EQ(to_string(*regrouped(spec, TensorMeta({48}, DType::F32))),
            "f32[48] on (a=2, b=2) as [S(0)[1], S(0)[0]]");
}

}  // namespace views_test
}  // namespace tegula::inner
