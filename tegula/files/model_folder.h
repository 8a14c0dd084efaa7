// A folder of weights as Hugging Face has it: model.safetensors, or several files and
// model.safetensors.index.json, which says {"weight_map": {name: file}}; config.json beside them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tegula/files/file_layer.h"
#include "tegula/files/safetensors_header.h"

namespace tegula::inner {

struct ModelFile {
  std::string name;
  std::uint64_t size = 0;
  std::uint64_t data_begin = 0;
  SafetensorsHeader header;
};

struct ModelFolder {
  std::vector<ModelFile> files;
};

// The headers of the folder's files, so that one rank can read them for all: those that an index
// names, else all that end in .safetensors. UsageError with the path: there are none, one that the
// index names is missing or lacks a tensor, one is no safetensors file, or config.json says that
// the weights are quantized.
std::string model_folder_bytes(FileLayer& files, const std::string& folder);
// UsageError: a tensor stands in two files.
ModelFolder parse_model_folder(std::string_view bytes);

// {name: file} of an index, and the reverse. UsageError: not JSON, no weight_map, a file that is no
// plain name.
std::map<std::string, std::string> parse_weight_map(std::string_view json);
std::string weight_map_text(const std::map<std::string, std::string>& weight_map,
                            std::uint64_t total_size);

inline constexpr std::string_view kModelIndex = "model.safetensors.index.json";

}  // namespace tegula::inner
