#include "tegula/bridge/tiles.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tegula/base/error.h"
#include "tegula/bridge/torch_types.h"

namespace tegula {
namespace tiles_test {

std::vector<Coordinate> coordinates_of(const DeviceMesh& mesh) {
  std::vector<Coordinate> coordinates;
  for (std::int64_t rank : mesh.ranks()) coordinates.push_back(*mesh.coordinate_of(rank));
  return coordinates;
}

std::vector<at::Tensor> cut_all(const at::Tensor& whole, const DTensorSpec& spec) {
  std::vector<at::Tensor> tiles;
  for (const Coordinate& coordinate : coordinates_of(spec.mesh())) {
    tiles.push_back(cut_tile(whole, spec, coordinate));
  }
  return tiles;
}

at::Tensor counting(const Shape& shape) {
  std::int64_t numel = 1;
  for (std::int64_t size : shape) numel *= size;
  return at::arange(numel, at::kFloat).view(shape);
}

TEST(TilesLaw, JoiningTheTilesGivesTheTensorBack) {
  const char* specs[] = {
      "f32[10, 7] on (dp=2, tp=3) as [S(0), S(1)]",
      "f32[10, 7] on (dp=2, tp=3) as [S(1), S(1)]",
      "f32[10, 7] on (dp=2, tp=3) as [S(0)[1], S(0)[0]]",
      "f32[10, 7] on (dp=2, tp=3) as [R, S(0, sizes=[7, 0, 3])]",
      "f32[12] on (dp=2, tp=3) as [S(0), S(0, blocks=2)]",
      "f32[1, 2, 3] on (a=2, b=2, c=2) as [S(2), R, S(0)]",
      "f32[0, 4] on (a=3) as [S(0)]",
      "f32[] on (a=3) as [R]",
      "f32[4, 6] strides [1, 4] on (a=4) as [S(1)]",
      "f32[5, 6] on (b=2, a=3) of (a=3, b=2) as [S(1), S(0)]",
  };
  for (const char* text : specs) {
    const DTensorSpec spec = parse_spec(text);
    const at::Tensor whole = counting(spec.shape());
    const at::Tensor joined = join_tiles(cut_all(whole, spec), spec);
    EXPECT_TRUE(at::equal(joined, whole)) << text;
    EXPECT_EQ(joined.strides().vec(), spec.meta().stride()) << text;
  }
}

TEST(TilesLaw, EveryTileHasTheShapeAndStridesOfItsSlice) {
  const DTensorSpec spec =
      parse_spec("f32[4, 8, 6] strides [48, 1, 8] on (a=3, b=2) as [S(2), S(1)]");
  for (const Coordinate& at : coordinates_of(spec.mesh())) {
    const at::Tensor tile = cut_tile(counting(spec.shape()), spec, at);
    EXPECT_EQ(tile.sizes().vec(), local_shape(spec, at));
    EXPECT_EQ(tile.strides().vec(), local_stride(spec, at));
  }
}

TEST(Tiles, HoldWhatTheirIntervalsSay) {
  const DTensorSpec spec = parse_spec("f32[9] on (a=4) as [S(0, blocks=2)]");
  const std::vector<at::Tensor> tiles = cut_all(counting({9}), spec);
  EXPECT_TRUE(at::equal(tiles[0], at::tensor({0.F, 1.F, 5.F})));
  EXPECT_TRUE(at::equal(tiles[1], at::tensor({2.F, 3.F, 6.F})));
  EXPECT_TRUE(at::equal(tiles[2], at::tensor({4.F, 7.F})));
  EXPECT_TRUE(at::equal(tiles[3], at::tensor({8.F})));
}

TEST(Tiles, JoiningDoesTheReductionsThatAreOwed) {
  const at::Tensor a = at::tensor({6, 3}, at::kLong);
  const at::Tensor b = at::tensor({2, 5}, at::kLong);
  const auto joined = [&](const char* op) {
    return join_tiles({a, b}, parse_spec("i64[2] on (a=2) as [P(" + std::string(op) + ")]"));
  };
  EXPECT_TRUE(at::equal(joined("sum"), at::tensor({8, 8}, at::kLong)));
  EXPECT_TRUE(at::equal(joined("avg"), at::tensor({4, 4}, at::kLong)));
  EXPECT_TRUE(at::equal(joined("min"), at::tensor({2, 3}, at::kLong)));
  EXPECT_TRUE(at::equal(joined("max"), at::tensor({6, 5}, at::kLong)));
  EXPECT_TRUE(at::equal(joined("product"), at::tensor({12, 15}, at::kLong)));
  EXPECT_TRUE(at::equal(joined("band"), at::tensor({2, 1}, at::kLong)));
  EXPECT_TRUE(at::equal(joined("bor"), at::tensor({6, 7}, at::kLong)));
  EXPECT_TRUE(at::equal(joined("bxor"), at::tensor({4, 6}, at::kLong)));
}

TEST(Tiles, ShardsOfAPartialAreReducedBeforeTheyAreJoined) {
  const DTensorSpec spec = parse_spec("f32[3] on (a=2, b=2) as [P(sum), S(0)]");
  const std::vector<at::Tensor> tiles{at::tensor({1.F, 2.F}), at::tensor({3.F}),
                                      at::tensor({10.F, 20.F}), at::tensor({30.F})};
  EXPECT_TRUE(at::equal(join_tiles(tiles, spec), at::tensor({11.F, 22.F, 33.F})));
}

TEST(Tiles, AMisfitIsRefusedWithTheFacts) {
  const DTensorSpec spec = parse_spec("f32[4] on (a=2) as [S(0)]");
  EXPECT_THROW(cut_tile(at::zeros({5}), spec, {0}), UsageError);
  EXPECT_THROW(cut_tile(at::zeros({4}, at::kDouble), spec, {0}), UsageError);
  EXPECT_THROW(cut_tile(at::zeros({4}), spec, {2}), UsageError);
  EXPECT_THROW(join_tiles({at::zeros({2})}, spec), UsageError);
  EXPECT_THROW(join_tiles({at::zeros({2}), at::Tensor()}, spec), UsageError);
  try {
    join_tiles({at::zeros({2}), at::zeros({3})}, spec);
    FAIL() << "nothing was thrown";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "tegula: tile 1 does not fit its spec\n"
                 "  tensor  Float[3]\n"
                 "  wanted  f32[2]\n"
                 "  spec    f32[4] on (a=2) as [S(0)]\n"
                 "  hint    check the tensor's shape and element type");
  }
}

TEST(TorchTypes, EveryElementTypeHasLibtorchsNumberAndSize) {
  for (DType dtype : all_dtypes()) {
    if (!libtorch_has(dtype)) {
      EXPECT_THROW(scalar_type_of(dtype), UsageError) << name_of(dtype);
      continue;
    }
    EXPECT_EQ(dtype_of(scalar_type_of(dtype)), dtype);
    EXPECT_EQ(static_cast<std::int64_t>(c10::elementSize(scalar_type_of(dtype))), size_of(dtype))
        << name_of(dtype);
  }
  EXPECT_THROW(dtype_of(at::kQInt8), UsageError);
  EXPECT_THROW(dtype_of(at::ScalarType::Undefined), UsageError);
  EXPECT_EQ(to_string(meta_of(at::zeros({2, 3}).t())), "f32[3, 2] strides [1, 3]");
}

}  // namespace tiles_test
}  // namespace tegula
