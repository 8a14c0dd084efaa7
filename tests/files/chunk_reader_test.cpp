#include "tegula/files/chunk_reader.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "tegula/base/error.h"
#include "tegula/files/chunk_sums.h"

namespace tegula::inner {
namespace chunk_reader_test {

// A file in memory that counts its reads.
class MemoryFile final : public File {
 public:
  explicit MemoryFile(std::size_t size) : bytes(size) {
    std::mt19937 random(3);
    for (std::byte& one : bytes) one = static_cast<std::byte>(random());
  }
  std::uint64_t size() const override { return bytes.size(); }
  void write_at(std::uint64_t, std::span<const std::byte>) override {}
  void allocate(std::uint64_t) override {}
  void sync() override {}
  void read_parts(std::uint64_t offset, Parts parts) const override {
    for (const std::span<std::byte>& to : parts) {
      ASSERT_LE(offset + to.size(), bytes.size());
      std::memcpy(to.data(), bytes.data() + offset, to.size());
      offset += to.size();
      read_bytes += to.size();
    }
    ++reads;
  }

  std::vector<std::byte> bytes;
  mutable int reads = 0;
  mutable std::uint64_t read_bytes = 0;
};

struct Fixture {
  explicit Fixture(std::size_t size, std::uint64_t chunk) : file(size) {
    ChunkSums remainders(size, chunk);
    remainders.add(0, file.bytes);
    sums = checksums(remainders.remainders(), size, chunk);
    chunked = {&file, "a.safetensors", size, chunk, sums};
  }
  MemoryFile file;
  std::vector<std::uint32_t> sums;
  ChunkedFile chunked;
};

TEST(ChunkReader, FillsWhateverIsWantedAndReadsNoChunkTwice) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    Fixture fixture(1 + random() % 2000, 1 + random() % 300);
    std::vector<std::vector<std::byte>> memory;
    std::vector<Wanted> wanted;
    for (unsigned k = random() % 6; k > 0; --k) {
      const std::uint64_t begin = random() % fixture.file.bytes.size();
      memory.emplace_back(random() % (fixture.file.bytes.size() - begin + 1));
      wanted.push_back({begin, memory.back()});
    }
    read_wanted(fixture.chunked, wanted);
    for (const Wanted& one : wanted) {
      EXPECT_TRUE(std::equal(one.to.begin(), one.to.end(),
                             fixture.file.bytes.begin() + static_cast<long>(one.begin)));
    }
    EXPECT_LE(fixture.file.read_bytes, fixture.file.bytes.size());
  }
}

TEST(ChunkReader, ReadsNeighboursTogether) {
  Fixture fixture(1000 * 64, 64);
  std::vector<std::byte> memory(1000 * 8);
  std::vector<Wanted> wanted;
  for (std::size_t k = 0; k < 1000; ++k)
    wanted.push_back({k * 64, std::span(memory).subspan(k * 8, 8)});
  read_wanted(fixture.chunked, wanted);
  EXPECT_EQ(fixture.file.reads, 1);
}

TEST(ChunkReader, NamesADamagedChunk) {
  Fixture fixture(1000, 100);
  fixture.file.bytes[450] ^= std::byte{1};
  std::vector<std::byte> memory(10);
  read_wanted(fixture.chunked, {{390, memory}});
  try {
    read_wanted(fixture.chunked, {{395, memory}});
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "tegula: a file is damaged: the checksum of a chunk is another\n"
                 "  path    a.safetensors\n"
                 "  bytes   400:500\n"
                 "  hint    load an earlier checkpoint");
  }
  EXPECT_THROW(check_all(fixture.chunked), UsageError);
  fixture.chunked.checksums = {};
  read_wanted(fixture.chunked, {{395, memory}});
}

}  // namespace chunk_reader_test
}  // namespace tegula::inner
