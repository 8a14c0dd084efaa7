// Texts continued by a small Llama of random weights on two ranks, by the program that the examples
// have: how long it takes from the start of the program to the first id, with files in the page
// cache, and from one id to the next. What counts is when the ids arrive here.
#include <ATen/ATen.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>

#include "bench/groups.h"
#include "bench/processes.h"
#include "tegula/io/safetensors.h"

namespace tegula::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRanks = 2, kRuns = 3;
constexpr int kPrompt = 16, kNew = 65;
constexpr std::int64_t kLayers = 8, kWidth = 1024, kHidden = 2816, kVocabulary = 32000;
constexpr std::int64_t kHeads = 16, kKeyHeads = 8, kHeadDim = 64;

std::string config_text() {
  const auto number = [](const char* key, std::int64_t value) {
    return "\"" + std::string(key) + "\": " + std::to_string(value) + ", ";
  };
  return R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "dtype": "float32", )" +
         number("vocab_size", kVocabulary) + number("hidden_size", kWidth) +
         number("intermediate_size", kHidden) + number("num_hidden_layers", kLayers) +
         number("num_attention_heads", kHeads) + number("num_key_value_heads", kKeyHeads) +
         number("head_dim", kHeadDim) + number("max_position_embeddings", 2048) +
         R"("rms_norm_eps": 1e-6, "eos_token_id": null, "bos_token_id": null})";
}

// The same numbers each time.
std::map<std::string, at::Tensor> random_weights() {
  std::map<std::string, at::Tensor> weights;
  at::Generator generator = at::detail::createCPUGenerator(1);
  const auto matrix = [&](const std::string& name, std::int64_t out, std::int64_t in) {
    weights[name + ".weight"] = 0.04 * at::randn({out, in}, generator, at::kFloat);
  };
  matrix("model.embed_tokens", kVocabulary, kWidth);
  matrix("lm_head", kVocabulary, kWidth);
  for (std::int64_t layer = 0; layer < kLayers; ++layer) {
    const std::string name = "model.layers." + std::to_string(layer) + ".";
    matrix(name + "self_attn.q_proj", kHeads * kHeadDim, kWidth);
    matrix(name + "self_attn.k_proj", kKeyHeads * kHeadDim, kWidth);
    matrix(name + "self_attn.v_proj", kKeyHeads * kHeadDim, kWidth);
    matrix(name + "self_attn.o_proj", kWidth, kHeads * kHeadDim);
    matrix(name + "mlp.gate_proj", kHidden, kWidth);
    matrix(name + "mlp.up_proj", kHidden, kWidth);
    matrix(name + "mlp.down_proj", kWidth, kHidden);
    weights[name + "input_layernorm.weight"] = at::ones({kWidth});
    weights[name + "post_attention_layernorm.weight"] = at::ones({kWidth});
  }
  weights["model.norm.weight"] = at::ones({kWidth});
  return weights;
}

// Written once; the peer reads it, too, before this process ends.
class ModelFolder {
 public:
  ModelFolder() : path_(std::filesystem::temp_directory_path() / "tegula-bench-serve-XXXXXX") {
    check(mkdtemp(path_.data()) != nullptr, "a folder for a model");
    std::ofstream(path_ + "/config.json") << config_text();
    save_safetensors(path_ + "/model.safetensors", random_weights(), {{"format", "pt"}});
    setenv("TEGULA_BENCH_MODEL", path_.c_str(), 1);
  }
  ~ModelFolder() { std::filesystem::remove_all(path_); }
  ModelFolder(const ModelFolder&) = delete;
  ModelFolder& operator=(const ModelFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

const ModelFolder& model_folder() {
  static const ModelFolder folder;
  return folder;
}

// Texts that have nothing in common.
std::string texts_of(int batch) {
  std::string words;
  for (int text = 0; text < batch; ++text) {
    words += " --ids ";
    for (int place = 0; place < kPrompt; ++place) {
      words += (place > 0 ? "," : "") + std::to_string(1 + 1000 * text + 7 * place);
    }
  }
  return words;
}

std::vector<Measurement> measure(int batch) {
  const std::string programs = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const std::string command = "OMP_NUM_THREADS=1 '" + programs + "/tegula' run -n " +
                              std::to_string(kRanks) + " '" + programs + "/llama' --model '" +
                              model_folder().path() + "' --no-stop --max-new " +
                              std::to_string(kNew) + texts_of(batch);
  const Clock::time_point begin = Clock::now();
  const auto milliseconds = [&] {
    return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  };
  std::FILE* pipe = popen(command.c_str(), "r");
  check(pipe != nullptr, "a program's output");
  std::vector<double> times;
  double ids = 0;
  for (long text = 0, id = 0; std::fscanf(pipe, "%*[^]]] %ld %ld ", &text, &id) == 2;) {
    times.push_back(milliseconds());
    if (std::ssize(times) <= 4 * batch) ids += static_cast<double>(id);
  }
  check(pclose(pipe) == 0 && std::ssize(times) == kNew * batch, "ids of " + command);
  const std::string name = "batch " + std::to_string(batch) + " 2 ranks";
  const double first = times[static_cast<std::size_t>(batch - 1)];
  return {{"serve", "first id " + name, "tegula", first, "ms"},
          {"serve", "next id " + name, "tegula", (times.back() - first) / (kNew - 1), "ms"},
          {"serve", "ids " + name, "tegula", ids, kChecksum}};
}

}  // namespace

std::vector<Measurement> run_serve() {
  std::vector<std::vector<Measurement>> runs;
  for (int i = 0; i < kRuns; ++i) {
    runs.push_back(measure(1));
    for (const Measurement& one : measure(8)) runs.back().push_back(one);
  }
  return medians(runs);
}

}  // namespace tegula::bench
