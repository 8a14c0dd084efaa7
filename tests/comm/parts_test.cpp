// Regions, reductions and buffers by themselves.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <numeric>

#include "tegula/base/error.h"
#include "tegula/comm/buffers.h"
#include "tegula/comm/call.h"
#include "tegula/comm/reduce.h"
#include "tegula/comm/region.h"

namespace tegula::inner::comm {
namespace parts_test {

std::array<std::byte, 64> counted_bytes() {
  std::array<std::byte, 64> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i);
  return bytes;
}

TEST(Region, AnyRangePacksAndUnpacksToTheSameBytes) {
  std::array<std::byte, 64> memory = counted_bytes();
  const Region region{memory.data() + 1, 3, 8, 7};  // bytes 1-3, 9-11, ...
  std::array<std::byte, 21> flat{};
  pack(region, 0, region.bytes(), flat.data());
  for (std::int64_t i = 0; i < 21; ++i)
    EXPECT_EQ(flat[static_cast<std::size_t>(i)], static_cast<std::byte>(1 + i / 3 * 8 + i % 3));
  for (std::int64_t begin = 0; begin <= 21; ++begin) {
    for (std::int64_t end = begin; end <= 25; ++end) {  // beyond the end is cut
      std::array<std::byte, 64> other{};
      unpack(flat.data() + begin, {other.data() + 1, 3, 8, 7}, begin, end);
      for (std::int64_t i = 0; i < 21; ++i) {
        const auto place = static_cast<std::size_t>(1 + i / 3 * 8 + i % 3);
        EXPECT_EQ(other[place], i >= begin && i < end ? memory[place] : std::byte{0});
      }
    }
  }
}

TEST(Region, CopiesBetweenDifferentStrides) {
  std::array<std::byte, 64> from = counted_bytes();
  std::array<std::byte, 64> to{};
  copy({from.data(), 6, 8, 2}, {to.data(), 4, 5, 3});
  const std::vector<int> want = {0, 1, 2, 3, -1, 4, 5, 8, 9, -1, 10, 11, 12, 13};
  for (std::size_t i = 0; i < want.size(); ++i)
    EXPECT_EQ(to[i], want[i] < 0 ? std::byte{0} : static_cast<std::byte>(want[i]));
}

TEST(Reduce, HalfPrecisionIsRoundedOnce) {
  // In bf16 1 + 1/256 is 1: only a sum in f32 sees both parts.
  const at::Tensor one = at::ones({1}, at::kBFloat16);
  const at::Tensor part = at::full({1}, 1.0 / 256, at::kBFloat16);
  at::Tensor sum = at::empty({1}, at::kBFloat16);
  const void* sources[] = {one.data_ptr(), part.data_ptr(), part.data_ptr()};
  combine(DType::BF16, ReduceOp::Sum, sources, sum.data_ptr(), 1);
  EXPECT_EQ(sum.item<float>(), 1.0F + 1.0F / 128);
}

TEST(Reduce, WholeNumbersWrapAround) {
  const std::int8_t big[] = {127};
  const std::int8_t one[] = {1};
  std::int8_t sum[1];
  const void* sources[] = {big, one};
  combine(DType::I8, ReduceOp::Sum, sources, sum, 1);
  EXPECT_EQ(sum[0], -128);
}

TEST(Reduce, WhatHasNoMeaningIsRefused) {
  EXPECT_THROW(check_reducible(DType::F32, ReduceOp::Band), UsageError);
  EXPECT_THROW(check_reducible(DType::C64, ReduceOp::Max), UsageError);
  EXPECT_THROW(check_reducible(DType::I64, ReduceOp::Avg), UsageError);
  EXPECT_THROW(check_reducible(DType::F8E4M3FN, ReduceOp::Sum), UsageError);
  EXPECT_NO_THROW(check_reducible(DType::Bool, ReduceOp::Sum));
}

TEST(Call, DiffersInWhateverMustAgree) {
  const std::vector<std::int64_t> shape = {4, 2};
  const std::vector<std::int64_t> other = {2, 4};
  const Call call = Call(Kind::AllReduce, DType::F32, shape).reduced_by(ReduceOp::Sum);
  EXPECT_EQ(call.to_string(), "all_reduce(f32[4, 2], sum), call 0");
  EXPECT_EQ(call.fingerprint(),
            Call(Kind::AllReduce, DType::F32, shape).reduced_by(ReduceOp::Sum).fingerprint());
  EXPECT_NE(call.fingerprint(),
            Call(Kind::AllReduce, DType::F32, other).reduced_by(ReduceOp::Sum).fingerprint());
  EXPECT_NE(call.fingerprint(),
            Call(Kind::AllReduce, DType::I32, shape).reduced_by(ReduceOp::Sum).fingerprint());
  EXPECT_NE(call.fingerprint(),
            Call(Kind::AllReduce, DType::F32, shape).reduced_by(ReduceOp::Avg).fingerprint());
  EXPECT_NE(call.fingerprint(),
            Call(Kind::ReduceScatter, DType::F32, shape).reduced_by(ReduceOp::Sum).fingerprint());
  Call later = call;
  later.number(1);
  EXPECT_NE(call.fingerprint(), later.fingerprint());
}

TEST(Buffers, ALargeResultReusesWarmMemoryAndMayOutliveThePool) {
  at::Tensor survivor;
  {
    Buffers buffers;
    const void* first = nullptr;
    {
      const at::Tensor tensor = buffers.empty({1 << 20}, at::kFloat);
      first = tensor.data_ptr();
    }
    EXPECT_EQ(buffers.kept(), 4 << 20);
    survivor = buffers.empty({1 << 20}, at::kFloat);
    EXPECT_EQ(survivor.data_ptr(), first);
    EXPECT_EQ(buffers.kept(), 0);
    EXPECT_NE(buffers.empty({1 << 20}, at::kFloat).data_ptr(), first);
  }
  survivor.fill_(1);
  EXPECT_EQ(survivor.sum().item<float>(), 1 << 20);
}

TEST(Buffers, NoMoreIsKeptThanAllowed) {
  Buffers buffers(nullptr, std::int64_t{8} << 20);
  {
    std::vector<at::Tensor> tensors;
    for (int i = 0; i < 5; ++i) tensors.push_back(buffers.empty({4 << 20}, at::kByte));
  }
  EXPECT_LE(buffers.kept(), 8 << 20);
}

}  // namespace parts_test
}  // namespace tegula::inner::comm
