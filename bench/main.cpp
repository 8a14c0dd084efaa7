// tegula-bench: runs groups of benchmarks, prints a table and writes one JSON line per measurement.
#include <CLI/CLI.hpp>
#include <exception>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>

#include "bench/groups.h"
#include "tegula/base/error.h"
#include "tegula/base/text.h"

namespace {

using tegula::bench::Measurement;
using tegula::bench::Selection;
using Run = std::function<std::vector<Measurement>(const Selection&)>;

Run whole(std::vector<Measurement> (*group)()) {
  return [group](const Selection& selection) {
    if (!selection.is_default())
      throw tegula::UsageError("cases can be chosen in the group train only")
          .hint("leave --only and --runs out, or say tegula bench train");
    return group();
  };
}

const std::map<std::string, Run> kGroups = {
    {"core", whole(tegula::bench::run_core)},
    {"comm", whole(tegula::bench::run_comm)},
    {"dispatch", whole(tegula::bench::run_dispatch)},
    {"io", whole(tegula::bench::run_io)},
    {"ops", whole(tegula::bench::run_ops)},
    {"plan", whole(tegula::bench::run_plan)},
    {"redistribute", whole(tegula::bench::run_redistribute)},
    {"serve", whole(tegula::bench::run_serve)},
    {"train", tegula::bench::run_train},
};

std::vector<std::string> chosen_groups(const std::string& word) {
  std::vector<std::string> known;
  for (const auto& [name, run] : kGroups) known.push_back(name);
  if (word == "all") return known;
  if (kGroups.count(word) != 0) return {word};
  throw tegula::UsageError("there is no group of benchmarks " + tegula::in_quotes(word))
      .hint("use all or one of " + tegula::join(known));
}

int run(int argc, char** argv) {
  CLI::App app("Measure, beside the alternatives", "tegula bench");
  std::string group = "all";
  std::string json;
  bool peer = false;
  app.add_option(
      "group", group,
      "core, comm, dispatch, io, ops, plan, redistribute, serve, train, or all (default)");
  app.add_flag("--peer", peer, "Measure the same work with the peers, in the same run");
  app.add_option("--json", json, "Write one JSON line per measurement to this file");
  Selection selection;
  app.add_option("--only", selection.only, "Cases of the group train whose names have this part");
  app.add_option("--runs", selection.runs, "Times that the group train runs; medians count")
      ->check(CLI::Range(1, 1000));
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& request) {
    return app.exit(request);
  } catch (const CLI::ParseError& error) {
    throw tegula::UsageError(error.what()).hint("see tegula bench --help");
  }
  std::ofstream file;
  if (!json.empty()) {
    file.open(json);
    if (!file)
      throw tegula::UsageError("cannot write " + tegula::in_quotes(json)).hint("check the path");
  }
  std::vector<Measurement> all;
  for (const std::string& name : chosen_groups(group)) {
    std::vector<Measurement> measured = kGroups.at(name)(selection);
    all.insert(all.end(), measured.begin(), measured.end());
    if (!peer) continue;
    std::vector<Measurement> theirs = tegula::bench::run_peer(name, selection);
    all.insert(all.end(), theirs.begin(), theirs.end());
  }
  print_table(all, std::cout);
  for (const Measurement& measurement : all) file << to_json(measurement) << '\n';
  compare_checksums(all);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const tegula::UsageError& error) {
    std::cerr << error.what() << '\n';
    return 2;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
