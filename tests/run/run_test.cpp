// The launcher, with shell commands as ranks.
#include "tools/tegula/run.h"

#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>

#include "tegula/base/error.h"

namespace tegula::cli {
namespace {

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

TEST(Run, OptionsThatDoNotFitAreRefused) {
  EXPECT_THROW(run({}), UsageError);
  RunOptions options = shell(1, "true");
  options.nodes = 2;
  EXPECT_THROW(run(options), UsageError);
  options.rendezvous = "localhost:1234";
  options.node_rank = 2;
  EXPECT_THROW(run(options), UsageError);
}

}  // namespace
}  // namespace tegula::cli
