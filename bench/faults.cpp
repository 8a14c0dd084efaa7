// tegula-bench-faults: three ranks, of which rank 1 does what it should not; the others tell what
// their call came to, and when. bench/peers/faults.py, which reads these lines, says which faults
// there are and runs the peers beside it.
//
//   fault 12.5                                rank 1 begins, at this time of the monotonic clock
//   threw 0 12.6 rank 1 died                  what rank 0 met, with the first line of the error
//   returned 0 12.6                           ... or nothing at all
//   ended 2 12.6                              rank 2 is gone
//
// Usage: tegula-bench-faults <fault> <backend> <timeout in seconds>     (under mpirun: backend mpi)
#include <ATen/ATen.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tegula/base/error.h"
#include "tegula/base/launch.h"
#include "tegula/tegula.h"

namespace {

using namespace tegula;
namespace launch = inner::launch;

constexpr int kRanks = 3;
constexpr int kFaulty = 1;
constexpr std::int64_t kCount = 1024;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// One write per line: ranks share the pipe.
void say(const std::string& line) {
  const std::string whole = line + "\n";
  if (write(STDOUT_FILENO, whole.data(), whole.size()) < 0) _exit(1);
}

void sum_of(const World& world, std::int64_t count) {
  world.group().all_reduce(at::ones({count}), ReduceOp::Sum);
}

// Rows of a small table by an index, which only the faulty rank gets wrong.
at::Tensor look_up(const World& world, std::int64_t index_of_faulty_rank) {
  const DeviceMesh mesh = world.mesh({{"dp", kRanks}});
  const at::Tensor rows = distribute_tensor(at::ones({4, 2}), mesh, {Replicate()});
  const std::int64_t index = world.rank() == kFaulty ? index_of_faulty_rank : 0;
  const at::Tensor indices = from_local(at::full({2}, index, at::kLong), mesh, {Shard(0)});
  return at::embedding(rows, indices);
}

using Act = std::function<void(const World&)>;
struct Fault {
  Act of_faulty_rank;
  Act of_others = [](const World& world) { sum_of(world, kCount); };
};

void catch_and_wait(const World& world) {
  try {
    look_up(world, 99);
  } catch (const std::exception&) {
    pause();  // busy with something else
  }
}

const std::map<std::string, Fault> kFaults = {
    {"kill", {[](const World&) { raise(SIGKILL); }}},
    {"stop", {[](const World&) { raise(SIGSTOP); }}},
    {"call", {[](const World& world) { world.group().broadcast(at::ones({kCount}), kFaulty); }}},
    {"shape", {[](const World& world) { sum_of(world, kCount + 512); }}},
    {"exception", {[](const World&) { throw std::runtime_error("a mistake of the program"); }}},
    {"caught", {catch_and_wait, [](const World& world) { full_tensor(look_up(world, 99)); }}},
};

void observe(const World& world, const Act& call) {
  const std::string me = std::to_string(world.rank()) + " ";
  try {
    call(world);
    say("returned " + me + std::to_string(now()));
  } catch (const std::exception& error) {
    const std::string text = error.what();
    say("threw " + me + std::to_string(now()) + " " + text.substr(0, text.find('\n')));
  }
}

void be_rank(const Fault& fault, const WorldOptions& options) {
  const World world = World::from_env(options);
  sum_of(world, kCount);
  full_tensor(look_up(world, 0));  // groups are made
  if (world.rank() != kFaulty) return observe(world, fault.of_others);
  say("fault " + std::to_string(now()));
  fault.of_faulty_rank(world);
  pause();
}

// Waits for all ranks but the faulty one, and ends that.
void watch(const std::vector<pid_t>& ranks) {
  for (int left = kRanks - 1; left > 0;) {
    const pid_t gone = wait(nullptr);
    for (int rank = 0; rank < kRanks; ++rank) {
      if (ranks[static_cast<std::size_t>(rank)] != gone) continue;
      say("ended " + std::to_string(rank) + " " + std::to_string(now()));
      if (rank != kFaulty) --left;
    }
  }
  kill(ranks[kFaulty], SIGKILL);
}

void run_job(const Fault& fault, const WorldOptions& options) {
  const std::string job = "faults " + std::to_string(getpid());
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    const pid_t child = fork();
    if (child < 0) throw InternalError("cannot start a process");
    if (child == 0) {
      launch::set_launch({rank, kRanks, rank, kRanks, job});
      be_rank(fault, options);
      _exit(0);
    }
    ranks.push_back(child);
  }
  watch(ranks);
}

}  // namespace

int main(int argc, char** argv) {
  const auto fault = argc == 4 ? kFaults.find(argv[1]) : kFaults.end();
  if (fault == kFaults.end()) {
    std::fprintf(stderr, "usage: %s <fault> <backend> <timeout in seconds>\n", argv[0]);
    return 2;
  }
  const WorldOptions options{argv[2], std::chrono::seconds(std::atoi(argv[3]))};
  if (std::getenv("OMPI_COMM_WORLD_RANK") != nullptr) {
    be_rank(fault->second, options);
  } else {
    run_job(fault->second, options);
  }
  return 0;
}
