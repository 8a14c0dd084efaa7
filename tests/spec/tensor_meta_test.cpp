#include "tegula/spec/tensor_meta.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <sstream>

#include "tests/placement/usage_error.h"
#include "tests/spec/generated.h"

namespace tegula {
namespace tensor_meta_test {

constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

TEST(TensorMetaLaw, WhatIsPrintedReadsBackEqual) {
  Random random(11);
  std::set<std::string> texts;
  for (int i = 0; i < 3000; ++i) {
    const TensorMeta meta = generated_meta(random, 4, 9);
    const std::string text = to_string(meta);
    ASSERT_EQ(parse_tensor_meta(text), meta) << text;
    ASSERT_EQ(parse_tensor_meta(text).hash(), meta.hash()) << text;
    texts.insert(text);
  }
  EXPECT_GT(texts.size(), 2000U);
}

// Walks all elements in the order of the dims by descending `like`: a dense tensor visits the
// addresses 0, 1, 2, ...
void expect_dense(const Shape& shape, const Shape& like, const Shape& stride) {
  std::vector<std::size_t> order(shape.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return like[a] > like[b]; });
  Shape sizes;
  for (std::size_t dim : order) sizes.push_back(shape[dim]);
  std::int64_t address = 0;
  for (const Coordinate& at : all_coordinates(sizes)) {
    std::int64_t found = 0;
    for (std::size_t i = 0; i < order.size(); ++i) found += at[i] * stride[order[i]];
    ASSERT_EQ(found, address++) << ::testing::PrintToString(shape) << " like "
                                << ::testing::PrintToString(like);
  }
}

TEST(TensorMetaLaw, DenseStridesKeepTheOrderOfTheDimsInMemory) {
  Random random(12);
  int cases = 0;
  for (int i = 0; i < 3000; ++i) {
    Shape shape(static_cast<std::size_t>(random.between(0, 4)));
    Shape like(shape.size());
    for (std::int64_t& size : shape) size = random.between(0, 4);
    for (std::int64_t& step : like) step = random.between(1, 5);
    expect_dense(shape, like, dense_strides_like(shape, like));
    ASSERT_EQ(dense_strides_like(shape, row_major_strides(Shape(shape.size(), 2))),
              row_major_strides(shape));
    ++cases;
  }
  EXPECT_EQ(cases, 3000);
}

TEST(TensorMeta, PrintsStridesOnlyIfTheyAreNotRowMajor) {
  EXPECT_EQ(to_string(TensorMeta({8, 16}, DType::F32)), "f32[8, 16]");
  EXPECT_EQ(to_string(TensorMeta({8, 16}, {16, 1}, DType::F32)), "f32[8, 16]");
  EXPECT_EQ(to_string(TensorMeta({8, 16}, {1, 8}, DType::BF16)), "bf16[8, 16] strides [1, 8]");
  EXPECT_EQ(to_string(TensorMeta({}, DType::Bool)), "bool[]");
  std::ostringstream out;
  out << TensorMeta({2}, {0}, DType::I64);
  EXPECT_EQ(out.str(), "i64[2] strides [0]");
}

TEST(TensorMeta, RowMajorStridesCountASizeOfZeroAsOne) {
  EXPECT_EQ(row_major_strides({2, 3, 4}), (Shape{12, 4, 1}));
  EXPECT_EQ(row_major_strides({2, 0, 4}), (Shape{4, 4, 1}));
  EXPECT_EQ(row_major_strides({}), Shape{});
}

TEST(TensorMeta, CountsItsElements) {
  EXPECT_EQ(TensorMeta({2, 3, 4}, DType::F32).numel(), 24);
  EXPECT_EQ(TensorMeta({}, DType::F32).numel(), 1);
  EXPECT_EQ(TensorMeta({7, 0}, DType::F32).numel(), 0);
  EXPECT_EQ(TensorMeta({kMost}, DType::U8).numel(), kMost);
}

TEST(TensorMeta, EqualityAndHashSeeShapeStrideAndType) {
  const TensorMeta meta({4, 6}, DType::F32);
  EXPECT_EQ(meta, TensorMeta({4, 6}, {6, 1}, DType::F32));
  const std::vector<TensorMeta> others = {{{6, 4}, DType::F32},
                                          {{4, 6}, DType::F64},
                                          {{4, 6}, {1, 4}, DType::F32},
                                          {{4, 6, 1}, DType::F32}};
  for (const TensorMeta& other : others) {
    EXPECT_NE(meta, other);
    EXPECT_NE(meta.hash(), other.hash());
  }
}

TEST(TensorMeta, DenseStridesAreZeroWhereTheDimIsExpanded) {
  EXPECT_EQ(dense_strides_like({4, 8, 2}, {32, 1, 8}), (Shape{16, 1, 8}));
  EXPECT_EQ(dense_strides_like({4, 8, 2}, {2, 0, 1}), (Shape{2, 0, 1}));
  EXPECT_EQ(dense_strides_like({0, 3}, {3, 1}), (Shape{3, 1}));
  EXPECT_EQ(dense_strides_like({}, {}), Shape{});
}

TEST(TensorMeta, HasNoNegativeSizes) {
  EXPECT_EQ(usage_error_of([] { TensorMeta({8, -1}, DType::F32); }),
            "tegula: a tensor cannot have a size of -1\n"
            "  tensor  f32[8, -1]\n"
            "  hint    sizes are 0 or more");
  EXPECT_THROW(TensorMeta({kLeast}, DType::F32), UsageError);
}

TEST(TensorMeta, HasNoMoreBytesThanCanBeCounted) {
  EXPECT_EQ(usage_error_of([] { TensorMeta({kMost, 2}, DType::F32); }),
            "tegula: a tensor cannot have more bytes than 63 bits count\n"
            "  tensor  f32[9223372036854775807, 2]\n"
            "  hint    check the sizes");
  EXPECT_THROW(TensorMeta({kMost, 0, kMost}, DType::U8), UsageError);
  EXPECT_THROW(TensorMeta({kMost / 4 + 1}, DType::F32), UsageError);
  EXPECT_EQ(TensorMeta({kMost / 4}, DType::F32).numel(), kMost / 4);
}

TEST(TensorMeta, NeedsOneStridePerDimAndNoneNegative) {
  EXPECT_EQ(usage_error_of([] { TensorMeta({8, 6}, {1}, DType::F32); }),
            "tegula: a tensor with 2 dims cannot have 1 stride\n"
            "  tensor  f32[8, 6]\n"
            "  strides [1]\n"
            "  hint    give one stride per dim");
  EXPECT_EQ(usage_error_of([] { TensorMeta({8}, {-2}, DType::F32); }),
            "tegula: a tensor cannot have a stride of -2\n"
            "  tensor  f32[8]\n"
            "  strides [-2]\n"
            "  hint    strides are 0 or more");
}

TEST(TensorMeta, StridesOfSizesThatCannotBeCountedAreRefused) {
  EXPECT_EQ(usage_error_of([] { row_major_strides({2, kMost, kMost}); }),
            "tegula: strides of these sizes do not fit in 63 bits\n"
            "  sizes   [2, 9223372036854775807, 9223372036854775807]\n"
            "  hint    check the sizes");
  EXPECT_THROW(dense_strides_like({kMost, kMost, kMost}, {1, 2, 3}), UsageError);
  EXPECT_EQ(usage_error_of([] { dense_strides_like({2, 3}, {1}); }),
            "tegula: cannot lay out 2 dims in the order of 1 stride\n"
            "  sizes   [2, 3]\n"
            "  strides [1]\n"
            "  hint    give one stride per dim");
}

TEST(TensorMeta, AMisfitSaysHowATensorIsWritten) {
  EXPECT_EQ(usage_error_of([] { parse_tensor_meta("f32(8)"); }),
            "tegula: cannot read a tensor: expected \"[\" where \"(8)\" stands\n"
            "  text    f32(8)\n"
            "  place   character 4\n"
            "  hint    write a tensor like f32[8, 16]");
  for (const char* text :
       {"", "f32", "f32[", "f32[8", "f32[8,]", "f32[8] strides", "f32[8] strides [1, 2]",
        "f32[9223372036854775808]", "f32[8] x", "[8]", "f32[[8]]"}) {
    EXPECT_THROW(parse_tensor_meta(text), UsageError) << text;
  }
}

TEST(DType, NamesReadBackAndAreAllDifferent) {
  std::set<std::string_view> names;
  for (DType dtype : all_dtypes()) {
    EXPECT_EQ(parse_dtype(name_of(dtype)), dtype);
    EXPECT_GE(size_of(dtype), 1);
    names.insert(name_of(dtype));
  }
  EXPECT_EQ(names.size(), 21U);
  EXPECT_EQ(size_of(DType::C64), 8);
  EXPECT_EQ(name_of(DType::C64), "c64");
}

TEST(DType, AnUnknownOneIsRefused) {
  EXPECT_EQ(
      usage_error_of([] { parse_dtype("float"); }),
      "tegula: unknown element type \"float\"\n"
      "  hint    use one of f32, f64, f16, bf16, i64, i32, i16, i8, u8, u16, u32, u64, bool, c32, "
      "c64, c128, f8e5m2, f8e4m3fn, f8e5m2fnuz, f8e4m3fnuz, f8e8m0fnu");
  EXPECT_EQ(usage_error_of([] { name_of(static_cast<DType>(12)); }),
            "tegula: element type 12 is not supported\n"
            "  hint    quantized and bit types have no distributed form; convert the tensor first");
}

}  // namespace tensor_meta_test
}  // namespace tegula
