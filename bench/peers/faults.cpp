// MPI's own calls under the faults of bench/faults.cpp, whose lines it prints. mpirun starts it.
// Usage: tegula-bench-faults-mpi <fault>
#include <mpi.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr int kFaulty = 1;
constexpr int kCount = 1024;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void say(const std::string& line) {
  const std::string whole = line + "\n";
  if (write(STDOUT_FILENO, whole.data(), whole.size()) < 0) _exit(1);
}

void sum_of(int count) {
  const std::vector<float> mine(static_cast<std::size_t>(count), 1.0F);
  std::vector<float> result(mine.size());
  MPI_Allreduce(mine.data(), result.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

void broadcast() {
  std::vector<float> values(kCount, 1.0F);
  MPI_Bcast(values.data(), kCount, MPI_FLOAT, kFaulty, MPI_COMM_WORLD);
}

const std::map<std::string, std::function<void()>> kFaults = {
    {"kill", [] { raise(SIGKILL); }},
    {"stop", [] { raise(SIGSTOP); }},
    {"call", broadcast},
    {"shape", [] { sum_of(kCount + 512); }},
    {"exception", [] { throw std::runtime_error("a mistake of the program"); }},
    {"caught", [] {}},
};

}  // namespace

int main(int argc, char** argv) {
  const auto fault = argc == 2 ? kFaults.find(argv[1]) : kFaults.end();
  if (fault == kFaults.end()) {
    std::fprintf(stderr, "usage: %s <fault>\n", argv[0]);
    return 2;
  }
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int i = 0; i < 3; ++i) sum_of(kCount);
  if (rank == kFaulty) {
    say("fault " + std::to_string(now()));
    fault->second();
    pause();
  }
  sum_of(kCount);
  say("returned " + std::to_string(rank) + " " + std::to_string(now()));
  _exit(0);  // MPI_Finalize would wait for the faulty rank
}
