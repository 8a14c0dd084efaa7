// The head of a message that carries its shape.
#include "tegula/comm/tensor_head.h"

#include <algorithm>
#include <cstring>

#include "fuzz/target.h"

using namespace tegula;
using namespace tegula::fuzz;
using inner::comm::TensorHead;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> memory = std::as_bytes(std::span(data, size));
  std::optional<TensorMeta> meta;
  try {
    meta = inner::comm::meta_in(memory);
  } catch (const CommError&) {
    return 0;
  }
  // Law: what is believed could have been sent.
  const TensorHead sent = inner::comm::head_of(*meta);
  TensorHead came;
  std::memcpy(static_cast<void*>(&came), memory.data(), sizeof(came));
  std::fill(came.sizes.begin() + came.dims, came.sizes.end(), 0);  // not looked at
  require(std::ranges::equal(came.memory(), sent.memory()), "a head could have been sent", *meta);
  require(came.bytes >= 0, "a message has 0 bytes or more", *meta);
  return 0;
}
