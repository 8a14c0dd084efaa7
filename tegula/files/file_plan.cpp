#include "tegula/files/file_plan.h"

#include <algorithm>
#include <cstdio>

#include "tegula/base/error.h"
#include "tegula/base/text.h"

namespace tegula::inner {
namespace {

std::string file_name(const std::string& stem, std::size_t index, std::size_t count) {
  char numbers[64];
  std::snprintf(numbers, sizeof(numbers), "-%05zu-of-%05zu.safetensors", index + 1, count);
  return stem + numbers;
}

void put_in_order(std::vector<NamedTensor>& tensors) {
  std::ranges::sort(tensors, [](const NamedTensor& a, const NamedTensor& b) {
    const std::int64_t of_a = size_of(a.dtype), of_b = size_of(b.dtype);
    return of_a != of_b ? of_a > of_b : a.name < b.name;
  });
  std::vector<std::string> names;
  for (const NamedTensor& tensor : tensors) names.push_back(tensor.name);
  std::ranges::sort(names);
  const auto twice = std::ranges::adjacent_find(names);
  if (twice != names.end()) {
    throw UsageError("two tensors of a state have one name").fact("name", in_quotes(*twice));
  }
}

}  // namespace

FilePlan plan_files(std::vector<NamedTensor> tensors, const FilePlanOptions& options) {
  put_in_order(tensors);
  FilePlan plan;
  std::vector<SafetensorsHeader> headers(1);
  std::uint64_t filled = 0;
  for (NamedTensor& tensor : tensors) {
    const auto bytes = static_cast<std::uint64_t>(TensorMeta(tensor.shape, tensor.dtype).numel() *
                                                  size_of(tensor.dtype));
    if (filled > 0 && bytes > 0 && filled + bytes > options.most_bytes) {
      headers.emplace_back();
      filled = 0;
    }
    headers.back().tensors.push_back(
        {tensor.name, &file_dtype_of(tensor.dtype), tensor.shape, filled, filled + bytes});
    plan.tensors.push_back({std::move(tensor), headers.size() - 1, filled, bytes});
    filled += bytes;
  }
  for (std::size_t k = 0; k < headers.size(); ++k) {
    headers[k].metadata = options.metadata;
    PlannedFile file{file_name(options.stem, k, headers.size()),
                     to_bytes(headers[k], options.alignment), 0};
    file.size =
        file.header.size() + (headers[k].tensors.empty() ? 0 : headers[k].tensors.back().end);
    plan.files.push_back(std::move(file));
  }
  for (PlannedTensor& tensor : plan.tensors) tensor.begin += plan.files[tensor.file].header.size();
  return plan;
}

}  // namespace tegula::inner
