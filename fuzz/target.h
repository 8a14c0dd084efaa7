// A fuzz target: one function of arbitrary bytes, in a file of its own. libFuzzer calls it in `make
// fuzz`, run_corpus.cpp in `make test`. Whatever it lets escape, or whatever a sanitizer says, is a
// finding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tegula/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace tegula::fuzz {

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// "a.b", '.' -> {"a", "b"}; "" -> {""}. No copies: a sanitizer sees who reads past the end.
inline std::vector<std::string_view> split(std::string_view text, char mark) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(mark);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}
inline std::vector<std::string_view> lines_of(std::string_view text) { return split(text, '\n'); }

// Ends the process if a law does not hold for something, which is printed then.
inline void require(bool holds, const char* law, const std::string& text) {
  if (holds) return;
  std::fprintf(stderr, "broken: %s: %s\n", law, text.c_str());
  std::abort();
}
template <class Value>
void require(bool holds, const char* law, const Value& value) {
  using std::to_string;
  if (!holds) require(false, law, to_string(value));
}

// What `parse` makes of a text; none if it refuses it, which it may do by a UsageError only.
// Law: parse(to_string(value)) == value, and prints the same.
template <class Parse>
auto value_of(std::string_view text, Parse parse) -> std::optional<decltype(parse(text))> {
  std::optional<decltype(parse(text))> value;
  try {
    value = parse(text);
  } catch (const UsageError&) {
    return std::nullopt;
  }
  const std::string printed = to_string(*value);
  const auto again = parse(printed);
  require(again == *value, "what is printed reads back", printed);
  require(to_string(again) == printed, "what reads back prints alike", printed);
  return value;
}

}  // namespace tegula::fuzz
