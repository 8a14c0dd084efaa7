#include "tegula/base/text.h"
#include "tools/tegula/commands.h"
#include "tools/tegula/python_program.h"

namespace tegula::cli {

int run_coverage(const RulesCall& call) {
  std::vector<std::string> arguments;
  for (const std::string& list : call.lists) arguments.insert(arguments.end(), {"--list", list});
  if (!call.json.empty()) arguments.insert(arguments.end(), {"--json", call.json});
  if (!call.names.empty()) arguments.insert(arguments.end(), {"--ops", join(call.names, ",")});
  become({.folder = TEGULA_COVERAGE,
          .name = "coverage.py",
          .what = "the program that counts the coverage",
          .hint = "run tegula from a build tree: it is one of the tests"},
         arguments);
}

}  // namespace tegula::cli
