#include "tegula/files/model_folder.h"

#include <nlohmann/json.hpp>
#include <set>

#include "tegula/base/error.h"
#include "tegula/base/text.h"

namespace tegula::inner {
namespace {

constexpr std::string_view kEnding = ".safetensors";
constexpr std::string_view kConfig = "config.json";

void refuse_quantized(FileLayer& files, const std::string& folder) {
  const std::string path = folder + "/" + std::string(kConfig);
  if (!files.exists(path)) return;
  const std::string text = text_of_file(files, path, kMostHeaderBytes);
  const nlohmann::json config = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (config.is_discarded()) throw UsageError("a configuration is no JSON").fact("file", path);
  if (!config.is_object() || !config.contains("quantization_config")) return;
  const nlohmann::json& how = config["quantization_config"];
  const bool is_named =
      how.is_object() && how.contains("quant_method") && how["quant_method"].is_string();
  throw UsageError("quantized weights are not read")
      .fact("file", path)
      .fact("method", is_named ? how["quant_method"].get<std::string>() : "not named")
      .hint("convert them to plain ones first, with the library that made them");
}

std::vector<std::string> names_of_files(FileLayer& files, const std::string& folder,
                                        const std::map<std::string, std::string>& weight_map) {
  std::set<std::string> names;
  for (const auto& [tensor, file] : weight_map) names.insert(file);
  if (weight_map.empty()) {
    for (const std::string& name : files.names_in(folder)) {
      if (name.ends_with(kEnding)) names.insert(name);
    }
  }
  if (names.empty()) {
    throw UsageError("a folder has no safetensors files")
        .fact("folder", folder)
        .hint("files of other formats (.bin, .pt) have to be converted first");
  }
  return {names.begin(), names.end()};
}

std::string header_bytes(FileLayer& files, const std::string& path, std::uint64_t& size) {
  const std::unique_ptr<File> file = files.open_to_read(path);
  size = file->size();
  try {
    std::string first(std::min<std::uint64_t>(size, kLengthBytes), '\0');
    file->read_at(0, std::as_writable_bytes(std::span(first)));
    std::string bytes(kLengthBytes + header_length(first, size), '\0');
    file->read_at(0, std::as_writable_bytes(std::span(bytes)));
    parse_safetensors_header(std::string_view(bytes).substr(kLengthBytes), size - bytes.size());
    return bytes;
  } catch (UsageError& error) {
    throw std::move(error).fact("file", path);
  }
}

void check_weight_map(const ModelFolder& model, const std::map<std::string, std::string>& map) {
  for (const auto& [tensor, file] : map) {
    const auto found = std::ranges::find(model.files, file, &ModelFile::name);
    if (found != model.files.end() && found->header.find(tensor) != nullptr) continue;
    throw UsageError("an index says that a file has a tensor, and it has not")
        .fact("file", file)
        .fact("tensor", in_quotes(tensor));
  }
}

}  // namespace

std::map<std::string, std::string> parse_weight_map(std::string_view json) {
  const nlohmann::json index =
      nlohmann::json::parse(json.begin(), json.end(), nullptr, /*allow_exceptions=*/false);
  const bool has_map =
      index.is_object() && index.contains("weight_map") && index["weight_map"].is_object();
  if (!has_map) throw UsageError("an index of weights has no weight_map");
  std::map<std::string, std::string> files;
  for (const auto& [name, file] : index["weight_map"].items()) {
    const bool is_name = file.is_string() && !file.get<std::string>().empty() &&
                         file.get<std::string>().find('/') == std::string::npos;
    if (!is_name) {
      throw UsageError("an index of weights lists what cannot be a file's name")
          .fact("of", in_quotes(name));
    }
    files[name] = file.get<std::string>();
  }
  return files;
}

std::string weight_map_text(const std::map<std::string, std::string>& weight_map,
                            std::uint64_t total_size) {
  nlohmann::ordered_json index;
  index["metadata"]["total_size"] = total_size;
  index["weight_map"] = weight_map;
  return index.dump(2) + "\n";
}

std::string model_folder_bytes(FileLayer& files, const std::string& folder) {
  refuse_quantized(files, folder);
  const std::string index = folder + "/" + std::string(kModelIndex);
  std::map<std::string, std::string> weight_map;
  if (files.exists(index)) {
    weight_map = parse_weight_map(text_of_file(files, index, kMostHeaderBytes));
  }
  std::string names, headers;
  for (const std::string& name : names_of_files(files, folder, weight_map)) {
    std::uint64_t size = 0;
    headers += header_bytes(files, folder + "/" + name, size);
    names += name + "\n" + std::to_string(size) + "\n";
  }
  std::string bytes;
  append_block(bytes, names);
  bytes += headers;
  check_weight_map(parse_model_folder(bytes), weight_map);
  return bytes;
}

ModelFolder parse_model_folder(std::string_view bytes) {
  ModelFolder model;
  std::string_view names = take_block(bytes);
  std::set<std::string_view> tensors;
  const auto line = [&names] {
    const std::size_t end = names.find('\n');
    const std::string_view text = names.substr(0, end);
    names.remove_prefix(end + 1);
    return std::string(text);
  };
  while (!names.empty()) {
    ModelFile file;
    file.name = line();
    file.size = std::stoull(line());
    const std::string_view json = take_block(bytes);
    file.data_begin = kLengthBytes + json.size();
    file.header = parse_safetensors_header(json, file.size - file.data_begin);
    model.files.push_back(std::move(file));
  }
  for (const ModelFile& file : model.files) {
    for (const FileTensor& tensor : file.header.tensors) {
      if (tensors.insert(tensor.name).second) continue;
      throw UsageError("a tensor stands in two files").fact("tensor", in_quotes(tensor.name));
    }
  }
  return model;
}

}  // namespace tegula::inner
