// Headers of safetensors files: eight bytes of length, the JSON, and how many bytes follow it.
#include "tegula/files/safetensors_header.h"

#include "fuzz/target.h"

using namespace tegula;
using namespace tegula::fuzz;
using inner::FileTensor;
using inner::SafetensorsHeader;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view file = text_of(data, size);
  std::optional<SafetensorsHeader> header;
  std::uint64_t data_size = 0;
  try {
    const std::uint64_t length = inner::header_length(file, file.size());
    data_size = file.size() - inner::kLengthBytes - length;
    header = inner::parse_safetensors_header(file.substr(inner::kLengthBytes, length), data_size);
  } catch (const UsageError&) {
    return 0;
  }
  // Law: tensors fill the data, in order.
  std::uint64_t end = 0;
  for (const FileTensor& tensor : header->tensors) {
    require(tensor.begin == end && tensor.end >= end, "tensors follow each other", tensor.name);
    end = tensor.end;
  }
  require(end == data_size, "tensors fill the data", std::to_string(end));
  // Law: what is printed reads back.
  const std::string printed = inner::to_bytes(*header, 8);
  const SafetensorsHeader again = inner::parse_safetensors_header(
      std::string_view(printed).substr(inner::kLengthBytes), data_size);
  require(again.tensors.size() == header->tensors.size() && again.metadata == header->metadata,
          "what is printed reads back", printed);
  for (const FileTensor& tensor : header->tensors) {
    require(again.find(tensor.name) != nullptr && *again.find(tensor.name) == tensor,
            "a tensor reads back", tensor.name);
  }
  return 0;
}
