// Trains by every setting of the composition matrix and compares with one rank.
//
//   composition                          the settings whose ranks are threads
//   tegula run -n 4 composition          those whose ranks are 4 processes
//   composition "dp=2 tp=2 tied f64"     this one
//
// Options, before settings:
//   --list             prints the matrix, runs nothing
//   --ranks            prints the numbers of processes that it wants, runs nothing
//   --one-in N         every N-th of it
//   --mutant NAME      makes a mistake on purpose (train.h), where it matters: fails unless each of
//                      these runs gives another result than one rank
//   --results FILE     writes a line per run
//   --table FILE...    makes docs/composition.md of such lines, on the standard output
#include <ATen/ATen.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <set>
#include <string>
#include <vector>

#include "tegula/base/error.h"
#include "tegula/comm/world.h"
#include "tests/composition/matrix.h"
#include "tests/composition/report.h"
#include "tests/composition/train.h"

namespace tegula::composition {
namespace {

struct Options {
  std::vector<Settings> matrix = composition_matrix();
  bool is_given = false;  // then ranks are what they are
  std::size_t one_in = 1;
  Mutant mutant = Mutant::None;
  std::string results;
};

std::string on_one_line(std::string text) {
  for (char& letter : text) {
    if (letter == '\n') letter = ' ';
  }
  return text;
}

std::vector<Settings> chosen(const Options& options, int processes) {
  std::vector<Settings> some;
  std::size_t count = 0;
  for (const Settings& settings : options.matrix) {
    if (!(parse_settings(to_string(settings)) == settings)) {
      throw InternalError("settings are printed as others").fact("settings", to_string(settings));
    }
    const Ranks here = processes > 1 ? Ranks::Processes : Ranks::Threads;
    const bool fits = (options.is_given || settings.ranks == here) &&
                      (processes == 1 || settings.size() == processes);
    if (!fits || (options.mutant != Mutant::None && !matters(options.mutant, settings))) continue;
    if (count++ % options.one_in == 0) some.push_back(settings);
  }
  return some;
}

Outcome by_threads(const Settings& settings, Mutant mutant) {
  Outcome outcome{settings, 0, ""};
  try {
    const Trained want = train_alone(settings);
    std::vector<double> apart(static_cast<std::size_t>(settings.size()));
    run_ranks(settings.size(), [&](World& world) {
      apart[static_cast<std::size_t>(world.rank())] =
          difference(train(settings, world, mutant), want, settings);
    });
    outcome.difference = *std::max_element(apart.begin(), apart.end());
  } catch (const std::exception& error) {
    outcome.error = on_one_line(error.what());
  }
  return outcome;
}

Outcome by_processes(const Settings& settings, const World& world, Mutant mutant) {
  Outcome outcome{settings, 0, ""};
  try {
    const double apart =
        difference(train(settings, world, mutant), train_alone(settings), settings);
    const at::Tensor all =
        world.group().all_reduce(at::full({1}, apart, at::kDouble), ReduceOp::Max);
    outcome.difference = all.item<double>();
  } catch (const std::exception& error) {
    outcome.error = on_one_line(error.what());
    world.recover();
  }
  return outcome;
}

// Whether all is as it should be.
bool judge(const std::vector<Outcome>& outcomes, Mutant mutant) {
  std::size_t surprises = 0;
  for (const Outcome& outcome : outcomes) {
    const bool differs = outcome.error.empty() && !is_right(outcome);
    const bool as_expected = mutant == Mutant::None ? is_right(outcome) : differs;
    if (as_expected) continue;
    ++surprises;
    std::cout << (mutant == Mutant::None ? "WRONG  " : "NOT FOUND  ") << to_string(outcome) << '\n';
  }
  if (mutant == Mutant::None) {
    std::cout << "composition: " << summary(outcomes) << '\n';
  } else {
    std::cout << "composition: the mistake was found in " << outcomes.size() - surprises << " of "
              << outcomes.size() << " runs in which it matters\n";
  }
  return surprises == 0 && !outcomes.empty();
}

bool run(const Options& options) {
  const World world = World::from_env();
  std::vector<Outcome> outcomes;
  std::ofstream results;
  const bool speaks = world.rank() == 0;
  if (speaks && !options.results.empty()) results.open(options.results);
  for (const Settings& settings : chosen(options, world.size())) {
    outcomes.push_back(world.size() > 1 ? by_processes(settings, world, options.mutant)
                                        : by_threads(settings, options.mutant));
    if (results.is_open()) results << to_string(outcomes.back()) << std::endl;
  }
  return speaks ? judge(outcomes, options.mutant) : true;
}

int make_table(const std::vector<std::string>& files) {
  std::vector<Outcome> outcomes;
  for (const std::string& name : files) {
    std::ifstream file(name);
    for (std::string line; std::getline(file, line);) outcomes.push_back(parse_outcome(line));
  }
  // in the order of the matrix
  std::vector<Outcome> ordered;
  for (const Settings& settings : composition_matrix()) {
    const auto found = std::find_if(outcomes.begin(), outcomes.end(),
                                    [&](const Outcome& one) { return one.settings == settings; });
    if (found == outcomes.end()) {
      throw UsageError("a run of the matrix is missing").fact("settings", to_string(settings));
    }
    ordered.push_back(*found);
  }
  write_table(ordered, std::cout);
  return 0;
}

int print_ranks(const std::vector<Settings>& matrix) {
  std::set<int> ranks;
  for (const Settings& settings : matrix) {
    if (settings.ranks == Ranks::Processes) ranks.insert(settings.size());
  }
  for (const int count : ranks) std::cout << count << '\n';
  return 0;
}

int start(std::vector<std::string> words) {
  Options options;
  std::vector<Settings> given;
  for (auto word = words.begin(); word != words.end(); ++word) {
    const auto next = [&] {
      if (word + 1 == words.end())
        throw UsageError("an option lacks its value").fact("option", *word);
      return *++word;
    };
    if (*word == "--list") {
      for (const Settings& settings : options.matrix) std::cout << to_string(settings) << '\n';
      return 0;
    }
    if (*word == "--ranks") return print_ranks(options.matrix);
    if (*word == "--table") return make_table({word + 1, words.end()});
    if (*word == "--one-in") {
      options.one_in = std::stoul(next());
    } else if (*word == "--mutant") {
      options.mutant = mutant_named(next());
    } else if (*word == "--results") {
      options.results = next();
    } else {
      given.push_back(parse_settings(*word));
    }
  }
  options.is_given = !given.empty();
  if (options.is_given) options.matrix = given;
  return run(options) ? 0 : 1;
}

}  // namespace
}  // namespace tegula::composition

int main(int argc, char** argv) {
  try {
    return tegula::composition::start({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
