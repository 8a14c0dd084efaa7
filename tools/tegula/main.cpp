// tegula: the command line. Exit codes: 0 all is well, 1 something failed, 2 the call was wrong.
#include <CLI/CLI.hpp>
#include <exception>
#include <iostream>

#include "tegula/base/error.h"
#include "tegula/base/text.h"
#include "tools/tegula/commands.h"
#include "tools/tegula/run.h"

namespace {

constexpr int kFailed = 1;
constexpr int kWrongCall = 2;

// What is wrong with the call. CLI11 says only that a command is missing when one is unknown.
std::string sentence_of(const CLI::ParseError& error, const CLI::App& app, int argc, char** argv) {
  if (argc == 1) return "no command was given";
  const bool has_command = argc > 1 && argv[1][0] != '-';
  if (has_command &&
      app.get_subcommands([&](const CLI::App* one) { return one->check_name(argv[1]); }).empty()) {
    return "there is no command " + tegula::in_quotes(argv[1]);
  }
  std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

int run_command(int argc, char** argv) {
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

  tegula::cli::PlanCall plan;
  CLI::App* plan_command =
      app.add_subcommand("plan", "Explain how a tensor gets from one distribution to another");
  plan_command
      ->add_option("spec", plan.first,
                   "e.g. \"f32[8, 16] on (dp=2, tp=4) as [R, S(0)]\"; without \"as ...\" if its "
                   "placements come next")
      ->required();
  plan_command->add_option("to", plan.second, "Its placements afterwards, e.g. \"[S(0), R]\"")
      ->required();
  plan_command->add_option("or-to", plan.third, "... if the ones before came first");
  plan_command->add_option("--cap", plan.cap, "The most bytes that a step may hold on a rank");

  tegula::cli::RulesCall rules;
  CLI::App* rules_command =
      app.add_subcommand("rules", "Show what operators do to placements, along one axis");
  rules_command->add_option("ops", rules.names, "e.g. mm or sum.dim_IntList; all if none is named");
  CLI::Option* coverage = rules_command->add_flag(
      "--coverage", rules.coverage,
      "Run libtorch's sample calls and count the operators that leave their operands in place");
  rules_command
      ->add_option("--list", rules.lists, "A file of overloads to count the coverage against")
      ->needs(coverage);
  rules_command->add_option("--json", rules.json, "A file for what came of each overload")
      ->needs(coverage);
  CLI::Option* compare =
      rules_command
          ->add_flag("--compare", rules.compare,
                     "Run calls here and by PyTorch's DTensor and compare the bytes they send; "
                     "names are calls or families, e.g. \"softmax of dim 1\" or norms")
          ->excludes(coverage);
  rules_command->add_option("--output", rules.output, "The file to write the comparison to")
      ->needs(compare);
  rules_command
      ->add_option("--gathers", rules.gathers,
                   "What --coverage --json wrote: the operators that gather are listed")
      ->needs(compare);

  tegula::cli::InspectCall inspect;
  CLI::App* inspect_command = app.add_subcommand(
      "inspect", "Show the tensors of a safetensors file, a checkpoint or a folder of checkpoints");
  inspect_command->add_option("paths", inspect.paths, "e.g. model.safetensors or run/step-100")
      ->required();
  inspect_command->add_flag("--verify", inspect.verify,
                            "Read everything, compare checksums, and show each tensor's");
  inspect_command->add_flag("--diff", inspect.diff, "Compare two: tensors and values that differ");

  tegula::cli::RunOptions run;
  CLI::App* run_command = app.add_subcommand("run", "Run a program as the ranks of a job");
  run_command->add_option("-n,--ranks", run.ranks, "Ranks on this host")->capture_default_str();
  run_command
      ->add_option("--backend", run.backend,
                   "shm, gloo or mpi (on one host); otherwise Tegula chooses")
      ->check(CLI::IsMember({"shm", "gloo", "mpi"}));
  run_command->add_option("--nodes", run.nodes, "Hosts; this command runs on each of them")
      ->capture_default_str();
  run_command->add_option("--node-rank", run.node_rank, "Which of the hosts this is, from 0")
      ->capture_default_str();
  run_command->add_option("--rendezvous", run.rendezvous, "host:port, a free port of host 0");
  run_command->add_option("--secret-file", run.secret_file,
                          "Holds a text that the ranks of all hosts know and nobody else does");
  run_command->add_option("--timeout", run.timeout, "Seconds that a rank waits for another (300)");
  run_command
      ->add_option("--max-restarts", run.max_restarts, "Restart all ranks so often when one fails")
      ->capture_default_str();
  run_command->prefix_command();
  run_command->footer(
      "The program and its arguments come last: tegula run -n 4 ./prog --its-own-option");

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
  if (plan_command->parsed()) return tegula::cli::show_plan(plan, std::cout);
  if (rules_command->parsed() && rules.coverage) return tegula::cli::run_coverage(rules);
  if (rules_command->parsed() && rules.compare) return tegula::cli::run_compare(rules);
  if (rules_command->parsed()) return tegula::cli::show_rules(rules, std::cout);
  if (inspect_command->parsed()) return tegula::cli::inspect(inspect, std::cout);
  if (run_command->parsed()) {
    run.command = run_command->remaining();
    return tegula::cli::run(run);
  }
  bench.arguments = bench_command->remaining();
  return tegula::cli::run_bench(bench);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run_command(argc, argv);
  } catch (const tegula::UsageError& error) {
    std::cerr << error.what() << '\n';
    return kWrongCall;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return kFailed;
  }
}
