// The checksums of RFC 3720, appendix B.4, and the law of pieces.
#include "tegula/files/crc32c.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "tegula/files/chunk_sums.h"

namespace tegula::inner {
namespace crc32c_test {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string random_text(std::size_t size) {
  std::mt19937 random(1);
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

TEST(Crc32c, GivesThePublishedChecksums) {
  EXPECT_EQ(crc32c({}), 0u);
  EXPECT_EQ(crc32c(bytes_of(std::string(32, '\0'))), 0x8a9136aau);
  EXPECT_EQ(crc32c(bytes_of(std::string(32, '\xff'))), 0x62a8ab43u);
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xe3069283u);
}

TEST(Crc32c, OfAWholeFollowsFromThoseOfItsPieces) {
  const std::string text = random_text(300);
  for (std::size_t cut = 0; cut <= text.size(); cut += 7) {
    const std::string a = text.substr(0, cut), b = text.substr(cut);
    const std::uint32_t raw = shifted(raw_crc32c(bytes_of(a)), b.size()) ^ raw_crc32c(bytes_of(b));
    EXPECT_EQ(whole_crc32c(raw, text.size()), crc32c(bytes_of(text))) << cut;
  }
}

TEST(Crc32c, OfManyBytesIsThatOfFewAtATime) {
  for (const std::size_t size : {24575, 24576, 24583, 200001}) {
    const std::string text = random_text(size);
    for (const std::size_t begin : {0, 1}) {
      std::uint32_t raw = 0;
      for (std::size_t at = begin; at < size; at += 100) {
        raw = raw_crc32c(bytes_of(text).subspan(at, std::min<std::size_t>(100, size - at)), raw);
      }
      EXPECT_EQ(raw, raw_crc32c(bytes_of(text).subspan(begin))) << size << " from " << begin;
    }
  }
}

TEST(ChunkSums, OfPiecesInAnyOrderAreThoseOfTheChunks) {
  const std::string text = random_text(1000);
  constexpr std::uint64_t kChunk = 96;
  ChunkSums one(text.size(), kChunk), other(text.size(), kChunk);
  one.add(500, bytes_of(text.substr(500, 333)));
  other.add(833, bytes_of(text.substr(833)));
  one.add(0, bytes_of(text.substr(0, 10)));
  other.add(10, bytes_of(text.substr(10, 490)));
  std::vector<std::uint32_t> together = one.remainders();
  for (std::size_t k = 0; k < together.size(); ++k) together[k] ^= other.remainders()[k];
  const std::vector<std::uint32_t> sums = checksums(together, text.size(), kChunk);
  ASSERT_EQ(sums.size(), 11u);
  for (std::size_t k = 0; k < sums.size(); ++k) {
    EXPECT_EQ(sums[k], crc32c(bytes_of(text.substr(k * kChunk, kChunk)))) << k;
  }
}

}  // namespace crc32c_test
}  // namespace tegula::inner
