// What config.json of a Hugging Face folder says of a Llama-class decoder.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <vector>

namespace llama {

enum class Bias { Without, With };

struct Config {
  std::int64_t vocabulary = 0;
  std::int64_t width = 0;
  std::int64_t hidden = 0;  // features between up and down
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t key_heads = 0;  // keys and values; as many queries share each
  std::int64_t head_dim = 0;
  std::int64_t positions = 0;  // the most ids of a prompt and what follows it
  double eps = 0;
  std::vector<double> frequencies = {};  // of the rotary embedding: radians per position
  Bias query_bias = Bias::Without;       // of keys and values, too
  Bias output_bias = Bias::Without;
  Bias mlp_bias = Bias::Without;
  bool norms_heads = false;                // queries and keys, before they are rotated
  bool is_tied = false;                    // the head's weight is the embedding
  std::vector<std::int64_t> windows = {};  // per layer: how far back it looks; 0: at all
  std::vector<std::int64_t> stops = {};    // ids that end a text
  c10::ScalarType dtype = c10::ScalarType::Float;
};

// Models of type llama, mistral, qwen2 and qwen3. UsageError: the file is missing or wrong; another
// type, quantized weights, and what else this model cannot do, by name.
Config read_config(const std::string& folder);
// float32, float64, bfloat16, float16; UsageError for others.
c10::ScalarType dtype_named(const std::string& name);

}  // namespace llama
