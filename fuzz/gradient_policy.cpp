// Gradient policies.
#include "tegula/payload/gradient_policy.h"

#include "fuzz/target.h"

using namespace tegula;
using namespace tegula::fuzz;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  value_of(text_of(data, size), [](std::string_view text) { return parse_gradient_policy(text); });
  return 0;
}
