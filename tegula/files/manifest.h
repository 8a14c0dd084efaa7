// The manifest of a checkpoint: the files it consists of with the checksums of their chunks, and
// the values of the state that are no tensors. Written last, so that a folder with a manifest is
// whole.
//
// Printed as JSON, with a checksum of all that stands before it at the end.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace tegula::inner {

using FileValue = std::variant<std::int64_t, double, std::string>;
// "an integer", "a number", "a text"
std::string kind_of(const FileValue& value);
// As a person reads it.
std::string to_string(const FileValue& value);
// The reverse. UsageError if it is none.
FileValue parse_file_value(std::string_view text);
// Also where two are the same NaN.
bool are_same(const FileValue& a, const FileValue& b);

struct ManifestFile {
  std::string name;
  std::uint64_t size = 0;
  std::vector<std::uint32_t> checksums;  // one per chunk
  bool operator==(const ManifestFile&) const = default;
};

struct Manifest {
  std::int64_t step = 0;
  std::uint64_t chunk_bytes = 0;
  std::vector<ManifestFile> files;
  std::map<std::string, FileValue> values;
};

inline constexpr std::string_view kManifestName = "manifest.json";
inline constexpr std::uint64_t kMostManifestBytes = 100'000'000;

// UsageError: a text that is not UTF-8.
std::string to_string(const Manifest& manifest);
// The reverse. UsageError with the reason: damaged, of a later version, or no manifest at all.
Manifest parse_manifest(std::string_view text);

}  // namespace tegula::inner
