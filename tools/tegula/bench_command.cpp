#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "tegula/base/error.h"
#include "tools/tegula/commands.h"

namespace tegula::cli {

int run_bench(const BenchCall& call) {
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string program = self.parent_path() / "tegula-bench";
  std::vector<std::string> words{program};
  words.insert(words.end(), call.arguments.begin(), call.arguments.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execv(program.c_str(), arguments.data());
  throw UsageError("cannot run the benchmarks: " + std::string(std::strerror(errno)))
      .fact("program", program)
      .hint("build it with `make build`; it needs Google Benchmark");
}

}  // namespace tegula::cli
