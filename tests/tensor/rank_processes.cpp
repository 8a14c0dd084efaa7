#include "tests/tensor/rank_processes.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tegula/base/launch.h"

namespace tegula {

using namespace inner;

namespace {

using Clock = std::chrono::steady_clock;

std::map<std::string, RankProgram::Body>& programs() {
  static std::map<std::string, RankProgram::Body> all;
  return all;
}

struct Child {
  pid_t id;
  int output;  // an unlinked file
};

int unnamed_file() {
  char name[] = "/tmp/tegula-rank-XXXXXX";
  const int file = mkostemp(name, O_CLOEXEC);
  if (file < 0) throw std::runtime_error("no temporary file");
  unlink(name);
  return file;
}

[[noreturn]] void become_rank(int rank, int ranks, const std::string& job, const std::string& name,
                              const std::string& argument, int output) {
  launch::set_launch({rank, ranks, rank, ranks, job});
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  execl("/proc/self/exe", "rank", "--rank", name.c_str(), argument.c_str(), nullptr);
  _exit(127);
}

std::string text_in(int file) {
  std::string text;
  char buffer[4096];
  lseek(file, 0, SEEK_SET);
  for (ssize_t count; (count = read(file, buffer, sizeof(buffer))) > 0;) {
    text.append(buffer, static_cast<std::size_t>(count));
  }
  close(file);
  return text;
}

// How it ended, empty if well; kills it after the deadline.
std::string end_of(const Child& child, Clock::time_point deadline) {
  int status = 0;
  bool in_time = true;
  while (waitpid(child.id, &status, WNOHANG) == 0) {
    if (in_time && Clock::now() > deadline) {
      kill(child.id, SIGKILL);
      in_time = false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  const std::string text = text_in(child.output);
  if (!in_time) return "was killed, having taken too long\n" + text;
  if (WIFSIGNALED(status))
    return "ended with signal " + std::to_string(WTERMSIG(status)) + "\n" + text;
  if (WEXITSTATUS(status) != 0) return "failed\n" + text;
  return "";
}

int run_as_rank(const std::string& name, const std::string& argument) {
  at::set_num_threads(1);
  try {
    World world = World::from_env(patient_world());
    programs().at(name)(world, argument);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    return 1;
  }
}

}  // namespace

RankProgram::RankProgram(std::string name, Body body) : name_(std::move(name)) {
  programs()[name_] = std::move(body);
}

void RankProgram::run(int ranks, const std::string& argument, double limit) const {
  const Clock::time_point start = Clock::now();
  const std::string job =
      std::to_string(getpid()) + "-" + std::to_string(start.time_since_epoch().count());
  std::vector<Child> children;
  for (int rank = 0; rank < ranks; ++rank) {
    const int output = unnamed_file();
    const pid_t id = fork();
    if (id == 0) become_rank(rank, ranks, job, name_, argument, output);
    children.push_back({id, output});
  }
  const auto deadline =
      start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(limit));
  std::string failures;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string end = end_of(children[static_cast<std::size_t>(rank)], deadline);
    if (!end.empty()) failures += "rank " + std::to_string(rank) + " " + end + "\n";
  }
  if (!failures.empty()) throw std::runtime_error(failures);
}

WorldOptions patient_world() {
  WorldOptions options;
  options.timeout = std::chrono::seconds(120);
  return options;
}

}  // namespace tegula

int main(int argc, char** argv) {
  if (argc == 4 && std::string(argv[1]) == "--rank") return tegula::run_as_rank(argv[2], argv[3]);
  testing::InitGoogleTest(&argc, argv);
  at::manual_seed(20260101);  // of what rank threads draw, so that a failure can be repeated
  return RUN_ALL_TESTS();
}
