#include "tegula/files/manifest.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tegula/base/error.h"

namespace tegula::inner {
namespace manifest_test {

Manifest example() {
  Manifest manifest{7, 16, {{"a.safetensors", 40, {1, 0xdeadbeef, 3}}, {"b", 0, {}}}, {}};
  manifest.values = {{"step", std::int64_t{7}},
                     {"rate", 0.1},
                     {"whole", 2.0},
                     {"none", std::numeric_limits<double>::quiet_NaN()},
                     {"text", "a \"b\"\n\xc3\xa9"}};
  return manifest;
}

TEST(Manifest, PrintsAndReadsBack) {
  const Manifest manifest = example();
  const Manifest again = parse_manifest(to_string(manifest));
  EXPECT_EQ(again.step, 7);
  EXPECT_EQ(again.chunk_bytes, 16u);
  EXPECT_EQ(again.files, manifest.files);
  ASSERT_EQ(again.values.size(), manifest.values.size());
  for (const auto& [name, value] : manifest.values) {
    EXPECT_TRUE(are_same(again.values.at(name), value)) << name;
  }
  EXPECT_EQ(to_string(again), to_string(manifest));
}

TEST(Manifest, WithAnyByteChangedOrAnyEndMissingIsRefused) {
  const std::string text = to_string(example());
  for (std::size_t k = 0; k < text.size(); ++k) {
    std::string damaged = text;
    damaged[k] = static_cast<char>(damaged[k] ^ 0x10);
    if (k >= text.size() - 3) continue;  // the brace behind the checksum
    EXPECT_THROW(parse_manifest(damaged), UsageError) << k;
    EXPECT_THROW(parse_manifest(std::string_view(text).substr(0, k)), UsageError) << k;
  }
}

TEST(Manifest, WithNumbersThatDoNotFitIsRefused) {
  EXPECT_EQ(std::get<std::int64_t>(parse_file_value("-9223372036854775808")),
            std::numeric_limits<std::int64_t>::min());
  for (const char* number : {"9223372036854775808", "18446744073709551615"}) {
    EXPECT_THROW(parse_file_value(number), UsageError) << number;
  }
  EXPECT_THROW(parse_file_value("{\"f64\": 1e30}"), UsageError);
  EXPECT_THROW(parse_file_value("{\"f64\": -1}"), UsageError);
  EXPECT_EQ(std::get<double>(parse_file_value("92233720368547758081280")),
            92233720368547758081280.);
}

TEST(Manifest, WhoseFilesLeadOutOfItsFolderIsRefused) {
  for (const char* name : {"../a", "/etc/a", "", ".", ".."}) {
    Manifest manifest = example();
    manifest.files[1].name = name;
    EXPECT_THROW(parse_manifest(to_string(manifest)), UsageError) << name;
  }
}

TEST(Manifest, WithoutOneChecksumPerChunkIsRefused) {
  Manifest manifest = example();
  manifest.files[0].size = 100;
  EXPECT_THROW(parse_manifest(to_string(manifest)), UsageError);
  manifest.files[0].size = ~std::uint64_t{0};
  EXPECT_THROW(parse_manifest(to_string(manifest)), UsageError);
}

}  // namespace manifest_test
}  // namespace tegula::inner
