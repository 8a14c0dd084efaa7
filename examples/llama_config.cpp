#include "llama_config.h"

#include <tegula/base/error.h>
#include <tegula/base/text.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numbers>

namespace llama {
namespace {

using Json = nlohmann::json;
using tegula::in_quotes;
using tegula::UsageError;

Json read_json(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    throw UsageError("a model's configuration cannot be read")
        .fact("file", path)
        .hint("give the folder that has config.json and the safetensors files");
  }
  return Json::parse(file);
}

// The value of a key; the other one if it is missing or null.
template <class T>
T value_or(const Json& json, const char* key, T otherwise) {
  const auto found = json.find(key);
  return found == json.end() || found->is_null() ? otherwise : found->get<T>();
}

[[noreturn]] void refuse(const char* key, const std::string& value, const char* hint) {
  throw UsageError("a model of this configuration is not known here").fact(key, value).hint(hint);
}

// Llama 3 stretches slow rotations by a factor, leaves fast ones, and goes over smoothly between.
double stretched(double frequency, const Json& rope) {
  const auto number = [&](const char* key) { return rope.at(key).get<double>(); };
  const double turns =
      number("original_max_position_embeddings") * frequency / (2 * std::numbers::pi);
  const double low = number("low_freq_factor"), high = number("high_freq_factor");
  const double kept = std::clamp((turns - low) / (high - low), 0.0, 1.0);
  return frequency * (kept + (1 - kept) / number("factor"));
}

// Newer files have rope_parameters, older ones rope_theta and rope_scaling.
std::vector<double> frequencies_of(const Json& json, std::int64_t head_dim) {
  Json rope = value_or(json, "rope_parameters", value_or(json, "rope_scaling", Json::object()));
  const std::string type =
      value_or(rope, "rope_type", value_or<std::string>(rope, "type", "default"));
  const double base = value_or(rope, "rope_theta", value_or(json, "rope_theta", 10000.0));
  const double part =
      value_or(rope, "partial_rotary_factor", value_or(json, "partial_rotary_factor", 1.0));
  if (part != 1.0) refuse("partial_rotary_factor", std::to_string(part), "1 is known");
  std::vector<double> frequencies;
  for (std::int64_t pair = 0; pair < head_dim / 2; ++pair) {
    const double frequency =
        std::pow(base, -2.0 * static_cast<double>(pair) / static_cast<double>(head_dim));
    if (type == "default") {
      frequencies.push_back(frequency);
    } else if (type == "linear") {
      frequencies.push_back(frequency / rope.at("factor").get<double>());
    } else if (type == "llama3") {
      frequencies.push_back(stretched(frequency, rope));
    } else {
      refuse("rope_type", in_quotes(type), "default, linear and llama3 are known");
    }
  }
  return frequencies;
}

std::vector<std::int64_t> windows_of(const Json& json, const std::string& type,
                                     std::int64_t layers) {
  const bool is_qwen = type.starts_with("qwen");
  std::vector<std::int64_t> windows(static_cast<std::size_t>(layers), 0);
  if (type == "llama" || (is_qwen && !value_or(json, "use_sliding_window", false))) return windows;
  const bool is_null = json.contains("sliding_window") && json["sliding_window"].is_null();
  const std::int64_t window = is_null ? 0 : value_or<std::int64_t>(json, "sliding_window", 4096);
  const auto first = is_qwen ? value_or<std::int64_t>(json, "max_window_layers", 28) : 0;
  const auto types = value_or(json, "layer_types", std::vector<std::string>());
  for (std::size_t layer = 0; layer < windows.size(); ++layer) {
    const bool slides = layer < types.size() ? types[layer] == "sliding_attention"
                                             : static_cast<std::int64_t>(layer) >= first;
    if (slides) windows[layer] = window;
  }
  return windows;
}

// One id, several, or none.
std::vector<std::int64_t> ids_in(const Json& json, const char* key) {
  if (!json.contains(key) || json[key].is_null()) return {};
  if (json[key].is_array()) return json[key].get<std::vector<std::int64_t>>();
  return {json[key].get<std::int64_t>()};
}

std::vector<std::int64_t> stops_of(const std::string& folder, const Json& json) {
  const std::string generation = folder + "/generation_config.json";
  if (std::filesystem::exists(generation)) {
    const auto stops = ids_in(read_json(generation), "eos_token_id");
    if (!stops.empty()) return stops;
  }
  return ids_in(json, "eos_token_id");
}

void check_sizes(const Config& config) {
  for (const std::int64_t size : {config.vocabulary, config.width, config.hidden, config.layers,
                                  config.heads, config.key_heads, config.head_dim}) {
    if (size < 1) throw UsageError("a size in a model's configuration is not positive");
  }
  if (config.heads % config.key_heads != 0 || config.head_dim % 2 != 0) {
    throw UsageError("the heads of a model's configuration do not fit")
        .fact("heads", std::to_string(config.heads) + " of queries, " +
                           std::to_string(config.key_heads) + " of keys, each of " +
                           std::to_string(config.head_dim) + " numbers")
        .hint("as many queries share each key, and rotations are of pairs of numbers");
  }
}

Config config_of(const std::string& folder, const Json& json) {
  const auto type = value_or<std::string>(json, "model_type", "");
  if (type != "llama" && type != "mistral" && type != "qwen2" && type != "qwen3") {
    refuse("model_type", in_quotes(type), "llama, mistral, qwen2 and qwen3 are known");
  }
  if (!value_or(json, "quantization_config", Json()).is_null()) {
    refuse("quantization_config", json["quantization_config"].dump(),
           "give weights that are not quantized");
  }
  if (const auto act = value_or<std::string>(json, "hidden_act", "silu"); act != "silu") {
    refuse("hidden_act", in_quotes(act), "silu is known");
  }
  const auto size = [&](const char* key) { return json.at(key).get<std::int64_t>(); };
  const auto bias = [&](const char* key) {
    return value_or(json, key, false) ? Bias::With : Bias::Without;
  };
  Config config;
  config.vocabulary = size("vocab_size");
  config.width = size("hidden_size");
  config.hidden = size("intermediate_size");
  config.layers = size("num_hidden_layers");
  config.heads = size("num_attention_heads");
  config.key_heads = value_or(json, "num_key_value_heads", config.heads);
  config.head_dim = value_or<std::int64_t>(
      json, "head_dim",
      type == "qwen3" ? 128 : config.width / std::max<std::int64_t>(1, config.heads));
  config.positions = size("max_position_embeddings");
  config.eps = value_or(json, "rms_norm_eps", 1e-6);
  config.norms_heads = type == "qwen3";
  config.is_tied = value_or(json, "tie_word_embeddings", false);
  if (type == "llama" || type == "qwen3")
    config.query_bias = config.output_bias = bias("attention_bias");
  if (type == "qwen2") config.query_bias = Bias::With;
  if (type == "llama") config.mlp_bias = bias("mlp_bias");
  check_sizes(config);
  config.frequencies = frequencies_of(json, config.head_dim);
  config.windows = windows_of(json, type, config.layers);
  config.stops = stops_of(folder, json);
  config.dtype =
      dtype_named(value_or(json, "dtype", value_or<std::string>(json, "torch_dtype", "float32")));
  return config;
}

}  // namespace

Config read_config(const std::string& folder) {
  const std::string path = folder + "/config.json";
  try {
    return config_of(folder, read_json(path));
  } catch (const Json::exception& error) {  // no JSON, a key that is missing or of another type
    throw UsageError("a model's configuration is wrong")
        .fact("file", path)
        .fact("what", error.what());
  }
}

c10::ScalarType dtype_named(const std::string& name) {
  static const std::map<std::string, c10::ScalarType> known = {{"float32", c10::kFloat},
                                                               {"float64", c10::kDouble},
                                                               {"bfloat16", c10::kBFloat16},
                                                               {"float16", c10::kHalf}};
  const auto found = known.find(name);
  if (found == known.end()) {
    refuse("dtype", in_quotes(name), "float32, float64, bfloat16 and float16 are known");
  }
  return found->second;
}

}  // namespace llama
