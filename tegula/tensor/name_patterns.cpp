// The idea: patterns are matched part by part, and within a part character by character; both are
// the same walk, with * for ** and ? for nothing.
#include "tegula/tensor/name_patterns.h"

#include <algorithm>
#include <cstdint>

#include "tegula/base/error.h"
#include "tegula/base/text.h"

namespace tegula::inner {
namespace {

constexpr std::size_t kMostNearNames = 3;

std::vector<std::string_view> parts_of(std::string_view name) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t dot = name.find('.');
    parts.push_back(name.substr(0, dot));
    if (dot == std::string_view::npos) return parts;
    name.remove_prefix(dot + 1);
  }
}

// Whether the pattern's items stand for the text's: one for one, but for items that stand for any
// number. After a mismatch the last of these takes one more.
template <class Items, class IsAny, class Fits>
bool stands_for(const Items& pattern, const Items& text, IsAny is_any, Fits fits) {
  std::size_t p = 0, t = 0;
  std::optional<std::size_t> any;
  std::size_t taken = 0;
  while (t < text.size()) {
    if (p < pattern.size() && is_any(pattern[p])) {
      any = p++;
      taken = t;
    } else if (p < pattern.size() && fits(pattern[p], text[t])) {
      ++p, ++t;
    } else if (any) {
      p = *any + 1;
      t = ++taken;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && is_any(pattern[p])) ++p;
  return p == pattern.size();
}

bool part_matches(std::string_view pattern, std::string_view part) {
  return stands_for(
      pattern, part, [](char c) { return c == '*'; },
      [](char wanted, char c) { return wanted == '?' || wanted == c; });
}

// The fewest characters to insert, drop or replace until the pattern stands for the name; a * may
// reach over dots here.
std::size_t edits_between(std::string_view pattern, std::string_view name) {
  std::vector<std::size_t> row(name.size() + 1);
  for (std::size_t n = 0; n <= name.size(); ++n) row[n] = n;
  for (const char wanted : pattern) {
    std::vector<std::size_t> next(name.size() + 1);
    next[0] = row[0] + (wanted == '*' ? 0 : 1);
    for (std::size_t n = 1; n <= name.size(); ++n) {
      const bool fits = wanted == '?' || wanted == name[n - 1];
      next[n] = wanted == '*' ? std::min(row[n], next[n - 1])
                              : std::min({row[n] + 1, next[n - 1] + 1, row[n - 1] + !fits});
    }
    row = std::move(next);
  }
  return row.back();
}

std::string nearest_names(const std::string& pattern,
                          const std::vector<std::vector<std::string>>& tensors) {
  std::vector<std::string> names;
  for (const auto& of_one : tensors) names.insert(names.end(), of_one.begin(), of_one.end());
  if (names.empty()) return "none, the module has no parameters or buffers";
  std::stable_sort(names.begin(), names.end(), [&](const std::string& a, const std::string& b) {
    return edits_between(pattern, a) < edits_between(pattern, b);
  });
  names.resize(std::min(names.size(), kMostNearNames));
  return join(names);
}

bool matches_one(const std::string& pattern, const std::vector<std::string>& names) {
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return matches(pattern, name); });
}

[[noreturn]] void refuse_unused(std::size_t unused, const std::vector<std::string>& patterns,
                                const std::vector<std::vector<std::string>>& tensors,
                                const std::vector<std::optional<std::size_t>>& last) {
  const std::string& pattern = patterns[unused];
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!matches_one(pattern, tensors[i])) continue;
    throw UsageError("a pattern has no effect: later ones match all of its names, too")
        .fact("pattern", in_quotes(pattern))
        .fact("later", in_quotes(patterns[*last[i]]))
        .hint("the last pattern that matches a name counts: put exceptions after what they except");
  }
  throw UsageError("a pattern matches no parameter or buffer")
      .fact("pattern", in_quotes(pattern))
      .fact("nearest", nearest_names(pattern, tensors))
      .hint(
          "whole names are matched: * stands for any characters up to a dot, ** for any number of "
          "parts");
}

}  // namespace

bool matches(std::string_view pattern, std::string_view name) {
  return stands_for(
      parts_of(pattern), parts_of(name), [](std::string_view part) { return part == "**"; },
      part_matches);
}

std::vector<std::optional<std::size_t>> last_matches(
    const std::vector<std::string>& patterns,
    const std::vector<std::vector<std::string>>& tensors) {
  std::vector<std::optional<std::size_t>> last(tensors.size());
  std::vector<bool> used(patterns.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    for (std::size_t k = patterns.size(); k-- > 0 && !last[i];) {
      if (matches_one(patterns[k], tensors[i])) last[i] = k;
    }
    if (last[i]) used[*last[i]] = true;
  }
  for (std::size_t k = 0; k < patterns.size(); ++k) {
    if (!used[k]) refuse_unused(k, patterns, tensors, last);
  }
  return last;
}

}  // namespace tegula::inner
