// The idea: a run of chunks is one read, straight to where its bytes are wanted; what nobody wants
// of it goes to memory that is forgotten. Checksums are taken from there.
#include "tegula/files/chunk_reader.h"

#include <algorithm>
#include <cstring>

#include "tegula/base/error.h"
#include "tegula/files/chunk_sums.h"
#include "tegula/files/crc32c.h"

namespace tegula::inner {
namespace {

constexpr std::uint64_t kMostAtOnce = std::uint64_t{8} << 20;

[[noreturn]] void refuse(const ChunkedFile& from, std::size_t chunk) {
  throw UsageError("a file is damaged: the checksum of a chunk is another")
      .fact("path", from.path)
      .fact("bytes", std::to_string(chunk * from.chunk_bytes) + ":" +
                         std::to_string(chunk_end(from.size, from.chunk_bytes, chunk)))
      .hint("load an earlier checkpoint");
}

using Parts = std::vector<std::span<std::byte>>;

// The parts are what stands in the file from this chunk on.
void check_chunks(const ChunkedFile& from, std::size_t chunk, const Parts& parts) {
  if (from.checksums.empty()) return;
  std::uint32_t raw = 0;
  std::uint64_t at = chunk * from.chunk_bytes;
  for (std::span<const std::byte> part : parts) {
    while (!part.empty()) {
      const std::uint64_t end = chunk_end(from.size, from.chunk_bytes, chunk);
      const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(part.size(), end - at));
      raw = raw_crc32c(part.first(size), raw);
      part = part.subspan(size);
      at += size;
      if (at < end) continue;
      const std::uint64_t bytes = end - chunk * from.chunk_bytes;
      if (whole_crc32c(raw, bytes) != from.checksums[chunk]) refuse(from, chunk);
      raw = 0;
      ++chunk;
    }
  }
}

// Chunks first ... last - 1, and what is wanted of them, sorted.
struct Run {
  std::size_t first = 0;
  std::size_t last = 0;
  std::span<const Wanted> wanted;
};

bool overlap(std::span<const Wanted> wanted) {
  std::uint64_t end = 0;
  return std::ranges::any_of(wanted, [&](const Wanted& one) {
    const bool is_before = one.begin < end;
    end = one.begin + one.to.size();
    return is_before;
  });
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

class RunReader {
 public:
  explicit RunReader(const ChunkedFile& from) : from_(from) {}

  void read(const Run& run) {
    const std::uint64_t begin = run.first * from_.chunk_bytes;
    const std::uint64_t end = chunk_end(from_.size, from_.chunk_bytes, run.last - 1);
    const bool is_scattered = !overlap(run.wanted);
    const Parts parts = is_scattered ? scattered(run.wanted, begin, end) : Parts{held(end - begin)};
    from_.file->read_parts(begin, parts);
    check_chunks(from_, run.first, parts);
    if (!is_scattered) hand_out(run.wanted, begin, parts.front());
  }

 private:
  // Memory of this many bytes, for one run.
  std::span<std::byte> held(std::uint64_t size) {
    if (held_.size() < size) held_.resize(static_cast<std::size_t>(size));
    return std::span(held_).first(static_cast<std::size_t>(size));
  }

  // Where the bytes from `begin` to `end` go; what nobody wants, to memory that is overwritten.
  Parts scattered(std::span<const Wanted> wanted, std::uint64_t begin, std::uint64_t end) {
    Parts parts;
    std::uint64_t at = begin;
    const std::span<std::byte> rest = held(end - begin - wanted_bytes(wanted, begin, end));
    std::size_t passed = 0;
    const auto pass_over = [&](std::uint64_t to) {
      if (to == at) return;
      parts.push_back(rest.subspan(passed, static_cast<std::size_t>(to - at)));
      passed += static_cast<std::size_t>(to - at);
    };
    for (const Wanted& one : wanted) {
      const std::uint64_t first = std::max(one.begin, begin);
      const std::uint64_t last = std::min(one.begin + one.to.size(), end);
      if (first >= last) continue;
      pass_over(first);
      parts.push_back(one.to.subspan(static_cast<std::size_t>(first - one.begin),
                                     static_cast<std::size_t>(last - first)));
      at = last;
    }
    pass_over(end);
    return parts;
  }

  static std::uint64_t wanted_bytes(std::span<const Wanted> wanted, std::uint64_t begin,
                                    std::uint64_t end) {
    std::uint64_t bytes = 0;
    for (const Wanted& one : wanted) {
      const std::uint64_t first = std::max(one.begin, begin);
      const std::uint64_t last = std::min(one.begin + one.to.size(), end);
      if (first < last) bytes += last - first;
    }
    return bytes;
  }

  const ChunkedFile& from_;
  std::vector<std::byte> held_;
};

std::size_t most_chunks(const ChunkedFile& from) {
  return static_cast<std::size_t>(std::max<std::uint64_t>(1, kMostAtOnce / from.chunk_bytes));
}

}  // namespace

void read_wanted(const ChunkedFile& from, std::vector<Wanted> wanted) {
  std::erase_if(wanted, [](const Wanted& one) { return one.to.empty(); });
  std::ranges::sort(wanted, {}, &Wanted::begin);
  const std::size_t most = most_chunks(from);
  RunReader reader(from);
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
    reader.read({first, last, std::span(wanted).subspan(unfinished, touched - unfinished)});
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
  const std::size_t most = most_chunks(file);
  RunReader reader(file);
  for (std::size_t first = 0; first < count; first += most) {
    reader.read({first, std::min(first + most, count), {}});
  }
}

}  // namespace tegula::inner
