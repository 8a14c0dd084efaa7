// tegula: the command line. Exit codes: 0 all is well, 1 something failed, 2 the call was wrong.
#include <CLI/CLI.hpp>
#include <exception>
#include <iostream>

#include "tegula/base/error.h"
#include "tegula/base/text.h"
#include "tools/tegula/commands.h"

namespace {

constexpr int kFailed = 1;
constexpr int kWrongCall = 2;

// What is wrong with the call. CLI11 says only that a command is missing when one is unknown.
std::string sentence_of(const CLI::ParseError& error, const CLI::App& app, int argc, char** argv) {
  if (argc == 1) return "no command was given";
  const bool has_command = argc > 1 && argv[1][0] != '-';
  if (has_command &&
      app.get_subcommands([&](const CLI::App* one) { return one->check_name(argv[1]); }).empty()) {
    return "there is no command " + tegula::quoted(argv[1]);
  }
  std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

int dispatch(int argc, char** argv) {
  CLI::App app("Distributed tensors for C++ on libtorch", "tegula");
  app.require_subcommand(1);
  app.set_help_all_flag("--help-all", "Show the help of every command");

  tegula::cli::MeshCall mesh;
  CLI::App* mesh_command = app.add_subcommand("mesh", "Show a mesh and its groups");
  mesh_command->add_option("mesh", mesh.text, "e.g. \"dp=2, tp=4\" or \"(tp=4) of (dp=2, tp=4)\"")
      ->required();
  mesh_command->add_flag("--all", mesh.all, "List everything, however long");

  tegula::cli::SpecCall spec;
  CLI::App* spec_command =
      app.add_subcommand("spec", "Show which rank holds which slice of a tensor");
  spec_command->add_option("spec", spec.text, "e.g. \"f32[10, 7] on (dp=2, tp=3) as [S(0), S(1)]\"")
      ->required();
  spec_command->add_flag("--all", spec.all, "List everything, however long");

  tegula::cli::BenchCall bench;
  CLI::App* bench_command =
      app.add_subcommand("bench", "Measure, beside the alternatives: GROUP [--peer] [--json FILE]");
  bench_command->prefix_command();
  bench_command->set_help_flag();

  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& request) {
    return app.exit(request);  // prints the help that was asked for
  } catch (const CLI::ParseError& error) {
    throw tegula::UsageError(sentence_of(error, app, argc, argv)).hint("see tegula --help");
  }
  if (mesh_command->parsed()) return tegula::cli::show_mesh(mesh, std::cout);
  if (spec_command->parsed()) return tegula::cli::show_spec(spec, std::cout);
  bench.arguments = bench_command->remaining();
  return tegula::cli::run_bench(bench);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return dispatch(argc, argv);
  } catch (const tegula::UsageError& error) {
    std::cerr << error.what() << '\n';
    return kWrongCall;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return kFailed;
  }
}
