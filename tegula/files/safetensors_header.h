// The header of a safetensors file: which tensors it holds, and where.
//
// The format: a little-endian u64 N of at most 100,000,000; N bytes of JSON that begin with {; the
// data. The JSON maps each name to {"dtype", "shape", "data_offsets": [begin, end]}, counted from
// the data's begin, and "__metadata__" to texts by name. The tensors fill the data without holes or
// overlaps. Elements are in row-major order and little-endian. Nothing is aligned.
//
// Complex elements that the format lacks stand there as pairs: f64[8, 2] for c128[8], f16[8, 2] for
// c32[8], and the metadata names such tensors ("tegula.complex", a name per line). A header here
// has them as what they are.
//
// Knows nothing of torch. Whatever bytes come, the answer is a header that keeps to all of this, or
// a UsageError with the reason; memory in use stays within a small multiple of the bytes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tegula/spec/tensor_meta.h"

namespace tegula::inner {

// An element type of the format. Not all of them are types of ours.
struct FileDType {
  std::string_view name;  // "F32", "F8_E4M3", ...
  std::int64_t bits = 0;
  std::optional<DType> dtype;
};
// All 22, from the smallest; those of one size in the order in which the reference writer has them.
std::span<const FileDType> file_dtypes();
// Null if there is none of this name.
const FileDType* find_file_dtype(std::string_view name);
// c32 and c128, which are pairs in files, have entries of their own.
const FileDType& file_dtype_of(DType dtype);

struct FileTensor {
  std::string name;
  const FileDType* dtype = nullptr;
  Shape shape;
  std::uint64_t begin = 0;  // in the data
  std::uint64_t end = 0;
  std::uint64_t bytes() const { return end - begin; }
  bool operator==(const FileTensor&) const = default;
};

struct SafetensorsHeader {
  std::map<std::string, std::string> metadata;
  std::vector<FileTensor> tensors;  // in the order of their data
  bool operator==(const SafetensorsHeader&) const = default;
  // Null if there is none of this name. O(tensors).
  const FileTensor* find(std::string_view name) const;
};

// Bytes before the JSON: its length.
constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kMostHeaderBytes = 100'000'000;

// The length of the JSON of a file that begins with these 8 bytes. UsageError if it is longer than
// allowed, or than the file.
std::uint64_t header_length(std::string_view first_bytes, std::uint64_t file_size);

// Texts, each behind its length as the JSON of a file is: how ranks send headers to each other.
void append_block(std::string& bytes, std::string_view block);
// The first of them, which `bytes` loses. UsageError as header_length.
std::string_view take_block(std::string_view& bytes);
// From the JSON, of a file that has `data_size` bytes behind it. UsageError: it is no such header.
SafetensorsHeader parse_safetensors_header(std::string_view json, std::uint64_t data_size);

// Length and JSON of a header, filled up with spaces to a multiple of `alignment` bytes. Offsets
// are printed as they are. UsageError: names that are not UTF-8, a tensor named "__metadata__", a
// header longer than allowed.
std::string to_bytes(const SafetensorsHeader& header, std::uint64_t alignment);

// "f32[8, 16]" for a type of ours, "F4[8, 16]" for others.
std::string to_string(const FileTensor& tensor);

}  // namespace tegula::inner
