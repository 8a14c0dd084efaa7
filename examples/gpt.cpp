// Trains a small character-level GPT on a grid of ranks: data parallel over dp, tensor parallel
// over tp. The model (gpt_model.h) is plain libtorch; `kPlaced` below is all that distributes it.
// At the end one rank trains the plain model alone: the losses must be the same.
//
//   tegula run -n 4 gpt README.md ARCHITECTURE.md
//
// With --save it leaves a checkpoint in a folder now and then; --resume goes on from the newest,
// also on another number of ranks, and ends with the losses of a run that was never interrupted.
#include <tegula/base/table.h>
#include <tegula/base/text.h>
#include <tegula/tegula.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>

#include "gpt_model.h"
#include "gpt_text.h"

namespace {

using namespace tegula;
using Clock = std::chrono::steady_clock;

struct Options {
  std::vector<std::string> files;
  gpt::Shape shape;
  std::int64_t steps = 1500, batch = 16, checked = 100, sample = 300;
  double rate = 2e-3, tolerance = 1e-4;
  std::uint64_t seed = 1;
  std::string folder;  // of checkpoints; empty: none
  std::int64_t every = 100, stop = 0;
  bool resume = false;
};

// Column parallel: the rows of (out, in) are cut. Row parallel: the columns are, and the bias is
// added once to the sum. All else is replicated; nothing is cut over dp.
const PlacementPatterns kPlaced = {
    {"**.query.*", {Replicate(), Shard(0)}},     {"**.key.*", {Replicate(), Shard(0)}},
    {"**.value.*", {Replicate(), Shard(0)}},     {"**.up.*", {Replicate(), Shard(0)}},
    {"**.proj.weight", {Replicate(), Shard(1)}}, {"**.down.weight", {Replicate(), Shard(1)}}};

// One way to train, on plain tensors and on distributed ones.
class Training {
 public:
  Training(const Options& options, const gpt::Text& text, std::shared_ptr<gpt::Model> model)
      : options_(options),
        text_(text),
        model_(std::move(model)),
        optimizer_(model_->parameters(), torch::optim::AdamWOptions(options.rate)),
        random_(static_cast<std::uint32_t>(options.seed)) {}

  // `place` brings a batch to where the model is. Returns the loss before the step.
  template <class Place>
  double step(const Place& place) {
    const auto [characters, next] = text_.sample(options_.batch, options_.shape.length, random_);
    const at::Tensor loss = model_->loss(place(characters), place(next));
    optimizer_.zero_grad();
    loss.backward();
    optimizer_.step();
    return loss.item<double>();
  }

  // All that the next steps depend on.
  void add_to(State& state) {
    state.add("model", *model_).add("optimizer", optimizer_, *model_);
    state.add(
        "batches",
        [this] {
          std::ostringstream text;
          text << random_;
          return text.str();
        },
        [this](const StateValue& value) {
          std::istringstream(std::get<std::string>(value)) >> random_;
        });
  }

 private:
  const Options& options_;
  const gpt::Text& text_;
  std::shared_ptr<gpt::Model> model_;
  torch::optim::AdamW optimizer_;
  std::mt19937 random_;
};

// One line, drawn again and again on a terminal (`tegula run` says if there is one); elsewhere
// about ten lines.
class Progress {
 public:
  Progress(const Options& options, const World& world) : options_(options), log_(world) {}

  void show(std::int64_t done, double loss) const {
    const bool is_last = done == options_.steps;
    const std::int64_t every = std::max<std::int64_t>(1, options_.steps / 10);
    if (!on_terminal_ && done % every != 0 && !is_last) return;
    const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
    const auto tokens = static_cast<double>(done * options_.batch * options_.shape.length);
    const auto filled = static_cast<std::size_t>(20 * done / options_.steps);
    std::printf("[%s%s] step %4ld  loss %.3f  %6.0f tokens/s  %2.0f%% communication%c",
                std::string(filled, '#').c_str(), std::string(20 - filled, '.').c_str(),
                static_cast<long>(done), loss, tokens / seconds, 100 * log_.seconds() / seconds,
                on_terminal_ && !is_last ? '\r' : '\n');
    std::fflush(stdout);
  }

 private:
  const Options& options_;
  bool on_terminal_ = isatty(STDOUT_FILENO) != 0 || std::getenv("TEGULA_TERMINAL") != nullptr;
  CommLog log_;
  Clock::time_point begin_ = Clock::now();
};

void print_parameters(const DeviceMesh& mesh, const gpt::Model& model) {
  Table table({"parameter", "shape", "placement", "elements per rank"});
  std::int64_t all = 0, here = 0;
  for (const auto& item : model.named_parameters()) {
    const DTensorSpec spec = spec_of(item.value());
    const std::int64_t local = to_local(item.value()).numel();
    table.add(
        {item.key(), to_string(spec.meta()), to_string(spec.placements()), std::to_string(local)});
    all += item.value().numel();
    here += local;
  }
  std::cout << "mesh " << mesh << "\n\n";
  table.print(std::cout);
  std::cout << '\n' << all << " parameters, " << here << " of them on each rank\n\n";
}

// Continues a text character by character. The random numbers are the same on all ranks.
std::string generate(gpt::Model& model, const gpt::Text& text, const DeviceMesh& mesh,
                     const std::string& prompt, std::int64_t count) {
  const at::NoGradGuard no_grad;
  const Placements everywhere{Replicate(), Replicate()};
  at::Tensor all =
      distribute_tensor(text.encoded(prompt).unsqueeze(0), mesh, everywhere, kSameOnAllRanks);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t seen = std::min(all.size(1), model.shape.length);
    const at::Tensor scores = model.forward(all.narrow(1, all.size(1) - seen, seen)).select(1, -1);
    all = at::cat({all, at::multinomial(at::softmax(scores / 0.7, -1), 1)}, 1);
  }
  return text.decoded(full_tensor(all)[0]);
}

// The plain model with the same weights and data, on this rank alone.
bool is_same_alone(const Options& options, const gpt::Text& text,
                   const std::vector<double>& losses) {
  Training training(options, text, gpt::build(options.shape, options.seed));
  Table table({"step", "distributed", "plain", "relative difference"});
  const auto in_digits = [](double value, const char* format) {
    char digits[32];
    std::snprintf(digits, sizeof digits, format, value);
    return std::string(digits);
  };
  double worst = 0;
  bool is_same = true;
  const auto checked = std::min<std::int64_t>(options.checked, options.steps);
  for (std::int64_t step = 1; step <= checked; ++step) {
    const double plain = training.step([](const at::Tensor& tensor) { return tensor; });
    const double distributed = losses[static_cast<std::size_t>(step - 1)];
    const double difference = std::abs(distributed - plain) / plain;
    worst = std::max(worst, difference);
    is_same = is_same && difference <= options.tolerance;
    if (step != 1 && step % std::max<std::int64_t>(1, checked / 4) != 0) continue;
    table.add({std::to_string(step), in_digits(distributed, "%.6f"), in_digits(plain, "%.6f"),
               in_digits(difference, "%.1e")});
  }
  std::cout << "\nThe same on one rank with plain tensors, the first " << checked << " steps:\n\n";
  table.print(std::cout);
  std::cout << '\n'
            << (is_same ? "the same" : "NOT THE SAME") << ": they differ by at most "
            << in_digits(worst, "%.1e") << " (allowed: " << in_digits(options.tolerance, "%.0e")
            << ")\n";
  return is_same;
}

void check(const Options& options, const gpt::Text& text) {
  const gpt::Shape& shape = options.shape;
  if (shape.width % shape.heads != 0) {
    throw UsageError("the heads do not divide the width")
        .fact("width", std::to_string(shape.width))
        .fact("heads", std::to_string(shape.heads));
  }
  if (text.size() <= shape.length) {
    throw UsageError("the text is shorter than a piece of it")
        .fact("text", counted(text.size(), "character", "characters"))
        .fact("piece", counted(shape.length, "character", "characters"))
        .hint("give longer files, or a smaller --length");
  }
}

bool run(Options options) {
  const gpt::Text text(options.files);
  options.shape.vocabulary = text.vocabulary();
  check(options, text);
  World world = World::from_env();
  const bool speaks = world.rank() == 0;
  const std::int64_t tp = world.size() % 2 == 0 ? 2 : 1;
  const DeviceMesh mesh = world.mesh({{"dp", world.size() / tp}, {"tp", tp}});

  const auto model = gpt::build(options.shape, options.seed);
  distribute_module(*model, mesh, kPlaced, kSameOnAllRanks);
  if (speaks) print_parameters(mesh, *model);

  Training training(options, text, model);
  std::vector<double> losses(static_cast<std::size_t>(options.steps));
  std::int64_t done = 0;
  State state(world);
  training.add_to(state);
  state.add("losses", at::from_blob(losses.data(), {options.steps}, at::kDouble));
  state.add("step", done);
  if (options.resume && latest(options.folder)) {
    load(options.folder, state);
    if (speaks) std::cout << "goes on after step " << done << "\n\n";
  }
  AsyncSaver saver;
  const Progress progress(options, world);
  while (done < options.steps) {
    const double loss =
        training.step([&](const at::Tensor& batch) { return shard_batch(batch, mesh); });
    losses[static_cast<std::size_t>(done++)] = loss;
    if (speaks) progress.show(done, loss);
    const bool is_due = done % options.every == 0 || done == options.steps;
    if (!options.folder.empty() && is_due) {
      saver.save(options.folder, state, {.step = done, .keep = 2});
    }
    if (done == options.stop) return true;
  }
  saver.wait();
  manual_seed(world, options.seed);
  const std::string sample = generate(*model, text, mesh, text.beginning(8), options.sample);
  if (speaks) std::cout << "\nWhat it writes now:\n\n" << sample << '\n';
  return !speaks || is_same_alone(options, text, losses);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Trains a small GPT on text files, on a grid of ranks");
  app.add_option("files", options.files, "Text to learn")->required()->check(CLI::ExistingFile);
  const auto number = [&](const char* name, std::int64_t& value, const char* meaning) {
    app.add_option(name, value, meaning)
        ->capture_default_str()
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000}));
  };
  number("--steps", options.steps, "Steps of training");
  number("--batch", options.batch, "Pieces of text in a step, over all ranks");
  number("--length", options.shape.length, "Characters in a piece");
  number("--width", options.shape.width, "Numbers that stand for a character");
  number("--heads", options.shape.heads, "Heads of attention; they divide the width");
  number("--layers", options.shape.layers, "Blocks");
  number("--check", options.checked, "Steps to repeat on one rank");
  number("--sample", options.sample, "Characters to write at the end");
  number("--every", options.every, "Steps from one checkpoint to the next");
  number("--stop", options.stop, "Leave after this step, as if interrupted");
  CLI::Option* folder = app.add_option("--save", options.folder, "A folder for checkpoints");
  app.add_flag("--resume", options.resume, "Go on from the newest of them, if there is one")
      ->needs(folder);
  app.add_option("--rate", options.rate, "Learning rate")->capture_default_str();
  app.add_option("--seed", options.seed, "Of weights, data and sample")->capture_default_str();
  try {
    app.parse(argc, argv);
    return run(options) ? 0 : 1;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;  // asking for help is fine
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
