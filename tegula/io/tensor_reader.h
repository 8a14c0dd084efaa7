// Filling tensors from files, each rank its rows.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tegula/comm/group.h"
#include "tegula/files/file_layer.h"

namespace tegula::inner {

struct SourceFile {
  std::string path;
  std::uint64_t size = 0;
  std::uint64_t chunk_bytes = std::uint64_t{1} << 20;
  std::vector<std::uint32_t> checksums = {};  // empty: nothing is compared
};

// Bytes of a tensor, row-major, that stand in a file one after the other.
struct FilePiece {
  std::size_t file = 0;
  std::uint64_t file_begin = 0;
  std::uint64_t tensor_begin = 0;
  std::uint64_t bytes = 0;
};

// A tensor, plain or distributed, and where its elements are. They may be of another type there.
struct SourcedTensor {
  at::Tensor tensor;
  at::ScalarType type;
  std::vector<FilePiece> pieces;  // all of the tensor
};

// Fills the tensors this rank has. All members call it, those of a distributed tensor's mesh with
// the tensor, in one order. UsageError on all of them if one cannot read, or finds a damaged chunk;
// the tensors may have changed then.
void read_tensors(const Group& group, FileLayer& files, const std::vector<SourceFile>& sources,
                  const std::vector<SourcedTensor>& tensors);

}  // namespace tegula::inner
