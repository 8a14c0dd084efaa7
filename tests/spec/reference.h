// Who holds which elements of a dim, found by dealing them out one by one as cut.h says in words.
// Slow and obvious; what the library computes is compared with it.
#pragma once

#include <cstdint>
#include <vector>

#include "tegula/placement/cut.h"
#include "tegula/spec/dim_cut.h"

namespace tegula {

struct Piece {
  std::vector<std::int64_t> elements;  // in storage order
  std::int64_t begin = 0;              // where it begins, or would if it had elements
  std::int64_t size() const { return static_cast<std::int64_t>(elements.size()); }
};

inline Piece whole_dim(std::int64_t size) {
  Piece piece;
  for (std::int64_t element = 0; element < size; ++element) piece.elements.push_back(element);
  return piece;
}

// ceil(length / parts) for each part, as long as there is something left.
inline std::vector<std::int64_t> even_sizes(std::int64_t length, std::int64_t parts) {
  const std::int64_t most = (length + parts - 1) / parts;
  std::vector<std::int64_t> sizes;
  for (std::int64_t part = 0, left = length; part < parts; ++part) {
    sizes.push_back(left < most ? left : most);
    left -= sizes.back();
  }
  return sizes;
}

inline std::vector<Piece> cut_piece(const Piece& piece, std::int64_t ranks, std::int64_t blocks,
                                    const std::vector<std::int64_t>* sizes) {
  std::vector<Piece> result(static_cast<std::size_t>(ranks));
  std::size_t next = 0;
  bool first_run = true;
  for (std::int64_t run : even_sizes(piece.size(), blocks)) {
    const std::vector<std::int64_t> chunks =
        sizes != nullptr && run > 0 ? *sizes : even_sizes(run, ranks);
    for (std::size_t chunk = 0; chunk < chunks.size(); ++chunk) {
      const std::size_t rank = chunk % result.size();
      if (first_run && chunk == rank) {
        const bool at_end = next == piece.elements.size();
        const std::int64_t end = piece.elements.empty() ? piece.begin : piece.elements.back() + 1;
        result[rank].begin = at_end ? end : piece.elements[next];
      }
      for (std::int64_t i = 0; i < chunks[chunk]; ++i) {
        result[rank].elements.push_back(piece.elements[next++]);
      }
    }
    first_run = false;
  }
  return result;
}

// What an axis makes of the pieces that the axes before it left, the first axis slowest.
inline std::vector<Piece> cut_pieces(const std::vector<Piece>& pieces, std::int64_t ranks,
                                     const Cut& cut) {
  std::vector<Piece> result;
  for (std::size_t index = 0; index < pieces.size(); ++index) {
    const std::int64_t blocks =
        cut.blocks().empty() ? 1 : cut.blocks()[cut.blocks().size() == 1 ? 0 : index];
    const std::vector<std::int64_t>* sizes =
        cut.sizes().empty() ? nullptr : &cut.sizes()[cut.sizes().size() == 1 ? 0 : index];
    for (Piece& part : cut_piece(pieces[index], ranks, blocks, sizes))
      result.push_back(std::move(part));
  }
  return result;
}

inline std::vector<Interval> intervals_of(const Piece& piece) {
  if (piece.elements.empty()) return {{piece.begin, 0}};
  std::vector<Interval> intervals;
  for (std::int64_t element : piece.elements) {
    if (!intervals.empty() && intervals.back().end() == element) {
      ++intervals.back().size;
    } else {
      intervals.push_back({element, 1});
    }
  }
  return intervals;
}

// The parts of an interval that a piece holds, with their places in it.
inline std::vector<Share> shares_of(const Piece& piece, std::int64_t shard, Interval interval) {
  std::vector<Share> shares;
  for (std::int64_t local = 0; local < piece.size(); ++local) {
    const std::int64_t element = piece.elements[static_cast<std::size_t>(local)];
    if (element < interval.begin || element >= interval.end()) continue;
    const bool continues = !shares.empty() && shares.back().whole.end() == element &&
                           shares.back().local_begin + shares.back().whole.size == local;
    if (continues) {
      ++shares.back().whole.size;
    } else {
      shares.push_back({shard, {element, 1}, local});
    }
  }
  return shares;
}

}  // namespace tegula
