// Headers of safetensors files: what is right is read, what is not is refused with its reason.
#include "tegula/files/safetensors_header.h"

#include <gtest/gtest.h>

#include "tegula/base/error.h"

namespace tegula::inner {
namespace safetensors_header_test {

std::string length_bytes(std::uint64_t length) {
  std::string bytes;
  for (int k = 0; k < 8; ++k) bytes.push_back(static_cast<char>((length >> (8 * k)) & 0xff));
  return bytes;
}

// Why it is refused; empty: it is not.
std::string reason(const std::string& json, std::uint64_t data_size) {
  try {
    parse_safetensors_header(json, data_size);
  } catch (const UsageError& error) {
    return error.sentence();
  }
  return "";
}

TEST(SafetensorsHeader, IsReadInTheOrderOfTheData) {
  const SafetensorsHeader header = parse_safetensors_header(
      R"({"b": {"dtype": "F32", "shape": [2, 3], "data_offsets": [8, 32]},
          "__metadata__": {"format": "pt"},
          "a": {"shape": [], "data_offsets": [0, 8], "dtype": "I64"},
          "none": {"shape": [0, 5], "data_offsets": [32, 32], "dtype": "BF16"}}   )",
      32);
  ASSERT_EQ(header.tensors.size(), 3u);
  EXPECT_EQ(header.tensors[0].name, "a");
  EXPECT_EQ(to_string(header.tensors[0]), "i64[]");
  EXPECT_EQ(to_string(header.tensors[1]), "f32[2, 3]");
  EXPECT_EQ(to_string(header.tensors[2]), "bf16[0, 5]");
  EXPECT_EQ(header.metadata.at("format"), "pt");
  EXPECT_EQ(header.find("c"), nullptr);
}

TEST(SafetensorsHeader, PrintsAndReadsBack) {
  SafetensorsHeader header;
  header.metadata = {{"a \"key\"", "text\n\xc3\xa9"}};
  header.tensors = {{"x", find_file_dtype("F64"), {3, 1}, 0, 24},
                    {"y/\\", find_file_dtype("F4"), {5, 2}, 24, 29}};
  for (const std::uint64_t alignment : {1, 8, 4096}) {
    const std::string bytes = to_bytes(header, alignment);
    EXPECT_EQ(bytes.size() % alignment, 0u);
    const std::uint64_t length = header_length(bytes, bytes.size() + 29);
    EXPECT_EQ(length + 8, bytes.size());
    EXPECT_EQ(parse_safetensors_header(std::string_view(bytes).substr(8), 29), header);
  }
}

TEST(SafetensorsHeader, HasTwentyTwoElementTypes) {
  EXPECT_EQ(file_dtypes().size(), 22u);
  for (const FileDType& one : file_dtypes()) {
    EXPECT_EQ(find_file_dtype(one.name), &one);
    EXPECT_TRUE(!one.dtype || one.bits == 8 * size_of(*one.dtype)) << one.name;
  }
  EXPECT_EQ(file_dtype_of(DType::F8E4M3FN).name, "F8_E4M3");
}

TEST(SafetensorsHeader, HasComplexElementsThatTheFormatLacksAsPairs) {
  SafetensorsHeader header;
  header.metadata = {{"format", "pt"}};
  header.tensors = {{"c", &file_dtype_of(DType::C128), {2, 3}, 0, 96},
                    {"h", &file_dtype_of(DType::C32), {}, 96, 100},
                    {"r", find_file_dtype("F16"), {3, 2}, 100, 112}};
  const std::string bytes = to_bytes(header, 8);
  EXPECT_NE(bytes.find(R"("tegula.complex":"c\nh")"), std::string::npos) << bytes;
  EXPECT_NE(bytes.find(R"("c":{"dtype":"F64","shape":[2,3,2])"), std::string::npos) << bytes;
  EXPECT_NE(bytes.find(R"("h":{"dtype":"F16","shape":[2])"), std::string::npos) << bytes;
  EXPECT_EQ(parse_safetensors_header(std::string_view(bytes).substr(8), 112), header);

  const auto named = [](const std::string& name, const std::string& tensor) {
    return R"({"__metadata__":{"tegula.complex":")" + name + R"("},"x":)" + tensor + "}";
  };
  EXPECT_EQ(reason(named("y", R"({"dtype":"F64","shape":[2],"data_offsets":[0,16]})"), 16),
            "this is no safetensors header: a tensor that is called complex is not there");
  for (const char* tensor : {R"({"dtype":"F64","shape":[],"data_offsets":[0,8]})",
                             R"({"dtype":"F64","shape":[1],"data_offsets":[0,8]})",
                             R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})"}) {
    EXPECT_EQ(reason(named("x", tensor), 8),
              "this is no safetensors header: a tensor that is called complex does not consist of "
              "pairs");
  }
  EXPECT_EQ(find_file_dtype("C128"), nullptr);
}

TEST(SafetensorsHeader, OfElementsSmallerThanAByteFillsWholeBytes) {
  EXPECT_EQ(reason(R"({"x":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[0,3]}})", 3), "");
  EXPECT_EQ(reason(R"({"x":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}})", 2),
            "this is no safetensors header: a tensor does not fill whole bytes");
}

TEST(SafetensorsHeader, WithAnUnknownKeyOfATensorIsRead) {
  EXPECT_EQ(
      reason(R"({"x":{"note":{"shape":[[7]]},"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1),
      "");
}

TEST(SafetensorsHeader, ThatIsLongerThanAllowedOrThanItsFileIsRefused) {
  EXPECT_THROW(header_length("1234567", 7), UsageError);
  EXPECT_EQ(header_length(length_bytes(2), 10), 2u);
  EXPECT_THROW(header_length(length_bytes(3), 10), UsageError);
  EXPECT_THROW(header_length(length_bytes(100'000'001), std::uint64_t{1} << 40), UsageError);
  EXPECT_THROW(header_length(length_bytes(~std::uint64_t{0}), ~std::uint64_t{0}), UsageError);
}

struct Wrong {
  const char* json;
  std::uint64_t data_size;
  const char* why;
};

TEST(SafetensorsHeader, ThatIsWrongIsRefusedWithTheReason) {
  const std::vector<Wrong> all = {
      {"", 0, "it does not begin with {"},
      {" {}", 0, "it does not begin with {"},
      {"[]", 0, "it does not begin with {"},
      {"{", 0, "it is no JSON at byte 2"},
      {"{} x", 0, "it is no JSON at byte 4"},
      {"{\"\xff\":1}", 0, "it is no JSON at byte 3"},
      {R"({"\ud800":1})", 0, "it is no JSON at byte 9"},
      {R"({})", 1, "the tensors have 0 bytes, the file has 1 behind its header"},
      {R"({"x":1})", 0, "a number stands where none belongs"},
      {R"({"x":[]})", 0, "a list stands where none belongs"},
      {R"({"x":{}})", 0, "a tensor lacks one of dtype, shape, data_offsets"},
      {R"({"x":{"dtype":"F33","shape":[],"data_offsets":[0,4]}})", 4, "there is no dtype \"F33\""},
      {R"({"x":{"dtype":7}})", 0, "a number stands where none belongs"},
      {R"({"x":{"dtype":"U8","shape":[-1],"data_offsets":[0,0]}})", 0,
       "a negative number stands where none belongs"},
      {R"({"x":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})", 1,
       "a fraction, or a number of more than 64 bits stands where none belongs"},
      {R"({"x":{"dtype":"U8","shape":[36893488147419103232],"data_offsets":[0,1]}})", 1,
       "a fraction, or a number of more than 64 bits stands where none belongs"},
      {R"({"x":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,1]}})", 1,
       "a size does not fit in 63 bits"},
      {R"({"x":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0,
       "a tensor has more bits than 64 bits count"},
      {R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4,
       "shape and dtype need 8 bytes, data_offsets give 4"},
      {R"({"x":{"dtype":"U8","shape":[],"data_offsets":[1,0]}})", 1,
       "a tensor ends before it begins"},
      {R"({"x":{"dtype":"U8","shape":[],"data_offsets":[0]}})", 1,
       "data_offsets are not two numbers"},
      {R"({"x":{"dtype":"U8","shape":[[1]],"data_offsets":[0,1]}})", 1,
       "a list stands where none belongs"},
      {R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},
           "x":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
       2, "a name stands there twice"},
      {R"({"x":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}})", 1,
       "\"dtype\" stands there twice"},
      {R"({"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},
           "y":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
       3, "tensors overlap"},
      {R"({"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},
           "y":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})",
       5, "there is a hole before a tensor"},
      {R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", 2,
       "there is a hole before a tensor"},
      {R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 2,
       "the tensors have 1 bytes, the file has 2 behind its header"},
      {R"({"__metadata__":{"a":1}})", 0, "a number stands where none belongs"},
      {R"({"__metadata__":"a"})", 0, "a text stands where none belongs"},
  };
  for (const Wrong& one : all) {
    EXPECT_EQ(reason(one.json, one.data_size),
              std::string("this is no safetensors header: ") + one.why)
        << one.json;
  }
}

TEST(SafetensorsHeader, NestedDeeplyIsRefused) {
  const std::string deep = R"({"x":{"y":)" + std::string(100'000, '[');
  EXPECT_EQ(reason(deep, 0), "this is no safetensors header: it is nested too deeply");
}

TEST(SafetensorsHeader, HasNoTensorOfTheNameOfTheMetadata) {
  SafetensorsHeader header;
  header.tensors = {{"__metadata__", find_file_dtype("U8"), {}, 0, 1}};
  EXPECT_THROW(to_bytes(header, 8), UsageError);
  header.tensors[0].name = "\xff";
  EXPECT_THROW(to_bytes(header, 8), UsageError);
}

}  // namespace safetensors_header_test
}  // namespace tegula::inner
