// Placements, as we and as PyTorch write them, and shard orders.
#include "fuzz/target.h"
#include "tegula/placement/placement.h"
#include "tegula/spec/shard_order.h"
#include "tegula/spec/strided_shard.h"

using namespace tegula;
using namespace tegula::fuzz;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = text_of(data, size);
  if (text.starts_with("{")) {
    value_of(text, [](std::string_view one) { return parse_shard_order(one); });
  } else if (text.starts_with("[")) {
    value_of(text, [](std::string_view one) { return parse_placements(one); });
    value_of(text, [](std::string_view one) { return parse_torch_placements(one); });
  } else {
    value_of(text, [](std::string_view one) { return parse_placement(one); });
  }
  return 0;
}
