// Continues texts by a model of Hugging Face's, tensor parallel over all ranks. Ids in, ids out: a
// line "<text> <id>" for each as soon as it is there.
//
//   tegula run -n 2 llama --model folder --ids 1,15043,3186 --ids 1,306 --max-new 16
//
// The model is llama_model.h, the loop llama_generate.cpp; docs/serving.md has a tokenizer around
// it.
#include <tegula/base/text.h>
#include <tegula/tegula.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <map>

#include "llama_generate.h"

namespace {

using namespace tegula;

struct Options {
  std::string folder;
  std::vector<std::string> texts;
  std::string stops;
  std::string dtype;
  std::string logits;
  bool goes_on = false;
  llama::Generation how;
};

llama::Ids ids_of(const std::string& text) {
  Scanner scan(text, "a text of ids", "1, 15043, 3186");
  llama::Ids ids = {scan.integer()};
  while (scan.accept(",")) ids.push_back(scan.integer());
  scan.expect_end();
  return ids;
}

// The scores by which each text's ids were chosen, one row per id, under the text's number.
class Scores {
 public:
  void add(std::size_t text, const at::Tensor& scores) {
    rows_[std::to_string(text)].push_back(full_tensor(scores));
  }
  void save(const std::string& path) const {
    std::map<std::string, at::Tensor> tensors;
    for (const auto& [text, rows] : rows_) tensors[text] = at::stack(rows);
    save_safetensors(path, tensors);
  }

 private:
  std::map<std::string, std::vector<at::Tensor>> rows_;
};

void run(Options options) {
  llama::Config config = llama::read_config(options.folder);
  if (!options.dtype.empty()) config.dtype = llama::dtype_named(options.dtype);
  options.how.stops = options.stops.empty() ? config.stops : ids_of(options.stops);
  if (options.goes_on) options.how.stops.clear();
  std::vector<llama::Ids> texts;
  for (const std::string& text : options.texts) texts.push_back(ids_of(text));
  llama::check(config, texts, options.how);

  World world = World::from_env();
  const auto model = llama::load(config, options.folder, world.mesh({{"tp", world.size()}}));
  Scores kept;
  llama::generate(*model, texts, options.how,
                  [&](std::size_t text, std::int64_t id, const at::Tensor& scores) {
                    if (world.rank() == 0) std::cout << text << ' ' << id << std::endl;
                    if (!options.logits.empty()) kept.add(text, scores);
                  });
  if (!options.logits.empty() && world.rank() == 0) kept.save(options.logits);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Continues texts by a Llama-class model, on all ranks together");
  app.add_option("--model", options.folder, "A folder with config.json and safetensors files")
      ->required();
  app.add_option("--ids", options.texts, "A text, as ids: 1,2,3; again for each text of a batch")
      ->required()
      ->allow_extra_args(false);
  app.add_option("--max-new", options.how.most, "New ids per text")->capture_default_str();
  app.add_option("--temperature", options.how.temperature, "0: always the likeliest id")
      ->capture_default_str();
  app.add_option("--top-k", options.how.top_k, "Draw among so many; 0: all")->capture_default_str();
  app.add_option("--top-p", options.how.top_p, "Draw among those that have this probability")
      ->capture_default_str();
  app.add_option("--seed", options.how.seed, "Of what is drawn")->capture_default_str();
  CLI::Option* stop = app.add_option(
      "--stop", options.stops, "Ids that end a text, 2,3 (default: eos_token_id of the folder)");
  app.add_flag("--no-stop", options.goes_on, "Nothing ends a text")->excludes(stop);
  app.add_option("--dtype", options.dtype, "float32, ... (default: the folder's)");
  app.add_option("--logits", options.logits,
                 "Write what ids were chosen by to this safetensors file");
  try {
    app.parse(argc, argv);
    run(options);
    return 0;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;  // asking for help is fine
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
