#include "tegula/comm/packed_regions.h"

#include <ATen/ATen.h>

namespace tegula::inner::comm {

at::Tensor bytes_at(const std::byte* memory, std::int64_t bytes) {
  return at::from_blob(const_cast<std::byte*>(memory), {bytes}, at::kByte);
}

std::byte* memory_of(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.data_ptr());
}

Region whole_of(const at::Tensor& tensor) {
  return Region::whole(tensor.data_ptr(), static_cast<std::int64_t>(tensor.nbytes()));
}

std::int64_t total_of(std::span<const Region> regions) {
  std::int64_t total = 0;
  for (const Region& region : regions) total += region.bytes();
  return total;
}

std::vector<std::int64_t> sizes_of(std::span<const Region> regions) {
  std::vector<std::int64_t> sizes;
  for (const Region& region : regions) sizes.push_back(region.bytes());
  return sizes;
}

bool is_one_block(std::span<const Region> regions) {
  const std::byte* end = regions[0].base;
  for (const Region& region : regions) {
    if (region.bytes() == 0) continue;
    if (!region.is_contiguous() || (region.base != end && end != nullptr)) return false;
    end = region.base + region.bytes();
  }
  return regions[0].base != nullptr;
}

void pack_all(std::span<const Region> regions, const at::Tensor& block) {
  std::byte* next = memory_of(block);
  for (const Region& region : regions) {
    pack(region, 0, region.bytes(), next);
    next += region.bytes();
  }
}

void unpack_all(const at::Tensor& block, std::span<const Region> regions) {
  if (is_one_block(regions) && memory_of(block) == regions[0].base) return;
  const std::byte* next = memory_of(block);
  for (const Region& region : regions) {
    unpack(next, region, 0, region.bytes());
    next += region.bytes();
  }
}

}  // namespace tegula::inner::comm
