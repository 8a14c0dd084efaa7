// Manifests of checkpoints. The checksum at the end is put right, so that what stands before it is
// looked at.
#include "tegula/files/manifest.h"

#include <cstdio>

#include "fuzz/target.h"
#include "tegula/files/crc32c.h"

using namespace tegula;
using namespace tegula::fuzz;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string text(text_of(data, size));
  constexpr std::size_t kTail = 11 + 1 + 8 + 3;  // ,\n"crc32c":"01234567"}\n
  if (text.size() >= kTail) {
    const std::string_view body = std::string_view(text).substr(0, text.size() - kTail);
    char sum[9];
    std::snprintf(sum, sizeof(sum), "%08x",
                  inner::crc32c(std::as_bytes(std::span(body.data(), body.size()))));
    text.replace(text.size() - 11, 8, sum);
  }
  std::optional<inner::Manifest> manifest;
  try {
    manifest = inner::parse_manifest(text);
  } catch (const UsageError&) {
    return 0;
  }
  // Law: what is printed reads back.
  const std::string printed = inner::to_string(*manifest);
  const inner::Manifest again = inner::parse_manifest(printed);
  require(inner::to_string(again) == printed, "what is printed reads back", printed);
  require(again.files == manifest->files, "files read back", printed);
  return 0;
}
