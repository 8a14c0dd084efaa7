// The idea: JSON that a person can read, with the checksum of its own text at the end, so that a
// manifest that was torn is not taken for one.
#include "tegula/files/manifest.h"

#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>

#include "tegula/base/error.h"
#include "tegula/base/overloaded.h"
#include "tegula/base/text.h"
#include "tegula/files/chunk_sums.h"
#include "tegula/files/crc32c.h"

namespace tegula::inner {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFormat = "tegula checkpoint";
constexpr std::int64_t kVersion = 1;
constexpr std::string_view kTail = ",\n\"crc32c\":\"";  // then 8 digits, "} and a new line
constexpr std::size_t kTailBytes = kTail.size() + 8 + 3;
constexpr int kDeepest = 16;

std::string digits_of(std::uint32_t sum) {
  char text[9];
  std::snprintf(text, sizeof(text), "%08x", sum);
  return text;
}

std::uint32_t sum_of(const std::string& digits) {
  std::uint32_t sum = 0;
  if (digits.size() != 8) throw UsageError("a checksum has 8 digits").fact("is", digits);
  for (const char c : digits) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) throw UsageError("a checksum consists of digits 0 ... f").fact("is", digits);
    sum = (sum << 4) | static_cast<std::uint32_t>(digit);
  }
  return sum;
}

std::uint32_t sum_of_text(std::string_view text) {
  return crc32c(std::as_bytes(std::span(text.data(), text.size())));
}

// What JSON has no number for is written as its bits.
Json json_of(const FileValue& value) {
  return std::visit(Overloaded{[](std::int64_t number) { return Json(number); },
                               [](double number) {
                                 if (std::isfinite(number)) return Json(number);
                                 return Json{{"f64", std::bit_cast<std::uint64_t>(number)}};
                               },
                               [](const std::string& text) { return Json(text); }},
                    value);
}

// JSON's numbers may be of any size and broken; what reads them would cut them off.
std::int64_t integer_of(const Json& json) {
  const bool is_larger = json.is_number_unsigned() &&
                         json.get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max();
  if (json.is_number_integer() && !is_larger) return json.get<std::int64_t>();
  throw UsageError("this is no whole number of 64 bits").fact("found", json.dump());
}

std::uint64_t count_of(const Json& json) {
  if (json.is_number_unsigned()) return json.get<std::uint64_t>();
  throw UsageError("this is no whole number of 64 bits from 0 on").fact("found", json.dump());
}

FileValue value_of(const Json& json) {
  if (json.is_number_integer()) return integer_of(json);
  if (json.is_number()) return json.get<double>();
  if (json.is_object()) return std::bit_cast<double>(count_of(json.at("f64")));
  return json.get<std::string>();
}

Json json_of(const ManifestFile& file) {
  std::string sums;
  for (const std::uint32_t sum : file.checksums) sums += (sums.empty() ? "" : " ") + digits_of(sum);
  return {{"name", file.name}, {"bytes", file.size}, {"chunks", sums}};
}

// A name in this folder and not a way out of it.
void check_file_name(const std::string& name) {
  const bool is_plain = !name.empty() && name != "." && name != ".." &&
                        name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
  if (!is_plain)
    throw UsageError("a manifest lists a file by what cannot be a file's name")
        .fact("name", in_quotes(name));
}

ManifestFile file_of(const Json& json, std::uint64_t chunk_bytes) {
  ManifestFile file{json.at("name").get<std::string>(), count_of(json.at("bytes")), {}};
  check_file_name(file.name);
  const std::string sums = json.at("chunks").get<std::string>();
  for (std::size_t at = 0; at < sums.size(); at += 9) {
    file.checksums.push_back(sum_of(sums.substr(at, 8)));
  }
  const bool is_sane = file.size <= (std::uint64_t{1} << 62);
  if (!is_sane || file.checksums.size() != chunk_count(file.size, chunk_bytes)) {
    throw UsageError("a manifest has not one checksum for each chunk of a file")
        .fact("file", file.name);
  }
  return file;
}

Manifest manifest_of(const Json& json) {
  if (json.at("format").get<std::string>() != kFormat) {
    throw UsageError("its format is not " + in_quotes(kFormat));
  }
  const auto version = integer_of(json.at("version"));
  if (version != kVersion) {
    throw UsageError("it is of version " + std::to_string(version) + ", known is version " +
                     std::to_string(kVersion));
  }
  Manifest manifest;
  manifest.step = integer_of(json.at("step"));
  manifest.chunk_bytes = count_of(json.at("chunk_bytes"));
  if (manifest.chunk_bytes == 0 || manifest.chunk_bytes > (std::uint64_t{1} << 40)) {
    throw UsageError("chunks cannot have that many bytes")
        .fact("bytes", std::to_string(manifest.chunk_bytes));
  }
  for (const Json& file : json.at("files")) {
    manifest.files.push_back(file_of(file, manifest.chunk_bytes));
  }
  for (const auto& [name, value] : json.at("values").items()) {
    manifest.values[name] = value_of(value);
  }
  return manifest;
}

}  // namespace

std::string kind_of(const FileValue& value) {
  constexpr const char* kKinds[] = {"an integer", "a number", "a text"};
  return kKinds[value.index()];
}

std::string to_string(const FileValue& value) { return json_of(value).dump(); }

FileValue parse_file_value(std::string_view text) {
  try {
    return value_of(Json::parse(text.begin(), text.end()));
  } catch (const nlohmann::json::exception&) {
    throw UsageError("this text is no value that a checkpoint can hold")
        .fact("text", std::string(text));
  }
}

bool are_same(const FileValue& a, const FileValue& b) {
  if (a.index() != b.index()) return false;
  const auto* number = std::get_if<double>(&a);
  if (!number) return a == b;
  return std::bit_cast<std::uint64_t>(*number) == std::bit_cast<std::uint64_t>(std::get<double>(b));
}

std::string to_string(const Manifest& manifest) {
  Json json;
  json["format"] = kFormat;
  json["version"] = kVersion;
  json["step"] = manifest.step;
  json["chunk_bytes"] = manifest.chunk_bytes;
  json["files"] = Json::array();
  for (const ManifestFile& file : manifest.files) json["files"].push_back(json_of(file));
  json["values"] = Json::object();
  for (const auto& [name, value] : manifest.values) json["values"][name] = json_of(value);
  std::string text;
  try {
    text = json.dump(1);
  } catch (const nlohmann::json::exception&) {
    throw UsageError("a name or text of the state is not UTF-8");
  }
  text.resize(text.size() - 2);  // the last brace and the new line before it
  const std::string sum = digits_of(sum_of_text(text));
  return text + std::string(kTail) + sum + "\"}\n";
}

Manifest parse_manifest(std::string_view text) {
  if (text.size() < kTailBytes || text.substr(text.size() - kTailBytes, kTail.size()) != kTail) {
    throw UsageError("this is no manifest of a checkpoint, or its end is missing");
  }
  const std::string_view body = text.substr(0, text.size() - kTailBytes);
  const std::string digits(text.substr(body.size() + kTail.size(), 8));
  if (digits_of(sum_of_text(body)) != digits) {
    throw UsageError("the manifest of a checkpoint is damaged: its checksum is another")
        .fact("says", digits)
        .fact("has", digits_of(sum_of_text(body)));
  }
  try {
    const auto keep = [](int depth, Json::parse_event_t, Json&) {
      if (depth > kDeepest) throw UsageError("it is nested too deeply");
      return true;
    };
    return manifest_of(Json::parse(text.begin(), text.end(), keep));
  } catch (const nlohmann::json::exception&) {
    throw UsageError("the manifest of a checkpoint does not say what one has to say");
  } catch (const UsageError& error) {
    throw UsageError("the manifest of a checkpoint cannot be used: " + error.sentence());
  }
}

}  // namespace tegula::inner
