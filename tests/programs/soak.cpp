// Faults of every kind in every state, again and again: jobs of three ranks of which one fails. The
// others must end with an error, or go on if the fault is harmless; nobody may hang, and nothing
// may be left. Prints how often each cell was met, how long the slowest detection took, what is
// left.
//
// Usage: soak [seconds [seed]]
#include <ATen/ATen.h>
#include <dirent.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <new>
#include <random>
#include <thread>

#include "tegula/comm/world_state.h"
#include "tests/comm/ranks.h"

namespace tegula {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

enum class FaultKind { Killed, Stopped, Exception, Fork, Signals, NoMemory };
constexpr std::array kFaults = {FaultKind::Killed, FaultKind::Stopped, FaultKind::Exception,
                                FaultKind::Fork,   FaultKind::Signals, FaultKind::NoMemory};
constexpr std::array kFaultNames = {"killed", "stopped", "exception",
                                    "fork",   "signals", "no memory"};

enum class During { Start, Group, Collective, Lock, Async, Recovery };
constexpr std::array kStates = {During::Start, During::Group, During::Collective,
                                During::Lock,  During::Async, During::Recovery};
constexpr std::array kStateNames = {"start", "group", "collective", "lock", "async", "recovery"};

bool is_harmless(FaultKind fault) {
  return fault == FaultKind::Fork || fault == FaultKind::Signals;
}

// What the ranks of a job tell the soak.
struct Notes {
  std::atomic<std::int64_t> fault{0};  // when it came
  std::array<std::atomic<std::int64_t>, 3> noticed{};
};

std::int64_t now() { return Clock::now().time_since_epoch().count(); }

struct Trial {
  FaultKind fault;
  During state;
  int victim;
  std::string engine;
  std::chrono::microseconds delay;
};

void limit_memory() {
  std::ifstream file("/proc/self/statm");
  rlim_t pages = 0;
  file >> pages;
  const rlimit limit{pages * 4096, pages * 4096};
  setrlimit(RLIMIT_AS, &limit);
}

// On a thread beside the rank's own.
void strike(const Trial& trial, Notes& notes) {
  std::this_thread::sleep_for(trial.delay);
  notes.fault = now();
  switch (trial.fault) {
    case FaultKind::Killed:
      raise(SIGKILL);
      break;
    case FaultKind::Stopped:
      kill(getpid(), SIGSTOP);
      break;
    case FaultKind::Fork: {
      const pid_t child = fork();
      if (child == 0) exit(0);  // with all destructors that it can reach
      waitpid(child, nullptr, 0);
      break;
    }
    case FaultKind::Signals:
      for (int i = 0; i < 200; ++i) {
        kill(getpid(), SIGUSR1);
        std::this_thread::sleep_for(50us);
      }
      break;
    case FaultKind::NoMemory:
      limit_memory();
      break;
    case FaultKind::Exception:
      break;  // by the rank itself
  }
}

void one_step(World& world, During state, int i) {
  const Group group = world.group();
  switch (state) {
    case During::Start: {
      World another = World::from_env({"", world.timeout()});
      another.group().barrier();
      break;
    }
    case During::Group:
      world.group({0, 1, 2}, {"group " + std::to_string(i), "", std::nullopt}).barrier();
      break;
    case During::Collective:
      group.all_reduce(at::ones({i % 3 == 0 ? 300'000 : 100}), ReduceOp::Sum);
      group.all_to_all(at::ones({999}), 0, 0);
      break;
    case During::Lock:
      for (int k = 0; k < 50; ++k) {
        inner::comm::state_of(world).board->set("soak " + std::to_string(world.rank()), "value");
      }
      group.barrier();
      break;
    case During::Async: {
      const Pending sum = group.all_reduce_async(at::ones({50'000}), ReduceOp::Sum);
      const Pending sent = group.send_async(at::ones({100}), (world.rank() + 1) % 3);
      const Pending got = group.recv_async(at::zeros({100}), (world.rank() + 2) % 3);
      sum.wait();
      sent.wait();
      got.wait();
      break;
    }
    case During::Recovery:
      world.recover();
      group.barrier();
      break;
  }
}

void be_rank(World& world, const Trial& trial, Notes& notes) {
  struct sigaction action{};
  action.sa_handler = [](int) {};  // without SA_RESTART: system calls are interrupted
  sigaction(SIGUSR1, &action, nullptr);
  world.group().barrier();
  const bool is_victim = world.rank() == trial.victim;
  std::thread fault;
  if (is_victim) fault = std::thread([&] { strike(trial, notes); });
  const auto rank = static_cast<std::size_t>(world.rank());
  try {
    // those whose fault is not harmless go on until it comes
    for (int i = 0; i < 30 || !is_harmless(trial.fault); ++i) {
      one_step(world, trial.state, i);
      // what the steps themselves need may be there still
      if (is_victim && trial.fault == FaultKind::NoMemory && notes.fault != 0) at::empty({1 << 28});
      if (is_victim && trial.fault == FaultKind::Exception && i == 3) {
        notes.fault = now();
        throw std::runtime_error("the victim's own");
      }
    }
  } catch (...) {
    notes.noticed[rank] = now();
    if (fault.joinable()) fault.detach();
    throw;
  }
  if (fault.joinable()) fault.join();
}

std::vector<std::string> left_over() {
  std::vector<std::string> found;
  if (waitpid(-1, nullptr, WNOHANG) != -1) found.emplace_back("a child process");
  std::ifstream sockets("/proc/net/unix");
  for (std::string line; std::getline(sockets, line);) {
    if (line.find("@tegula-") != std::string::npos) found.push_back("a socket: " + line);
  }
  DIR* const folder = opendir("/dev/shm");
  while (const dirent* entry = folder == nullptr ? nullptr : readdir(folder)) {
    if (std::string(entry->d_name).find("tegula") != std::string::npos) {
      found.push_back("/dev/shm/" + std::string(entry->d_name));
    }
  }
  if (folder != nullptr) closedir(folder);
  return found;
}

class Soak {
 public:
  explicit Soak(std::uint64_t seed)
      : random_(seed),
        notes_(new(mmap(nullptr, sizeof(Notes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                        -1, 0)) Notes()) {}

  // Every cell in turn, until the time is over.
  void run(std::chrono::seconds time) {
    const Clock::time_point end = Clock::now() + time;
    while (true) {
      for (const FaultKind fault : kFaults) {
        for (const During state : kStates) {
          if (Clock::now() > end) return;
          try_once(fault, state);
        }
      }
    }
  }

  // Whether all went as it should.
  bool report() const {
    std::printf("%-11s", "fault");
    for (const char* name : kStateNames) std::printf(" %10s", name);
    std::printf("  slowest detection\n");
    int total = 0;
    for (std::size_t fault = 0; fault < kFaults.size(); ++fault) {
      std::printf("%-11s", kFaultNames[fault]);
      for (const int count : counts_[fault]) {
        std::printf(" %10d", count);
        total += count;
      }
      if (is_harmless(kFaults[fault])) {
        std::printf("  harmless\n");
      } else {
        std::printf("  %.3f s\n", static_cast<double>(slowest_[fault]) / 1e9);
      }
    }
    const std::vector<std::string> left = left_over();
    std::printf("%d faults, %zu wrong, left over: %s\n", total, wrong_.size(),
                left.empty() ? "nothing" : left.front().c_str());
    for (const std::string& text : wrong_) std::printf("  %s\n", text.c_str());
    return wrong_.empty() && left.empty();
  }

 private:
  void try_once(FaultKind fault, During state) {
    new (notes_) Notes();
    Trial trial{fault, state, std::uniform_int_distribution(0, 2)(random_), "",
                std::chrono::microseconds(std::uniform_int_distribution(0, 3000)(random_))};
    // libtorch's gloo ends the process where it gets no memory
    const bool may_be_gloo = fault != FaultKind::NoMemory && state != During::Lock;
    if (may_be_gloo && std::uniform_int_distribution(0, 4)(random_) == 0) trial.engine = "gloo";
    const WorldOptions options{trial.engine, 1500ms};
    const auto ends =
        run_processes(3, [&](World& world) { be_rank(world, trial, *notes_); }, options, 60);
    ++counts_[static_cast<std::size_t>(fault)][static_cast<std::size_t>(state)];
    for (int rank = 0; rank < 3; ++rank) look_at(trial, rank, ends[static_cast<std::size_t>(rank)]);
  }

  void look_at(const Trial& trial, int rank, const RankEnd& end) {
    const auto fail = [&](const std::string& what) {
      wrong_.push_back(std::string(kFaultNames[static_cast<std::size_t>(trial.fault)]) +
                       " during " + kStateNames[static_cast<std::size_t>(trial.state)] + " over " +
                       (trial.engine.empty() ? "shm" : trial.engine) + ", rank " +
                       std::to_string(rank) + " (victim " + std::to_string(trial.victim) +
                       "): " + what + " " + end.error.substr(0, end.error.find('\n')));
    };
    if (is_harmless(trial.fault)) {
      if (end.exit_code != 0) fail("ended with " + std::to_string(end.exit_code));
      return;
    }
    if (rank == trial.victim) return;
    if (end.exit_code != 1) {
      return fail("exit code " + std::to_string(end.exit_code) + ", signal " +
                  std::to_string(end.signal));
    }
    const std::int64_t noticed = notes_->noticed[static_cast<std::size_t>(rank)];
    std::int64_t& slowest = slowest_[static_cast<std::size_t>(trial.fault)];
    if (notes_->fault != 0 && noticed != 0) slowest = std::max(slowest, noticed - notes_->fault);
  }

  std::mt19937_64 random_;
  Notes* notes_;
  std::array<std::array<int, kStates.size()>, kFaults.size()> counts_{};
  std::array<std::int64_t, kFaults.size()> slowest_{};
  std::vector<std::string> wrong_;
};

}  // namespace
}  // namespace tegula

int main(int count, char** arguments) {
  setenv("TEGULA_RECORDER", "off", 0);
  setenv("TEGULA_LOG", "error", 0);
  tegula::Soak soak(count > 2 ? std::strtoull(arguments[2], nullptr, 10) : 1);
  soak.run(std::chrono::seconds(count > 1 ? std::atoi(arguments[1]) : 60));
  return soak.report() ? 0 : 1;
}
