// Regions that travel one after the other in one block of bytes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tegula/comm/region.h"

namespace tegula::inner::comm {

// A tensor of these bytes, which it does not own.
at::Tensor bytes_at(const std::byte* memory, std::int64_t bytes);
std::byte* memory_of(const at::Tensor& tensor);
Region whole_of(const at::Tensor& tensor);

std::int64_t total_of(std::span<const Region> regions);
std::vector<std::int64_t> sizes_of(std::span<const Region> regions);
// Contiguous regions that follow each other in memory are one block already.
bool is_one_block(std::span<const Region> regions);
void pack_all(std::span<const Region> regions, const at::Tensor& block);
// Nothing is copied if the regions are the block.
void unpack_all(const at::Tensor& block, std::span<const Region> regions);

}  // namespace tegula::inner::comm
