#include "tegula/files/file_plan.h"

#include <gtest/gtest.h>

#include "tegula/base/error.h"

namespace tegula::inner {
namespace file_plan_test {

TEST(FilePlan, PutsLargeElementsFirstAndFillsFilesUpToASize) {
  FilePlanOptions options;
  options.most_bytes = 64;
  const FilePlan plan = plan_files({{"b", DType::F32, {8}},
                                    {"a", DType::F32, {8}},
                                    {"huge", DType::U8, {1000}},
                                    {"none", DType::U8, {0, 4}},
                                    {"count", DType::I64, {}}},
                                   options);
  ASSERT_EQ(plan.files.size(), 3u);
  std::string order;
  for (const PlannedTensor& one : plan.tensors) {
    order += one.tensor.name + std::to_string(one.file) + " ";
    EXPECT_EQ(one.begin % static_cast<std::uint64_t>(size_of(one.tensor.dtype)), 0u);
    EXPECT_GE(one.begin, 4096u);
  }
  EXPECT_EQ(order, "count0 a0 b1 huge2 none2 ");
  EXPECT_EQ(plan.files[0].name, "state-00001-of-00003.safetensors");
  EXPECT_EQ(plan.files[0].size, 4096u + 8 + 32);
  EXPECT_EQ(plan.files[2].size, 4096u + 1000);
}

TEST(FilePlan, OfNothingIsOneFile) {
  const FilePlan plan = plan_files({}, {});
  ASSERT_EQ(plan.files.size(), 1u);
  EXPECT_EQ(plan.files[0].size, 4096u);
}

TEST(FilePlan, RefusesANameThatStandsTwice) {
  EXPECT_THROW(plan_files({{"a", DType::F32, {1}}, {"a", DType::F64, {1}}}, {}), UsageError);
}

}  // namespace file_plan_test
}  // namespace tegula::inner
