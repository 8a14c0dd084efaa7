// What the weights of a module are called in files of Hugging Face models, and which rows of them
// they are.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tegula/comm/world.h"
#include "tegula/io/file_reader.h"
#include "tegula/io/hugging_face.h"
#include "tegula/spec/tensor_meta.h"
#include "tegula/tensor/module_members.h"

namespace tegula::inner {

// What load_hf and export_hf do, for modules of any kind.
void load_hf_members(const std::vector<ModuleMember>& members, const std::string& folder,
                     const World& world, const HfOptions& options);
void export_hf_members(const std::vector<ModuleMember>& members, const std::string& folder,
                       const World& world, const HfOptions& options);

// What a name means: which of ours it is among those that are joined, and theirs.
struct HfMeaning {
  std::vector<std::string> ours;
  std::size_t index = 0;
  std::vector<std::string> theirs;
};
HfMeaning meaning_of(const std::string& name, const HfOptions& options);
// UsageError: patterns that do not go together.
void check_names(const HfOptions& options);

bool matches_any(const std::vector<std::string>& patterns, const std::string& name);

// Rows of one thing among the joined rows of all.
struct RowRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
std::vector<RowRange> row_ranges(const std::vector<Shape>& shapes);
// Whether rows of one could stand below those of the other.
bool have_alike_rows(const Shape& a, const Shape& b);
std::uint64_t row_bytes_of(const Shape& shape, DType dtype);
// Where the rows of one of ours are among theirs, in bytes.
std::vector<FilePiece> pieces_of(const RowRange& mine, const std::vector<RowRange>& theirs,
                                 const std::vector<FilePiece>& places, std::uint64_t row_bytes);

}  // namespace tegula::inner
