// Which file of a checkpoint a tensor goes to, and at which byte: a fact of the tensors' names,
// types and shapes alone, so that every rank finds it out by itself and the bytes do not depend on
// ranks.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tegula/files/safetensors_header.h"

namespace tegula::inner {

struct NamedTensor {
  std::string name;
  DType dtype = DType::F32;
  Shape shape;
  bool operator==(const NamedTensor&) const = default;
};

struct PlannedFile {
  std::string name;    // "state-00001-of-00002.safetensors"
  std::string header;  // its first bytes, up to the data
  std::uint64_t size = 0;
};

struct PlannedTensor {
  NamedTensor tensor;
  std::size_t file = 0;
  std::uint64_t begin = 0;  // in the file
  std::uint64_t bytes = 0;
};

struct FilePlan {
  std::vector<PlannedFile> files;
  std::vector<PlannedTensor> tensors;  // as they lie in the files
};

struct FilePlanOptions {
  std::string stem = "state";
  // A file takes no more, but for one tensor that has more by itself.
  std::uint64_t most_bytes = std::uint64_t{5} << 30;
  // Of the first byte of the data.
  std::uint64_t alignment = 4096;
  std::map<std::string, std::string> metadata = {};
};

// Large elements first, then by name, so that elements are aligned. No tensors: one file without
// any. UsageError: a name twice, types that the format lacks, sizes that overflow.
FilePlan plan_files(std::vector<NamedTensor> tensors, const FilePlanOptions& options);

}  // namespace tegula::inner
