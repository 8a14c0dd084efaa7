#include "tools/tegula/python_program.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "tegula/base/error.h"

namespace tegula::cli {

void become(const PythonProgram& program, const std::vector<std::string>& arguments) {
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
  const std::filesystem::path script = self.parent_path() / program.folder / program.name;
  if (!std::filesystem::exists(script)) {
    throw UsageError(program.what + " is not there")
        .fact("program", script.string())
        .hint(program.hint);
  }
  const char* asked = std::getenv("TEGULA_PYTHON");
  const std::string python = asked != nullptr ? asked : "python3";
  std::vector<std::string> words{python, script, "--tegula", self};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> raw;
  for (std::string& word : words) raw.push_back(word.data());
  raw.push_back(nullptr);
  execvp(python.c_str(), raw.data());
  throw UsageError("cannot start Python: " + std::string(std::strerror(errno)))
      .fact("program", python)
      .hint("set TEGULA_PYTHON to a Python that has torch and tegula");
}

}  // namespace tegula::cli
