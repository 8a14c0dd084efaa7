#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "tegula/base/error.h"
#include "tegula/base/text.h"
#include "tools/tegula/commands.h"

namespace tegula::cli {

int run_coverage(const RulesCall& call) {
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
  const std::filesystem::path script = self.parent_path() / TEGULA_COVERAGE / "coverage.py";
  if (!std::filesystem::exists(script)) {
    throw UsageError("the program that counts the coverage is not there")
        .fact("program", script.string())
        .hint("run tegula from a build tree: it is one of the tests");
  }
  const char* asked = std::getenv("TEGULA_PYTHON");
  const std::string python = asked != nullptr ? asked : "python3";
  std::vector<std::string> words{python, script, "--tegula", self};
  for (const std::string& list : call.lists) words.insert(words.end(), {"--list", list});
  if (!call.names.empty()) words.insert(words.end(), {"--ops", join(call.names, ",")});
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execvp(python.c_str(), arguments.data());
  throw UsageError("cannot start Python: " + std::string(std::strerror(errno)))
      .fact("program", python)
      .hint("set TEGULA_PYTHON to a Python that has torch and tegula");
}

}  // namespace tegula::cli
