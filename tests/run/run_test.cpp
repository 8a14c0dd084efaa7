// The launcher, with shell commands as ranks.
#include "tools/tegula/run.h"

#include <gtest/gtest.h>
#include <pty.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>

#include "tegula/base/error.h"

namespace tegula::cli {
namespace run_test {

using namespace std::chrono_literals;

struct Result {
  int code = -1;
  std::string out;
  std::string err;
};

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Returns when it holds; the test's own limit ends what never does.
void wait_until(const std::function<bool()>& holds) {
  while (!holds()) std::this_thread::sleep_for(5ms);
}

std::string scratch_file(const std::string& name) {
  return testing::TempDir() + "/" + name + std::to_string(getpid());
}

// Where launch() puts what is written to stdout.
std::string out_file() { return scratch_file("out"); }

// Launches in a process of its own, with its output in files. `meanwhile` gets that process.
Result launch(const RunOptions& options, const std::function<void(pid_t)>& meanwhile = {}) {
  const std::string out = out_file();
  const std::string err = scratch_file("err");
  std::remove(out.c_str());
  const pid_t process = fork();
  if (process == 0) {
    if (freopen(out.c_str(), "w", stdout) == nullptr ||
        freopen(err.c_str(), "w", stderr) == nullptr)
      _exit(99);
    const int code = run(options);
    fflush(stdout);
    _exit(code);
  }
  if (meanwhile) meanwhile(process);
  int status = 0;
  waitpid(process, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), text_of(out), text_of(err)};
}

RunOptions shell(int ranks, const std::string& script) {
  RunOptions options;
  options.ranks = ranks;
  options.command = {"sh", "-c", script};
  return options;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Run, EveryLineHasItsRankInFront) {
  const Result result =
      launch(shell(3, "echo rank $TEGULA_RANK of $TEGULA_WORLD_SIZE; printf 'no end'"));
  EXPECT_EQ(result.code, 0) << result.err;
  for (const char* line :
       {"[0] rank 0 of 3\n", "[1] rank 1 of 3\n", "[2] rank 2 of 3\n", "[2] no end\n"}) {
    EXPECT_TRUE(contains(result.out, line)) << result.out;
  }
}

// What the launcher writes to a terminal, up to `last`.
std::string on_terminal(const RunOptions& options, const std::string& last) {
  int screen = -1;
  const pid_t process = forkpty(&screen, nullptr, nullptr, nullptr);
  if (process == 0) _exit(run(options));
  std::string text;
  char c = 0;
  while (!contains(text, last) && read(screen, &c, 1) == 1) text += c;
  close(screen);
  waitpid(process, nullptr, 0);
  return text;
}

TEST(Run, OnATerminalALineThatEndsWithACarriageReturnIsOverwritten) {
  const RunOptions options =
      shell(1, "printf '1 of 2\\r2 of 2\\r\\nterminal=%s\\n' $TEGULA_TERMINAL");
  const std::string erase = "\033[K";
  const std::string text = on_terminal(options, "terminal=1" + erase);
  EXPECT_TRUE(contains(text, "1 of 2" + erase + "\r")) << text;
  EXPECT_TRUE(contains(text, "2 of 2" + erase + "\r\n")) << text;
  EXPECT_TRUE(contains(text, "terminal=1")) << text;
  EXPECT_TRUE(contains(launch(options).out, "[0] terminal=\n"));
}

TEST(Run, AllRanksOfAJobShareANameThatNoOtherHas) {
  const RunOptions options = shell(2, "echo job $TEGULA_JOB");
  const std::string first = launch(options).out;
  const std::string name = first.substr(first.find("job") + 4, 32);
  EXPECT_TRUE(contains(first, "[0] job " + name + "\n") &&
              contains(first, "[1] job " + name + "\n"))
      << first;
  EXPECT_FALSE(contains(launch(options).out, name));
}

TEST(Run, TheFirstFailureStopsTheOthersAndIsPrintedLastAndAlone) {
  const Result result = launch(shell(
      3,
      "if [ $TEGULA_RANK = 1 ]; then echo the cause >&2; exit 7; fi; sleep 30; echo victim >&2"));
  EXPECT_EQ(result.code, 7);
  EXPECT_FALSE(contains(result.err, "victim")) << result.err;
  EXPECT_TRUE(
      result.err.ends_with("\ntegula run: rank 1 exited with code 7; its last words:\nthe cause\n"))
      << result.err;
}

TEST(Run, ARankThatIgnoresTheRequestToEndIsKilled) {
  const Result result = launch(shell(
      2, "if [ $TEGULA_RANK = 1 ]; then exit 3; fi; trap '' TERM; sleep 30 & wait; echo survived"));
  EXPECT_EQ(result.code, 3);
  EXPECT_FALSE(contains(result.out, "survived")) << result.out;
}

TEST(Run, AKilledRankGivesItsSignal) {
  const Result result = launch(shell(2, "if [ $TEGULA_RANK = 1 ]; then kill -9 $$; fi; sleep 30"));
  EXPECT_EQ(result.code, 128 + SIGKILL);
  EXPECT_TRUE(contains(result.err, "rank 1 was killed by signal 9 (Killed)")) << result.err;
}

TEST(Run, SignalsArePassedOn) {
  const Result result =
      launch(shell(2, "trap 'echo caught; exit 0' INT; echo ready; while :; do sleep 0.05; done"),
             [](pid_t launcher) {
               wait_until([] {
                 const std::string out = text_of(out_file());
                 return contains(out, "[0] ready") && contains(out, "[1] ready");
               });
               kill(launcher, SIGINT);
             });
  EXPECT_EQ(result.code, 128 + SIGINT);
  EXPECT_TRUE(contains(result.out, "[0] caught") && contains(result.out, "[1] caught"))
      << result.out;
}

TEST(Run, ATerminatedLauncherLetsRanksEndAndKillsThoseThatDoNot) {
  const RunOptions options = shell(
      2,
      "if [ $TEGULA_RANK = 1 ]; then trap '' TERM; else trap 'echo in order; exit 0' TERM; fi; "
      "echo ready; while :; do sleep 0.05; done");
  const Result result = launch(options, [](pid_t launcher) {
    wait_until([] {
      const std::string out = text_of(out_file());
      return contains(out, "[0] ready") && contains(out, "[1] ready");
    });
    kill(launcher, SIGTERM);
  });
  EXPECT_EQ(result.code, 128 + SIGTERM);
  EXPECT_TRUE(contains(result.out, "[0] in order")) << result.out;
}

TEST(Run, ALineWithoutAnEndIsPrintedInParts) {
  const Result result = launch(shell(1, "head -c 200000 /dev/zero | tr '\\0' x"));
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), 'x'), 200000);
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 4);
}

TEST(Run, RanksShareTheCoresOut) {
  cpu_set_t cores;
  sched_getaffinity(0, sizeof(cores), &cores);
  const int ranks = CPU_COUNT(&cores) + 1;
  unsetenv("OMP_NUM_THREADS");
  Result result = launch(shell(ranks, "echo threads $OMP_NUM_THREADS"));
  EXPECT_TRUE(contains(result.out, "[0] threads 1\n")) << result.out;
  EXPECT_TRUE(contains(result.err, "tegula run: 1 thread per rank (")) << result.err;
  EXPECT_EQ(result.err.find("per rank"), result.err.rfind("per rank")) << result.err;

  result = launch(shell(1, "echo threads ${OMP_NUM_THREADS:-all}"));
  EXPECT_EQ(result.out, "[0] threads all\n");
  EXPECT_EQ(result.err, "");

  setenv("OMP_NUM_THREADS", "7", 1);
  result = launch(shell(2, "echo threads $OMP_NUM_THREADS"));
  unsetenv("OMP_NUM_THREADS");
  EXPECT_TRUE(contains(result.out, "[1] threads 7\n")) << result.out;
  EXPECT_EQ(result.err, "");
}

TEST(Run, WhatTheLauncherSaysOfItselfCanBeSwitchedOff) {
  unsetenv("OMP_NUM_THREADS");
  setenv("TEGULA_LOG", "warn", 1);
  const Result result = launch(shell(2, "true"));
  setenv("TEGULA_LOG", "loud", 1);
  EXPECT_THROW(run(shell(2, "true")), UsageError);
  unsetenv("TEGULA_LOG");
  EXPECT_EQ(result.err, "");
}

// The secret that rank 0 was given.
std::string secret_in(const RunOptions& options) {
  const Result result = launch(options);
  const std::string mark = "[0] secret ";
  const std::size_t begin = result.out.find(mark) + mark.size();
  return result.out.substr(begin, result.out.find('\n', begin) - begin);
}

TEST(Run, RanksOfOneNodeGetASecretThatNoOtherJobHas) {
  const RunOptions options = shell(2, "echo secret $TEGULA_SECRET");
  const std::string first = secret_in(options);
  EXPECT_EQ(first.size(), 64U) << first;
  EXPECT_NE(first, secret_in(options));
}

TEST(Run, ASecretCanBeGivenByFileOrEnvironment) {
  const std::string file = scratch_file("secret");
  std::ofstream(file) << "what only the ranks know\n";
  chmod(file.c_str(), 0600);
  RunOptions options = shell(1, "echo secret $TEGULA_SECRET$TEGULA_SECRET_FILE");
  setenv("TEGULA_SECRET_FILE", file.c_str(), 1);
  EXPECT_EQ(secret_in(options), "what only the ranks know");
  setenv("TEGULA_SECRET", "another one, of the environment", 1);
  EXPECT_EQ(secret_in(options), "another one, of the environment");
  options.secret_file = file;
  EXPECT_EQ(secret_in(options), "what only the ranks know");
  unsetenv("TEGULA_SECRET");
  unsetenv("TEGULA_SECRET_FILE");
  options.secret_file = "";
  options.nodes = 2;
  options.rendezvous = "localhost:1234";
  EXPECT_EQ(secret_in(options), "");
}

// What the options are refused with.
std::string refusal_of(const RunOptions& options) {
  try {
    run(options);
  } catch (const UsageError& error) {
    return error.sentence();
  }
  return "nothing was thrown";
}

TEST(Run, ASecretThatOthersCanReadOrGuessIsRefused) {
  const std::string file = scratch_file("secret");
  std::ofstream(file) << "what only the ranks know\n";
  RunOptions options = shell(1, "true");
  options.secret_file = file;
  chmod(file.c_str(), 0640);
  EXPECT_EQ(refusal_of(options), "the file with the job's secret is open to other users");
  std::ofstream(file, std::ios::trunc) << "short\n";
  chmod(file.c_str(), 0600);
  EXPECT_EQ(refusal_of(options), "the job's secret has fewer than 16 characters");
  options.secret_file = "/no/such/file";
  EXPECT_EQ(refusal_of(options), "cannot read the job's secret: No such file or directory");
}

TEST(Run, TheRendezvousMayBeAnAddressWithColons) {
  RunOptions options = shell(1, "echo at $MASTER_ADDR port $MASTER_PORT");
  options.nodes = 2;
  options.rendezvous = "[::1]:29500";
  EXPECT_EQ(launch(options).out, "[0] at ::1 port 29500\n");
  options.rendezvous = "host0:29500";
  EXPECT_EQ(launch(options).out, "[0] at host0 port 29500\n");
  for (const char* wrong :
       {"::1:29500", "host:0", "host:65536", "host:", ":29500", "[]:1", "host:1x"}) {
    options.rendezvous = wrong;
    EXPECT_EQ(refusal_of(options), "cannot read the rendezvous \"" + std::string(wrong) + "\"");
  }
}

std::vector<pid_t> numbers_in(const std::string& file) {
  std::istringstream text(text_of(file));
  std::vector<pid_t> numbers;
  for (pid_t number; text >> number;) numbers.push_back(number);
  return numbers;
}

bool is_running(pid_t process) {
  std::ifstream status("/proc/" + std::to_string(process) + "/stat");
  std::string number, name, state;
  return static_cast<bool>(status >> number >> name >> state) && state != "Z";
}

TEST(Run, RanksDoNotOutliveTheLauncher) {
  const std::string file = scratch_file("ranks");
  std::ofstream(file).close();
  launch(shell(2, "echo $$ >> " + file + "; exec sleep 600"), [&](pid_t launcher) {
    wait_until([&] { return numbers_in(file).size() == 2; });
    kill(launcher, SIGKILL);
  });
  for (pid_t rank : numbers_in(file)) wait_until([=] { return !is_running(rank); });
}

TEST(Run, TheGroupCanBeRestarted) {
  const std::string file = scratch_file("tries");
  std::remove(file.c_str());
  RunOptions options = shell(1, "echo x >> " + file + "; [ $(wc -l < " + file + ") = 3 ]");
  options.max_restarts = 1;
  EXPECT_EQ(launch(options).code, 1);
  EXPECT_EQ(launch(options).code, 0);
}

TEST(Run, AProgramThatIsNotThereIsNamed) {
  RunOptions options;
  options.command = {"/no/such/program"};
  const Result result = launch(options);
  EXPECT_EQ(result.code, 127);
  EXPECT_TRUE(
      contains(result.err, "tegula: cannot run /no/such/program: No such file or directory"))
      << result.err;
}

TEST(Run, MpiAcrossNodesIsForMpirun) {
  RunOptions options = shell(1, "true");
  options.nodes = 2;
  options.rendezvous = "localhost:1234";
  options.backend = "mpi";
  EXPECT_EQ(refusal_of(options), "tegula run starts MPI ranks on one node only");
}

TEST(Run, OptionsThatDoNotFitAreRefused) {
  EXPECT_EQ(refusal_of({}), "there is nothing to run");
  RunOptions options = shell(0, "true");
  EXPECT_EQ(refusal_of(options), "cannot run 0 ranks");
  options = shell(1, "true");
  options.max_restarts = -1;
  EXPECT_EQ(refusal_of(options), "cannot restart -1 times");
  options = shell(1, "true");
  options.timeout = 0;
  EXPECT_EQ(refusal_of(options), "a rank cannot wait 0 seconds");
  options = shell(1, "true");
  options.nodes = 2;
  EXPECT_EQ(refusal_of(options), "ranks on several nodes need a place to find each other");
  options.rendezvous = "localhost:1234";
  options.max_restarts = 1;
  EXPECT_EQ(refusal_of(options),
            "ranks on several nodes cannot be restarted: each node would do so by itself");
  options.node_rank = 2;
  EXPECT_EQ(refusal_of(options), "there is no node 2 among 2");
}

}  // namespace run_test
}  // namespace tegula::cli
