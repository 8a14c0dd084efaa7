// Trains a small character-level GPT on a grid of ranks: data parallel over dp, tensor parallel
// over tp. The model (gpt_model.h) is plain libtorch; `kPlan` below and two calls in `run` are all
// that distributes it. At the end one rank trains the plain model alone: the losses must be the
// same.
//
//   tegula run -n 4 gpt README.md ARCHITECTURE.md --report report.html
//
// With --save it leaves a checkpoint in a folder now and then; --resume goes on from the newest,
// also on another number of ranks, and ends with the losses of a run that was never interrupted.
#include <tegula/base/table.h>
#include <tegula/base/text.h>
#include <tegula/tegula.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "gpt_report.h"
#include "gpt_training.h"

namespace {

using namespace tegula;
using gpt::Options;

// Each rank has some of the heads, and some of the hidden features between up and down. What is not
// named is replicated.
const ParallelPlan kPlan = {{"**.query", Colwise()}, {"**.key", Colwise()}, {"**.value", Colwise()},
                            {"**.proj", Rowwise()},  {"**.up", Colwise()},  {"**.down", Rowwise()}};

gpt::NamedSpecs specs_of(const gpt::Model& model) {
  gpt::NamedSpecs specs;
  for (const auto& item : model.named_parameters()) {
    specs.emplace_back(item.key(), spec_of(item.value()));
  }
  return specs;
}

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

std::vector<gpt::RankMemory> gathered(const World& world, const gpt::RankMemory& mine) {
  const at::Tensor all = world.group().all_gather(
      at::tensor({mine.parameters, mine.gradients, mine.state, mine.peak}, at::kLong).unsqueeze(0),
      0);
  std::vector<gpt::RankMemory> memory;
  for (std::int64_t rank = 0; rank < world.size(); ++rank) {
    const auto number = [&](std::int64_t kind) { return all[rank][kind].item<std::int64_t>(); };
    memory.push_back({number(0), number(1), number(2), number(3)});
  }
  return memory;
}

// Of the plain model, for as many steps as are compared.
std::vector<double> losses_of(gpt::Training& training, const Options& options) {
  std::vector<double> losses;
  for (std::int64_t step = 0; step < std::min(options.checked, options.steps); ++step) {
    losses.push_back(training.step([](const at::Tensor& tensor) { return tensor; }));
  }
  return losses;
}

std::string in_digits(double value, const char* format) {
  char digits[32];
  std::snprintf(digits, sizeof digits, format, value);
  return digits;
}

// Prints some of the losses side by side; gives the greatest relative difference of all.
double compare(const std::vector<double>& losses, const std::vector<double>& alone) {
  Table table({"step", "distributed", "plain", "relative difference"});
  double worst = 0;
  for (std::size_t step = 1; step <= alone.size(); ++step) {
    const double distributed = losses[step - 1], plain = alone[step - 1];
    const double difference = std::abs(distributed - plain) / plain;
    worst = std::max(worst, std::isnan(difference) ? INFINITY : difference);
    if (step != 1 && step % std::max<std::size_t>(1, alone.size() / 4) != 0) continue;
    table.add({std::to_string(step), in_digits(distributed, "%.6f"), in_digits(plain, "%.6f"),
               in_digits(difference, "%.1e")});
  }
  std::cout << "\nThe same on one rank with plain tensors, the first " << alone.size()
            << " steps:\n\n";
  table.print(std::cout);
  return worst;
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

void write_report(const std::string& file, const gpt::Record& record) {
  const std::filesystem::path folder = std::filesystem::path(file).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder);
  std::ofstream out(file);
  out << to_html(page_of(record));
  if (!out.flush()) throw UsageError("cannot write the report").fact("file", file);
  std::cout << "\nCurves, pictures and tables of this run: " << file << '\n';
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
  parallelize_module(*model, mesh["tp"], kPlan, kSameOnAllRanks);
  replicate(*model, mesh["dp"]);
  if (speaks) print_parameters(mesh, *model);

  gpt::Training training(options, text, model);
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
  gpt::Progress progress(options, world, done);
  while (done < options.steps) {
    const double loss =
        training.step([&](const at::Tensor& batch) { return shard_batch(batch, mesh); });
    losses[static_cast<std::size_t>(done++)] = loss;
    progress.step_done(loss);
    const bool is_due = done % options.every == 0 || done == options.steps;
    if (!options.folder.empty() && is_due) {
      saver.save(options.folder, state, {.step = done, .keep = 2});
    }
    if (done == options.stop) return true;
  }
  saver.wait();
  const double seconds = progress.seconds();
  const std::vector<gpt::RankMemory> memory = gathered(world, training.memory());
  manual_seed(world, options.seed);
  const std::string sample = generate(*model, text, mesh, text.beginning(8), options.sample);
  if (!speaks) return true;

  std::cout << "\nWhat it writes now:\n\n" << sample << '\n';
  gpt::Training plain(options, text, gpt::build(options.shape, options.seed));
  const std::vector<double> alone = losses_of(plain, options);
  const double difference = compare(losses, alone);
  const bool is_same = difference <= options.tolerance;
  std::cout << '\n'
            << (is_same ? "the same" : "NOT THE SAME") << ": they differ by at most "
            << in_digits(difference, "%.1e")
            << " (allowed: " << in_digits(options.tolerance, "%.0e") << ")\n";
  if (!options.report.empty()) {
    const at::Tensor batch =
        shard_batch(at::zeros({options.batch, options.shape.length}, at::kLong), mesh);
    write_report(options.report,
                 {specs_of(*model), spec_of(batch), losses, alone, difference, options.tolerance,
                  seconds, progress.tokens(), progress.communication(), memory,
                  training.expected_memory(), plain.expected_memory(), sample});
  }
  return is_same;
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
  app.add_option("--report", options.report, "Write a page about the run to this file (HTML)");
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
