// One loop over the ranks' pipes and a descriptor of signals. A rank is the leader of a process
// group of its own, so that what it starts is stopped with it.
#include "tools/tegula/run.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "tegula/base/error.h"
#include "tegula/base/launch.h"
#include "tegula/base/log.h"
#include "tegula/base/random_bytes.h"
#include "tegula/base/text.h"
#include "tools/tegula/rank_output.h"

namespace tegula::cli {

using namespace inner;

namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto kGrace = 3s;  // from asking ranks to end to killing them
constexpr int kCannotStart = 127;
constexpr const char* kThreads = "OMP_NUM_THREADS";

struct Rank {
  int number;
  pid_t process;
  std::array<int, 2> pipes;  // stdout, stderr; -1 when closed
  std::array<RankOutput, 2> outputs;
  bool is_running = true;
  int code = 0;
};

struct Rendezvous {
  std::string host;
  int port = 0;
};

// host:port, or [address]:port where the address has colons itself.
Rendezvous rendezvous_in(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) {
    throw UsageError("ranks on several nodes need a place to find each other")
        .hint("--rendezvous host:port, a free port of node 0, the same on every node");
  }
  std::string host = text.substr(0, colon);
  const bool is_bracketed = host.size() >= 2 && host.front() == '[' && host.back() == ']';
  if (is_bracketed) host = host.substr(1, host.size() - 2);
  const std::optional<int> port = launch::port_in(std::string_view(text).substr(colon + 1));
  if (!port || host.empty() || (!is_bracketed && host.find(':') != std::string::npos)) {
    throw UsageError("cannot read the rendezvous " + in_quotes(text))
        .hint("--rendezvous host:port or [address]:port, with a port of 1 ... 65535");
  }
  return {host, *port};
}

void check_numbers(const RunOptions& options) {
  if (options.ranks < 1)
    throw UsageError("cannot run " + std::to_string(options.ranks) + " ranks").hint("-n 1 or more");
  if (options.node_rank < 0 || options.node_rank >= options.nodes) {
    throw UsageError("there is no node " + std::to_string(options.node_rank) + " among " +
                     std::to_string(options.nodes))
        .hint("--node-rank is 0 ... nodes - 1");
  }
  if (options.timeout && *options.timeout < 1) {
    throw UsageError("a rank cannot wait " + std::to_string(*options.timeout) + " seconds")
        .hint("--timeout 1 or more");
  }
  if (options.max_restarts < 0) {
    throw UsageError("cannot restart " + std::to_string(options.max_restarts) + " times")
        .hint("--max-restarts 0 or more");
  }
}

void check_nodes(const RunOptions& options) {
  if (options.nodes == 1) return;
  if (options.backend == "mpi") {
    throw UsageError("tegula run starts MPI ranks on one node only")
        .hint("start them on several by mpirun or srun; docs/ranks.md says how");
  }
  if (options.max_restarts > 0) {
    throw UsageError("ranks on several nodes cannot be restarted: each node would do so by itself")
        .hint("leave --max-restarts out, and start the job anew on every node");
  }
  rendezvous_in(options.rendezvous);
}

void check(const RunOptions& options) {
  log_level();
  if (options.command.empty())
    throw UsageError("there is nothing to run").hint("tegula run -n 4 ./prog");
  check_numbers(options);
  check_nodes(options);
}

// Ranks of several nodes have one only if it is given: the launchers do not know of each other.
std::string secret_for(const RunOptions& options) {
  const std::string given =
      options.secret_file.empty()
          ? launch::secret_of(std::getenv(launch::kSecret), std::getenv(launch::kSecretFile))
          : launch::secret_of(nullptr, options.secret_file.c_str());
  return given.empty() && options.nodes == 1 ? in_hex(random_bytes(32)) : given;
}

// libtorch would use all cores in every rank.
void share_cores_out(int ranks) {
  cpu_set_t cores;
  if (ranks == 1 || std::getenv(kThreads) != nullptr ||
      sched_getaffinity(0, sizeof(cores), &cores) != 0) {
    return;
  }
  const int threads = std::max(1, CPU_COUNT(&cores) / ranks);
  launch::set_variable(kThreads, std::to_string(threads));
  log_line(LogLevel::Info, "tegula run: " + counted(threads, "thread", "threads") + " per rank (" +
                               counted(CPU_COUNT(&cores), "core", "cores") + ", " +
                               std::to_string(ranks) + " ranks); set " + kThreads +
                               " for another number");
}

// What does not tell the ranks apart.
void set_options(const RunOptions& options, const std::string& secret) {
  if (!options.backend.empty()) launch::set_variable(launch::kBackend, options.backend);
  if (options.timeout) launch::set_variable(launch::kTimeout, std::to_string(*options.timeout));
  unsetenv(launch::kSecretFile);
  if (!secret.empty()) launch::set_variable(launch::kSecret, secret);
  if (options.nodes == 1) return;
  const Rendezvous rendezvous = rendezvous_in(options.rendezvous);
  launch::set_variable(launch::kStoreHost, rendezvous.host);
  launch::set_variable(launch::kStorePort, std::to_string(rendezvous.port));
}

// mpirun starts the ranks, tells them apart and passes the environment on.
std::vector<std::string> mpi_command(const RunOptions& options) {
  std::vector<std::string> command = {"mpirun", "-n", std::to_string(options.ranks),
                                      "--oversubscribe"};
  if (geteuid() == 0) command.emplace_back("--allow-run-as-root");
  for (const char* name : {launch::kBackend, launch::kTimeout, launch::kSecret, kThreads}) {
    if (std::getenv(name) != nullptr) command.insert(command.end(), {"-x", name});
  }
  command.insert(command.end(), options.command.begin(), options.command.end());
  return command;
}

[[noreturn]] void be_rank(const RunOptions& options, int rank, const std::string& job,
                          const std::string& secret, pid_t launcher) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launcher) _exit(kCannotStart);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  // One reader at most of what is piped in, and none of a terminal: ranks are in the background.
  if (rank != 0 || isatty(0) != 0) {
    const int nothing = open("/dev/null", O_RDONLY);
    dup2(nothing, 0);
  }
  std::vector<std::string> command = options.command;
  set_options(options, secret);
  if (options.backend == "mpi") {
    command = mpi_command(options);
  } else {
    launch::set_launch({options.node_rank * options.ranks + rank, options.nodes * options.ranks,
                        rank, options.ranks, job});
  }
  std::vector<char*> arguments;
  for (std::string& argument : command) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  dprintf(2, "tegula: cannot run %s: %s\n  hint    give the path of the program\n", arguments[0],
          std::strerror(errno));
  _exit(kCannotStart);
}

class Launch {
 public:
  Launch(const RunOptions& options, std::string secret)
      : options_(options), secret_(std::move(secret)) {
    sigset_t signals;
    sigemptyset(&signals);
    for (int number : {SIGCHLD, SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, number);
    sigprocmask(SIG_BLOCK, &signals, &signals_before_);
    signals_ = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  }
  ~Launch() {
    close(signals_);
    sigprocmask(SIG_SETMASK, &signals_before_, nullptr);
  }
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;

  // Runs the group once. Returns its exit code.
  int run_group();
  bool was_interrupted() const { return interrupt_ != 0; }
  void print_first_failure() const;

 private:
  void start_all();
  void start(int rank, const std::string& job);
  void wait_for_events();
  void read_from(Rank& rank, std::size_t stream);
  void take_signals();
  void reap();
  void stop_all(int signal);
  bool is_any_running() const;
  bool is_any_open() const;

  const RunOptions& options_;
  const std::string secret_;
  int signals_ = -1;
  sigset_t signals_before_{};
  std::vector<Rank> ranks_;
  int first_failed_ = -1;  // index in ranks_
  int interrupt_ = 0;      // the signal that stopped us
  std::optional<Clock::time_point> kill_time_;
};

// A rank writes to a pipe and cannot know whether somebody watches.
void tell_of_terminal() {
  if (isatty(STDOUT_FILENO) != 0) {
    launch::set_variable(launch::kTerminal, "1");
  } else {
    unsetenv(launch::kTerminal);
  }
}

void Launch::start_all() {
  tell_of_terminal();
  const std::string job = in_hex(random_bytes(16));
  ranks_.clear();
  first_failed_ = -1;
  kill_time_.reset();
  const int processes = options_.backend == "mpi" ? 1 : options_.ranks;
  for (int rank = 0; rank < processes; ++rank) start(rank, job);
}

void Launch::start(int rank, const std::string& job) {
  std::array<int, 2> out{};
  std::array<int, 2> err{};
  if (pipe2(out.data(), O_CLOEXEC) != 0 || pipe2(err.data(), O_CLOEXEC) != 0) {
    throw UsageError(std::string("cannot make pipes: ") + std::strerror(errno))
        .hint("raise the limit on open files");
  }
  const pid_t launcher = getpid();
  const pid_t process = fork();
  if (process == 0) {
    dup2(out[1], 1);
    dup2(err[1], 2);
    be_rank(options_, rank, job, secret_, launcher);
  }
  close(out[1]);
  close(err[1]);
  if (process < 0) throw UsageError(std::string("cannot start a process: ") + std::strerror(errno));
  setpgid(process, process);  // both sides do, so that no signal comes too early
  const int number = options_.node_rank * options_.ranks + rank;
  ranks_.push_back({number,
                    process,
                    {out[0], err[0]},
                    {RankOutput(number, stdout), RankOutput(number, stderr)}});
}

void Launch::read_from(Rank& rank, std::size_t stream) {
  std::array<char, 65536> buffer;
  const ssize_t count = read(rank.pipes[stream], buffer.data(), buffer.size());
  if (count > 0) {
    rank.outputs[stream].add({buffer.data(), static_cast<std::size_t>(count)});
  } else if (count == 0) {
    rank.outputs[stream].finish();
    close(rank.pipes[stream]);
    rank.pipes[stream] = -1;
  }
}

void Launch::wait_for_events() {
  std::vector<pollfd> waiting = {{signals_, POLLIN, 0}};
  std::vector<std::pair<Rank*, std::size_t>> sources;
  for (Rank& rank : ranks_) {
    for (std::size_t stream = 0; stream < 2; ++stream) {
      if (rank.pipes[stream] < 0) continue;
      waiting.push_back({rank.pipes[stream], POLLIN, 0});
      sources.emplace_back(&rank, stream);
    }
  }
  const int longest = kill_time_ || !is_any_running() ? 50 : 1000;
  poll(waiting.data(), waiting.size(), longest);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (waiting[i + 1].revents != 0) read_from(*sources[i].first, sources[i].second);
  }
  take_signals();
}

void Launch::take_signals() {
  signalfd_siginfo info{};
  while (read(signals_, &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
    const int number = static_cast<int>(info.ssi_signo);
    if (number == SIGCHLD) continue;
    interrupt_ = number;
    stop_all(number);
  }
  reap();
}

void Launch::reap() {
  int killed = -1;
  int exited = -1;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    int status = 0;
    Rank& rank = ranks_[i];
    if (!rank.is_running || waitpid(rank.process, &status, WNOHANG) != rank.process) continue;
    rank.is_running = false;
    kill(-rank.process, SIGKILL);  // what it may have left
    rank.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (rank.code == 0) continue;
    int& candidate = WIFSIGNALED(status) ? killed : exited;
    if (candidate < 0) candidate = static_cast<int>(i);
  }
  // Of those that ended at once, a killed rank is the cause and the others its victims.
  const int failed = killed >= 0 ? killed : exited;
  if (failed < 0 || first_failed_ >= 0) return;
  first_failed_ = failed;
  stop_all(SIGTERM);
}

void Launch::stop_all(int signal) {
  for (const Rank& rank : ranks_) {
    if (!rank.is_running) continue;
    kill(-rank.process, signal);
    if (signal != SIGKILL) kill(-rank.process, SIGCONT);  // a stopped rank could not hear it
  }
  if (!kill_time_) kill_time_ = Clock::now() + kGrace;
}

bool Launch::is_any_running() const {
  for (const Rank& rank : ranks_) {
    if (rank.is_running) return true;
  }
  return false;
}

bool Launch::is_any_open() const {
  for (const Rank& rank : ranks_) {
    if (rank.pipes[0] >= 0 || rank.pipes[1] >= 0) return true;
  }
  return false;
}

int Launch::run_group() {
  start_all();
  std::optional<Clock::time_point> all_ended;
  while (is_any_running() || is_any_open()) {
    wait_for_events();
    if (kill_time_ && Clock::now() > *kill_time_ && is_any_running()) stop_all(SIGKILL);
    if (is_any_running()) continue;
    // A process that outlives its rank may hold the pipe open; its output is not waited for.
    if (!all_ended) all_ended = Clock::now();
    if (Clock::now() - *all_ended > 1s) break;
  }
  for (Rank& rank : ranks_) {
    for (std::size_t stream = 0; stream < 2; ++stream) {
      if (rank.pipes[stream] >= 0) close(rank.pipes[stream]);
      rank.outputs[stream].finish();
    }
  }
  if (interrupt_ != 0) return 128 + interrupt_;
  return first_failed_ < 0 ? 0 : ranks_[static_cast<std::size_t>(first_failed_)].code;
}

void Launch::print_first_failure() const {
  if (first_failed_ < 0 || interrupt_ != 0) return;
  const Rank& rank = ranks_[static_cast<std::size_t>(first_failed_)];
  std::string how = rank.code > 128 ? "was killed by signal " + std::to_string(rank.code - 128) +
                                          " (" + strsignal(rank.code - 128) + ")"
                                    : "exited with code " + std::to_string(rank.code);
  const bool is_mpi = options_.backend == "mpi";
  std::string text =
      "\ntegula run: " + (is_mpi ? "mpirun " : "rank " + std::to_string(rank.number) + " ") + how;
  if (!rank.outputs[1].last_lines().empty()) text += "; its last words:";
  text += "\n";
  for (const std::string& line : rank.outputs[1].last_lines()) text += line + "\n";
  std::fflush(stdout);
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace

int run(const RunOptions& options) {
  check(options);
  Launch launch(options, secret_for(options));
  share_cores_out(options.ranks);
  int code = 0;
  for (int attempt = 0; attempt <= options.max_restarts; ++attempt) {
    code = launch.run_group();
    if (code == 0 || launch.was_interrupted()) break;
    if (attempt < options.max_restarts) {
      log_line(LogLevel::Warn, "tegula run: a rank failed with code " + std::to_string(code) +
                                   "; restart " + std::to_string(attempt + 1) + " of " +
                                   std::to_string(options.max_restarts));
    }
  }
  launch.print_first_failure();
  return code;
}

}  // namespace tegula::cli
