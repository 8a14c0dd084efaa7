#include "tegula/files/chunk_reader.h"

#include <algorithm>
#include <cstring>

#include "tegula/base/error.h"
#include "tegula/files/chunk_sums.h"
#include "tegula/files/crc32c.h"

namespace tegula::inner {
namespace {

constexpr std::uint64_t kMostAtOnce = std::uint64_t{8} << 20;

void check_chunk(const ChunkedFile& from, std::size_t chunk, std::span<const std::byte> bytes) {
  if (from.checksums.empty() || crc32c(bytes) == from.checksums[chunk]) return;
  const std::uint64_t begin = chunk * from.chunk_bytes;
  throw UsageError("a file is damaged: the checksum of a chunk is another")
      .fact("path", from.path)
      .fact("bytes", std::to_string(begin) + ":" + std::to_string(begin + bytes.size()))
      .hint("load an earlier checkpoint");
}

// What lies in [begin, begin + read.size()) of the file goes to where it is wanted.
void hand_out(std::span<const Wanted> wanted, std::uint64_t begin,
              std::span<const std::byte> read) {
  const std::uint64_t end = begin + read.size();
  for (const Wanted& one : wanted) {
    const std::uint64_t first = std::max(one.begin, begin);
    const std::uint64_t last = std::min(one.begin + one.to.size(), end);
    if (first >= last) continue;
    std::memcpy(one.to.data() + (first - one.begin), read.data() + (first - begin), last - first);
  }
}

// Chunks first ... last - 1, and the parts of `wanted` among them.
void read_run(const ChunkedFile& from, std::size_t first, std::size_t last,
              std::span<const Wanted> wanted, std::vector<std::byte>& buffer) {
  const std::uint64_t begin = first * from.chunk_bytes;
  const std::uint64_t end = chunk_end(from.size, from.chunk_bytes, last - 1);
  buffer.resize(static_cast<std::size_t>(end - begin));
  from.file->read_at(begin, buffer);
  for (std::size_t chunk = first; chunk < last; ++chunk) {
    const std::uint64_t chunk_begin = chunk * from.chunk_bytes;
    const std::uint64_t size = chunk_end(from.size, from.chunk_bytes, chunk) - chunk_begin;
    check_chunk(from, chunk, std::span(buffer).subspan(chunk_begin - begin, size));
  }
  hand_out(wanted, begin, buffer);
}

}  // namespace

void read_wanted(const ChunkedFile& from, std::vector<Wanted> wanted) {
  std::erase_if(wanted, [](const Wanted& one) { return one.to.empty(); });
  std::ranges::sort(wanted, {}, &Wanted::begin);
  const auto most =
      static_cast<std::size_t>(std::max<std::uint64_t>(1, kMostAtOnce / from.chunk_bytes));
  std::vector<std::byte> buffer;
  std::size_t next = 0;        // the first chunk that is not read yet
  std::size_t unfinished = 0;  // what is wanted before this one is there
  while (unfinished < wanted.size()) {
    const std::uint64_t begin = std::max(wanted[unfinished].begin, next * from.chunk_bytes);
    const auto first = static_cast<std::size_t>(begin / from.chunk_bytes);
    std::size_t last = first + 1;
    std::size_t touched = unfinished;  // one behind the last that begins in the run
    for (; touched < wanted.size() && wanted[touched].begin < last * from.chunk_bytes; ++touched) {
      const std::uint64_t end = wanted[touched].begin + wanted[touched].to.size();
      const auto needed = static_cast<std::size_t>((end + from.chunk_bytes - 1) / from.chunk_bytes);
      last = std::min(std::max(last, needed), first + most);
      // the next one may begin where this one ends
      if (touched + 1 < wanted.size() && last < first + most &&
          wanted[touched + 1].begin == last * from.chunk_bytes) {
        ++last;
      }
    }
    read_run(from, first, last, std::span(wanted).subspan(unfinished, touched - unfinished),
             buffer);
    next = last;
    const std::uint64_t done = last * from.chunk_bytes;
    while (unfinished < wanted.size() &&
           wanted[unfinished].begin + wanted[unfinished].to.size() <= done) {
      ++unfinished;
    }
  }
}

void check_all(const ChunkedFile& file) {
  const std::size_t count = chunk_count(file.size, file.chunk_bytes);
  const auto most =
      static_cast<std::size_t>(std::max<std::uint64_t>(1, kMostAtOnce / file.chunk_bytes));
  std::vector<std::byte> buffer;
  for (std::size_t first = 0; first < count; first += most) {
    read_run(file, first, std::min(first + most, count), {}, buffer);
  }
}

}  // namespace tegula::inner
