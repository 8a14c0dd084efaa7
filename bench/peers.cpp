#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <sstream>

#include "bench/groups.h"
#include "tegula/base/error.h"

namespace tegula::bench {

namespace {

// As the shell reads it.
std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? "'\\''" : std::string(1, c);
  return result + "'";
}

std::string arguments_of(const Selection& selection) {
  std::string text;
  if (!selection.only.empty()) text += " --only " + quoted(selection.only);
  if (selection.runs) text += " --runs " + std::to_string(*selection.runs);
  return text;
}

std::string script_of(const std::string& group) {
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
  return self.parent_path() / TEGULA_PEERS / (group + ".py");
}

std::vector<Measurement> measured_by(const std::string& script, const std::string& arguments) {
  const char* python = std::getenv("TEGULA_PYTHON");
  const std::string command = quoted(python != nullptr ? python : "python3") + " " +
                              quoted(script) + arguments + " 2>/dev/null";
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr)
    throw UsageError("cannot start Python").fact("command", command).hint("set TEGULA_PYTHON");
  std::string output;
  std::array<char, 4096> chunk{};
  while (const std::size_t got = std::fread(chunk.data(), 1, chunk.size(), pipe))
    output.append(chunk.data(), got);
  const int status = pclose(pipe);
  if (status != 0) {
    throw UsageError("a benchmark in Python failed")
        .fact("command", command)
        .fact("status", std::to_string(WIFEXITED(status) ? WEXITSTATUS(status) : status))
        .hint("set TEGULA_PYTHON to a Python that has torch");
  }
  std::vector<Measurement> measurements;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("{")) measurements.push_back(from_json(line));
  }
  return measurements;
}

}  // namespace

std::vector<Measurement> run_python() { return measured_by(script_of("python"), " --who tegula"); }

std::vector<Measurement> run_peer(const std::string& group, const Selection& selection) {
  const std::string script = script_of(group);
  if (!std::filesystem::exists(script)) return {};
  return measured_by(script, arguments_of(selection));
}

}  // namespace tegula::bench
