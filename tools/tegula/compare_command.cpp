#include "tools/tegula/commands.h"
#include "tools/tegula/python_program.h"

namespace tegula::cli {

int run_compare(const RulesCall& call) {
  std::vector<std::string> arguments;
  if (!call.output.empty()) arguments.insert(arguments.end(), {"--output", call.output});
  if (!call.gathers.empty()) arguments.insert(arguments.end(), {"--gathers", call.gathers});
  arguments.emplace_back("--");  // a name may begin with a dash
  arguments.insert(arguments.end(), call.names.begin(), call.names.end());
  become({.folder = TEGULA_PEERS,
          .name = "communication.py",
          .what = "the program that compares communication",
          .hint = "build or install tegula with its benchmarks (TEGULA_BENCH)"},
         arguments);
}

}  // namespace tegula::cli
