// Patterns of parameters' names, beside a matcher that tries everything: the first line is the
// pattern, the others are names.
#include "tegula/tensor/name_patterns.h"

#include <algorithm>
#include <span>

#include "fuzz/target.h"

using namespace tegula;
using namespace tegula::fuzz;

namespace {

// Trying everything takes long.
constexpr std::size_t kLongest = 24;
constexpr std::ptrdiff_t kMostStars = 4;

// The definitions: of a part, * stands for any characters and ? for one; of a name, ** for any
// parts.
bool part_fits(std::string_view pattern, std::string_view part) {
  if (pattern.empty()) return part.empty();
  if (pattern.front() == '*' && part_fits(pattern.substr(1), part)) return true;
  if (part.empty()) return false;
  if (pattern.front() == '*') return part_fits(pattern, part.substr(1));
  return (pattern.front() == '?' || pattern.front() == part.front()) &&
         part_fits(pattern.substr(1), part.substr(1));
}

using Parts = std::span<const std::string_view>;

bool name_fits(Parts pattern, Parts name) {
  if (pattern.empty()) return name.empty();
  if (pattern.front() == "**" && name_fits(pattern.subspan(1), name)) return true;
  if (name.empty()) return false;
  if (pattern.front() == "**") return name_fits(pattern, name.subspan(1));
  return part_fits(pattern.front(), name.front()) && name_fits(pattern.subspan(1), name.subspan(1));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::vector<std::string_view> lines = lines_of(text_of(data, size));
  const std::string pattern(lines.front());
  const std::vector<std::string> names(lines.begin() + 1, lines.end());
  for (const std::string& name : names) {
    const bool matches = inner::matches(pattern, name);
    if (pattern.size() > kLongest || name.size() > kLongest) continue;
    if (std::ranges::count(pattern, '*') > kMostStars) continue;
    require(matches == name_fits(split(pattern, '.'), split(name, '.')),
            "a pattern and a name fit by definition", pattern + " and " + name);
  }
  try {
    inner::last_matches({"**", pattern}, {names});
  } catch (const UsageError&) {
  }
  return 0;
}
