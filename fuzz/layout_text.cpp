// Layouts and tuples, one or two lines of them, and the operations that take any or refuse it.
#include <algorithm>
#include <functional>

#include "fuzz/target.h"
#include "tegula/mesh/layout.h"

using namespace tegula;
using namespace tegula::fuzz;

namespace {

constexpr std::int64_t kMostIndices = 64;

// None if it is refused.
std::optional<Layout> made(const std::function<Layout()>& make) {
  try {
    return make();
  } catch (const UsageError&) {
    return std::nullopt;
  }
}

void check_indices(const Layout& layout, const std::function<bool(std::int64_t)>& law,
                   const char* name) {
  for (std::int64_t index = 0; index < std::min(layout.size(), kMostIndices); ++index) {
    require(law(index), name, layout);
  }
}

void check_one(const Layout& a) {
  const Layout fewest = coalesce(a);
  const Layout flat = flatten(a);
  check_indices(a, [&](auto i) { return fewest(i) == a(i) && flat(i) == a(i); }, "regrouping");
  const Layout right = right_inverse(a);
  check_indices(right, [&](auto i) { return a(right(i)) == i; }, "the right inverse");
  if (const auto left = made([&] { return left_inverse(a); })) {
    check_indices(a, [&](auto i) { return (*left)(a(i)) == i; }, "the left inverse");
  }
}

void check_two(const Layout& a, const Layout& b) {
  if (const auto both = made([&] { return compose(a, b); })) {
    check_indices(b, [&](auto i) { return (*both)(i) == a(b(i)); }, "composition");
  }
  if (const auto rest = made([&] { return complement(a, b.size()); })) {
    require(rest->size() * a.size() == b.size(), "a layout and its complement fill the bound", a);
  }
  made([&] { return logical_divide(a, b); });
  made([&] { return logical_product(a, b); });
  made([&] { return blocked_product(a, b); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<Layout> layouts;
  for (const std::string_view line : lines_of(text_of(data, size))) {
    if (line.find(':') == std::string_view::npos) {
      value_of(line, [](std::string_view text) { return parse_int_tuple(text); });
      continue;
    }
    const auto layout = value_of(line, [](std::string_view text) { return parse_layout(text); });
    if (layout) layouts.push_back(*layout);
  }
  if (!layouts.empty()) check_one(layouts[0]);
  if (layouts.size() == 2) check_two(layouts[0], layouts[1]);
  return 0;
}
