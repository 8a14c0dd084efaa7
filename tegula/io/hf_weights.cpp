#include "tegula/io/hf_weights.h"

#include <algorithm>

#include "tegula/base/error.h"
#include "tegula/files/rename.h"
#include "tegula/tensor/name_patterns.h"

namespace tegula::inner {
namespace {

std::int64_t rows_in(const Shape& shape) { return shape.empty() ? 1 : shape.front(); }

}  // namespace

bool matches_any(const std::vector<std::string>& patterns, const std::string& name) {
  return std::ranges::any_of(patterns, [&](const auto& one) { return matches(one, name); });
}

HfMeaning meaning_of(const std::string& name, const HfOptions& options) {
  for (const HfName& one : options.names) {
    for (std::size_t k = 0; k < one.ours.size(); ++k) {
      if (!renamed(name, one.ours[k], "")) continue;
      HfMeaning meaning{{}, k, {}};
      for (const std::string& pattern : one.ours) {
        meaning.ours.push_back(*renamed(name, one.ours[k], pattern));
      }
      for (const std::string& pattern : one.theirs) {
        meaning.theirs.push_back(*renamed(name, one.ours[k], pattern));
      }
      return meaning;
    }
  }
  return {{name}, 0, {name}};
}

void check_names(const HfOptions& options) {
  for (const HfName& one : options.names) {
    if (one.ours.empty() || one.theirs.empty()) {
      throw UsageError("a name of a weight has none of ours, or none of theirs");
    }
    Renames renames;
    for (const std::string& pattern : one.ours) renames.push_back({one.ours.front(), pattern});
    for (const std::string& pattern : one.ours) renames.push_back({pattern, one.ours.front()});
    for (const std::string& pattern : one.theirs) renames.push_back({one.ours.front(), pattern});
    check_renames(renames);
  }
}

std::vector<RowRange> row_ranges(const std::vector<Shape>& shapes) {
  std::vector<RowRange> ranges;
  std::int64_t begin = 0;
  for (const Shape& shape : shapes) {
    ranges.push_back({begin, begin + rows_in(shape)});
    begin = ranges.back().end;
  }
  return ranges;
}

bool have_alike_rows(const Shape& a, const Shape& b) {
  return a.size() == b.size() && (a.empty() || std::equal(a.begin() + 1, a.end(), b.begin() + 1));
}

std::vector<FilePiece> pieces_of(const RowRange& mine, const std::vector<RowRange>& theirs,
                                 const std::vector<FilePiece>& places, std::uint64_t row_bytes) {
  std::vector<FilePiece> pieces;
  for (std::size_t k = 0; k < theirs.size(); ++k) {
    const std::int64_t first = std::max(mine.begin, theirs[k].begin);
    const std::int64_t last = std::min(mine.end, theirs[k].end);
    if (first >= last) continue;
    const auto bytes_between = [&](std::int64_t from, std::int64_t to) {
      return static_cast<std::uint64_t>(to - from) * row_bytes;
    };
    pieces.push_back({places[k].file, places[k].file_begin + bytes_between(theirs[k].begin, first),
                      bytes_between(mine.begin, first), bytes_between(first, last)});
  }
  return pieces;
}

std::uint64_t row_bytes_of(const Shape& shape, DType dtype) {
  std::int64_t bytes = size_of(dtype);
  for (std::size_t dim = 1; dim < shape.size(); ++dim) bytes *= shape[dim];
  return static_cast<std::uint64_t>(bytes);
}

}  // namespace tegula::inner
