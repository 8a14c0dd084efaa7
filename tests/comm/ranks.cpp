#include "tests/comm/ranks.h"

#include <ATen/Parallel.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <thread>

#include "tegula/base/launch.h"

namespace tegula {

using namespace inner;

namespace {

using Clock = std::chrono::steady_clock;

struct RankProcess {
  pid_t id;
  int errors;  // the reading end of a pipe
};

[[noreturn]] void be_rank(int rank, int ranks, const std::string& job, int errors,
                          const RankBody& body, const WorldOptions& options) {
  launch::set_launch({rank, ranks, rank, ranks, job});
  at::set_num_threads(1);
  int code = 0;
  try {
    World world = World::from_env(options);
    body(world);
  } catch (const std::exception& error) {
    const std::string text = error.what();
    code = write(errors, text.data(), text.size()) >= 0 ? 1 : 2;
  }
  _exit(code);
}

std::string read_all(int descriptor) {
  std::string text;
  char buffer[4096];
  for (ssize_t count; (count = read(descriptor, buffer, sizeof(buffer))) > 0;) {
    text.append(buffer, static_cast<std::size_t>(count));
  }
  close(descriptor);
  return text;
}

enum class State { Running, Stopped, Ended };

// What has become of a child; `before` if nothing new.
State state_of(const RankProcess& child, State before, RankEnd& end) {
  int status = 0;
  if (waitpid(child.id, &status, WNOHANG | WUNTRACED) == 0) return before;
  if (WIFSTOPPED(status)) return State::Stopped;
  if (WIFEXITED(status)) end.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) end.signal = WTERMSIG(status);
  end.error = read_all(child.errors);
  return State::Ended;
}

std::vector<RankEnd> ends_of(const std::vector<RankProcess>& children, Clock::time_point deadline) {
  std::vector<RankEnd> ends(children.size());
  std::vector<State> states(children.size(), State::Running);
  const auto is_any = [&](State state) {
    return std::find(states.begin(), states.end(), state) != states.end();
  };
  while (is_any(State::Running) || is_any(State::Stopped)) {
    // those that stopped themselves have nothing more to do once the others have ended
    const bool kills = !is_any(State::Running) || Clock::now() > deadline;
    for (std::size_t rank = 0; rank < children.size(); ++rank) {
      if (states[rank] == State::Ended) continue;
      if (kills) kill(children[rank].id, SIGKILL);
      states[rank] = state_of(children[rank], states[rank], ends[rank]);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return ends;
}

void throw_first_failure(const std::vector<RankEnd>& ends) {
  for (std::size_t rank = 0; rank < ends.size(); ++rank) {
    if (ends[rank].exit_code == 0) continue;
    throw std::runtime_error("rank " + std::to_string(rank) + " ended with code " +
                             std::to_string(ends[rank].exit_code) + ", signal " +
                             std::to_string(ends[rank].signal) + ": " + ends[rank].error);
  }
}

}  // namespace

std::ostream& operator<<(std::ostream& stream, Way way) {
  switch (way) {
    case Way::Threads:
      return stream << "ShmThreads";
    case Way::Processes:
      return stream << "ShmProcesses";
    case Way::GlooThreads:
      return stream << "GlooThreads";
    case Way::GlooProcesses:
      return stream << "GlooProcesses";
    case Way::Mpi:
      return stream << "Mpi";
  }
  return stream;
}

std::vector<RankEnd> run_processes(int ranks, const RankBody& body, const WorldOptions& options,
                                   double limit) {
  const Clock::time_point start = Clock::now();
  const std::string job =
      std::to_string(getpid()) + "-" + std::to_string(start.time_since_epoch().count());
  std::vector<RankProcess> children;
  for (int rank = 0; rank < ranks; ++rank) {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("no pipe");
    const pid_t id = fork();
    if (id == 0) {
      close(ends[0]);
      be_rank(rank, ranks, job, ends[1], body, options);
    }
    close(ends[1]);
    children.push_back({id, ends[0]});
  }
  const auto deadline =
      start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(limit));
  return ends_of(children, deadline);
}

void run_in(Way way, int ranks, const RankBody& body) {
  WorldOptions options;
  switch (way) {
    case Way::Threads:
      return run_ranks(ranks, body);
    case Way::Processes:
      return throw_first_failure(run_processes(ranks, body));
    case Way::GlooThreads:
      options.backend = "gloo";
      return run_ranks(ranks, body, options);
    case Way::GlooProcesses:
      options.backend = "gloo";
      return throw_first_failure(run_processes(ranks, body, options));
    case Way::Mpi:
      break;
  }
  throw std::runtime_error("mpi ranks are started by mpirun");
}

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

void require(bool condition, const std::string& text) {
  if (!condition) throw std::runtime_error(text);
}

}  // namespace tegula
