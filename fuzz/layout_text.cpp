// Layouts and tuples, and the operations that take any layout or refuse it.
#include "fuzz/target.h"
#include "tegula/mesh/layout.h"

using namespace tegula;
using namespace tegula::fuzz;

namespace {

constexpr std::int64_t kMostIndices = 64;

// Law: coalesce and flatten are the same function.
void check_regrouping(const Layout& layout) {
  const Layout fewest = coalesce(layout);
  const Layout flat = flatten(layout);
  for (std::int64_t index = 0; index < std::min(layout.size(), kMostIndices); ++index) {
    require(fewest(index) == layout(index) && flat(index) == layout(index),
            "regrouping leaves the function: " + to_string(layout));
  }
}

// Law: A(right_inverse(A)(i)) == i; left_inverse(A)(A(i)) == i where there is one.
void check_inverses(const Layout& layout) {
  const Layout right = right_inverse(layout);
  for (std::int64_t index = 0; index < std::min(right.size(), kMostIndices); ++index) {
    require(layout(right(index)) == index, "the right inverse of " + to_string(layout));
  }
  try {
    const Layout left = left_inverse(layout);
    for (std::int64_t index = 0; index < std::min(layout.size(), kMostIndices); ++index) {
      require(left(layout(index)) == index, "the left inverse of " + to_string(layout));
    }
  } catch (const UsageError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = text_of(data, size);
  value_of(text, [](std::string_view one) { return parse_int_tuple(one); });
  if (const auto layout = value_of(text, [](std::string_view one) { return parse_layout(one); })) {
    check_regrouping(*layout);
    check_inverses(*layout);
  }
  return 0;
}
