#include "tegula/files/rename.h"

#include <algorithm>

#include "tegula/base/error.h"
#include "tegula/base/text.h"

namespace tegula::inner {
namespace {

// The wildcard at the front of a pattern: 0, 1 or 2 asterisks.
std::size_t wildcard_of(std::string_view pattern) {
  if (pattern.starts_with("**")) return 2;
  return pattern.starts_with("*") ? 1 : 0;
}

std::size_t wildcards_in(std::string_view pattern) {
  std::size_t count = 0;
  while (!pattern.empty()) {
    const std::size_t length = wildcard_of(pattern);
    count += length > 0 ? 1 : 0;
    pattern.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return count;
}

// Whether the rest of the pattern matches the rest of the name; what wildcards stand for is added.
// The longest is tried first.
bool match(std::string_view pattern, std::string_view name, std::vector<std::string_view>& found) {
  while (!pattern.empty() && wildcard_of(pattern) == 0) {
    if (name.empty() || name.front() != pattern.front()) return false;
    pattern.remove_prefix(1);
    name.remove_prefix(1);
  }
  if (pattern.empty()) return name.empty();
  const std::size_t length = wildcard_of(pattern);
  const std::size_t most = length == 2 ? name.size() : std::min(name.find('.'), name.size());
  for (std::size_t taken = most + 1; taken-- > 0;) {
    found.push_back(name.substr(0, taken));
    if (match(pattern.substr(length), name.substr(taken), found)) return true;
    found.pop_back();
  }
  return false;
}

}  // namespace

std::optional<std::string> renamed(std::string_view name, std::string_view from,
                                   std::string_view to) {
  std::vector<std::string_view> found;
  if (!match(from, name, found)) return std::nullopt;
  std::string result;
  std::size_t next = 0;
  while (!to.empty()) {
    const std::size_t length = wildcard_of(to);
    if (length > 0 && next < found.size()) {
      result += found[next++];
    } else {
      result += to.front();
    }
    to.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return result;
}

std::string renamed(const std::string& name, const Renames& renames) {
  for (const auto& [from, to] : renames) {
    if (std::optional<std::string> other = renamed(name, from, to)) return *other;
  }
  return name;
}

void check_renames(const Renames& renames) {
  for (const auto& [from, to] : renames) {
    if (wildcards_in(to) <= wildcards_in(from)) continue;
    throw UsageError("a new name has more asterisks than the pattern of old names")
        .fact("old", in_quotes(from))
        .fact("new", in_quotes(to));
  }
}

}  // namespace tegula::inner
