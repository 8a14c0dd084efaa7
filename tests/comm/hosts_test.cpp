// Two network namespaces, joined by a virtual cable, as two hosts with two ranks each.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace tegula {
namespace {

int shell(const std::string& command) {
  return std::system((command + " >/dev/null 2>&1").c_str());
}

class TwoHosts : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root can make network namespaces";
    if (shell("ip -V") != 0) GTEST_SKIP() << "no ip: apt-get install iproute2";
    for (int host = 0; host < 2; ++host) {
      if (shell("ip netns add " + name(host)) != 0) GTEST_SKIP() << "no network namespaces here";
    }
    ASSERT_EQ(
        shell("ip link add tg0 netns " + name(0) + " type veth peer name tg1 netns " + name(1)), 0);
    for (int host = 0; host < 2; ++host) {
      const std::string link = "tg" + std::to_string(host);
      ASSERT_EQ(shell("ip -n " + name(host) + " addr add " + address(host) + "/24 dev " + link), 0);
      ASSERT_EQ(shell("ip -n " + name(host) + " link set " + link + " up"), 0);
      ASSERT_EQ(shell("ip -n " + name(host) + " link set lo up"), 0);
    }
  }

  void TearDown() override {
    for (int host = 0; host < 2; ++host) shell("ip netns del " + name(host));
  }

  static std::string name(int host) {
    return "tegula" + std::to_string(getpid()) + "-" + std::to_string(host);
  }
  static std::string address(int host) { return "10.77.0." + std::to_string(host + 1); }

  // The command of one rank that runs the whole suite (suite_test.cpp).
  static std::string rank_command(int rank) {
    const std::string program = std::filesystem::read_symlink("/proc/self/exe");
    return "ip netns exec " + name(rank / 2) + " env TEGULA_RANK=" + std::to_string(rank) +
           " TEGULA_WORLD_SIZE=4 TEGULA_LOCAL_RANK=" + std::to_string(rank % 2) +
           " TEGULA_LOCAL_WORLD_SIZE=2 TEGULA_JOB=" + name(0) +
           " TEGULA_TIMEOUT=60 MASTER_ADDR=" + address(0) + " MASTER_PORT=29517 " + program +
           " --suite ''";
  }
};

TEST_F(TwoHosts, RunTheSuiteOverGloo) {
  std::string script;
  for (int rank = 0; rank < 4; ++rank)
    script += rank_command(rank) + " & p" + std::to_string(rank) + "=$!; ";
  script += "wait $p0 && wait $p1 && wait $p2 && wait $p3";
  EXPECT_EQ(std::system(script.c_str()), 0);
}

}  // namespace
}  // namespace tegula
