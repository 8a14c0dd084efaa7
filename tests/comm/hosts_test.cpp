// Ranks of several hosts: processes whose launchers say that they are alone on their host, so that
// they meet over TCP. tests/cli/two_hosts does the same across networks.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "tegula/base/descriptor.h"
#include "tegula/base/error.h"
#include "tegula/base/launch.h"
#include "tegula/comm/world.h"
#include "tegula/comm/world_state.h"
#include "tests/comm/child.h"
#include "tests/comm/ranks.h"

namespace tegula {
namespace hosts_test {

using namespace inner;

sockaddr_in address_at(const char* host, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  inet_pton(AF_INET, host, &address.sin_addr);
  return address;
}

int free_port() {
  const Descriptor probe(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = address_at("127.0.0.1", 0);
  socklen_t size = sizeof(address);
  bind(probe.get(), reinterpret_cast<sockaddr*>(&address), size);
  getsockname(probe.get(), reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.sin_port);
}

bool is_open(const char* host, int port) {
  const Descriptor probe(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = address_at(host, port);
  return connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
}

struct Job {
  std::string host = "127.0.0.1";
  int port = free_port();
};

// Makes the calling process rank `rank` of two, each on a host of its own.
void be_alone_on_a_host(const Job& job, int rank) {
  at::set_num_threads(1);
  launch::set_launch(
      {rank, 2, 0, 1, "host of rank " + std::to_string(rank) + " " + std::to_string(getpid())});
  launch::set_variable(launch::kStoreHost, job.host);
  launch::set_variable(launch::kStorePort, std::to_string(job.port));
  launch::set_variable(launch::kTimeout, "30");
}

void require_sum(const World& world) {
  const Group group = world.group();
  require(group.engine() == "gloo", "the group is over " + group.engine());
  require(group.all_reduce(at::ones({3}), ReduceOp::Sum)[0].item<float>() == 2, "a wrong sum");
}

// What became of both ranks.
std::vector<std::string> run_on_two_hosts(const Job& job, const std::function<void(int)>& body) {
  const auto rank = [&](int number) {
    be_alone_on_a_host(job, number);
    body(number);
  };
  Child zero([&] { rank(0); });
  Child one([&] { rank(1); });
  return {zero.outcome(), one.outcome()};
}

const std::vector<std::string> kNoErrors = {"", ""};

TEST(Hosts, RanksThatShareNoBoardTalkOverTheNetwork) {
  EXPECT_EQ(run_on_two_hosts({}, [](int) { require_sum(World::from_env()); }), kNoErrors);
}

TEST(Hosts, TheRendezvousMayBeAnAddressWithColons) {
  if (std::ifstream("/proc/net/if_inet6").peek() < 0) GTEST_SKIP() << "no IPv6 here";
  Job job;
  job.host = "::1";
  EXPECT_EQ(run_on_two_hosts(job, [](int) { require_sum(World::from_env()); }), kNoErrors);
}

TEST(Hosts, AProcessCanHoldSeveralWorlds) {
  EXPECT_EQ(run_on_two_hosts({},
                             [](int) {
                               const World kept = World::from_env();
                               require_sum(World::from_env());
                               require_sum(World::from_env());  // the one before has ended
                               require_sum(kept);
                             }),
            kNoErrors);
}

TEST(Hosts, AWorldRecoversOnAllOfThem) {
  EXPECT_EQ(run_on_two_hosts({},
                             [](int) {
                               const World world = World::from_env();
                               require_sum(world);
                               for (int i = 0; i < 2; ++i) {
                                 world.group().abort("enough");
                                 EXPECT_THROW(world.group().barrier(), CommError);
                                 world.recover();
                                 require_sum(world);
                               }
                             }),
            kNoErrors);
}

TEST(Hosts, TheStoreListensAtTheAddressOfTheRendezvousOnly) {
  const Job job;
  EXPECT_EQ(run_on_two_hosts(job,
                             [&](int) {
                               const World world = World::from_env();
                               require(is_open("127.0.0.1", job.port), "it does not listen");
                               require(!is_open("127.0.0.2", job.port),
                                       "it listens elsewhere, too");
                               world.group().barrier();
                             }),
            kNoErrors);
}

// The addresses, in hex as the kernel writes them, at which this process listens.
std::set<std::string> addresses_listened_at() {
  std::set<std::string> sockets;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code none;
    sockets.insert(std::filesystem::read_symlink(entry.path(), none).string());
  }
  std::set<std::string> addresses;
  for (const char* file : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream table(file);
    for (std::string line; std::getline(table, line);) {
      std::istringstream words(line);
      std::string number, local, remote, state, skipped, inode;
      words >> number >> local >> remote >> state;
      for (int i = 0; i < 5; ++i) words >> skipped;
      words >> inode;
      const bool is_mine = sockets.contains("socket:[" + inode + "]");
      if (state == "0A" && is_mine) addresses.insert(local.substr(0, local.find(':')));
    }
  }
  return addresses;
}

TEST(Hosts, GlooListensAtTheLoopbackForRanksOfOneHostAndOfTheRendezvous) {
  const std::set<std::string> loopback = {"0100007F"};
  const auto ends =
      run_processes(2,
                    [&](World& world) {
                      world.group().barrier();
                      require(addresses_listened_at() == loopback, "it listens elsewhere");
                      world.group().barrier();
                    },
                    {"gloo", std::nullopt});
  for (const RankEnd& end : ends) EXPECT_EQ(end.exit_code, 0) << end.error;
  EXPECT_EQ(run_on_two_hosts({},
                             [&](int) {
                               const World world = World::from_env();
                               require_sum(world);
                               require(addresses_listened_at() == loopback, "it listens elsewhere");
                               require_sum(world);
                             }),
            kNoErrors);
}

TEST(Hosts, RanksWithOneSecretMeet) {
  EXPECT_EQ(run_on_two_hosts({},
                             [](int) {
                               launch::set_variable(launch::kSecret, "known to both ranks");
                               require_sum(World::from_env());
                             }),
            kNoErrors);
}

TEST(Hosts, ARankThatDoesNotKnowTheSecretIsRefused) {
  const std::vector<std::string> ends = run_on_two_hosts({}, [](int rank) {
    if (rank == 0) launch::set_variable(launch::kSecret, "known to one rank only");
    World::from_env();
  });
  EXPECT_EQ(ends[0],
            "tegula: rank 1 does not know this job's secret\n  hint    give the same TEGULA_SECRET "
            "or --secret-file on all hosts");
  EXPECT_NE(ends[1], "");
}

TEST(Hosts, WhatAStrangerWritesIntoTheStoreIsRefused) {
  const Job job;
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(job.port);
  options.isServer = true;
  options.waitWorkers = false;
  options.useLibUV = false;
  c10d::TCPStore store(job.host, options);
  for (const char* text : {"", "x", "a b c", "99999999999999999999 -1 0"}) {
    for (int world = 0; world < 100; ++world) {
      const std::string value = text;
      store.set("world " + std::to_string(world) + "/host/1",
                std::vector<std::uint8_t>(value.begin(), value.end()));
    }
    Child zero([&] {
      be_alone_on_a_host(job, 0);
      launch::set_variable("TORCHELASTIC_USE_AGENT_STORE", "True");
      World::from_env();
    });
    EXPECT_NE(zero.outcome().find("rank 1 does not know this job's secret"), std::string::npos);
  }
}

TEST(Hosts, ARankThatDoesNotComeIsNamed) {
  const Job job;
  Child zero([&] {
    be_alone_on_a_host(job, 0);
    launch::set_variable(launch::kTimeout, "1");
    World::from_env();
  });
  EXPECT_NE(zero.outcome().find("rank 1 did not come to the rendezvous: "), std::string::npos);
  Child one([&] {
    be_alone_on_a_host(job, 1);
    launch::set_variable(launch::kTimeout, "1");
    World::from_env();
  });
  EXPECT_NE(one.outcome().find("the ranks' rendezvous cannot be reached: "), std::string::npos);
}

TEST(Hosts, AHostIsKnownByItsBootNotByItsName) {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  EXPECT_FALSE(boot.empty());
  EXPECT_NE(comm::host_identity().find(boot), std::string::npos);
}

// What rank 0 of two under torchrun writes to stderr, with so many threads each.
std::string said_with_threads(int threads) {
  const std::string file = testing::TempDir() + "/said" + std::to_string(getpid());
  const auto rank = [&](int number) {
    if (number == 0 && freopen(file.c_str(), "w", stderr) == nullptr) return;
    at::set_num_threads(threads);
    launch::set_variable("RANK", std::to_string(number));
    launch::set_variable("LOCAL_RANK", std::to_string(number));
    launch::set_variable("WORLD_SIZE", "2");
    launch::set_variable("LOCAL_WORLD_SIZE", "2");
    World::from_env().group().barrier();
    World::from_env().group().barrier();
  };
  Child zero([&] { rank(0); });
  Child one([&] { rank(1); });
  EXPECT_EQ(zero.outcome(), "");
  EXPECT_EQ(one.outcome(), "");
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

TEST(World, WarnsOnceOfMoreThreadsThanCores) {
  const std::string said = said_with_threads(1000);
  EXPECT_EQ(said.find("tegula: 2 ranks with 1000 threads each share "), 0U) << said;
  EXPECT_NE(said.find("; set OMP_NUM_THREADS="), std::string::npos) << said;
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  EXPECT_EQ(said_with_threads(1), "");
}

}  // namespace hosts_test
}  // namespace tegula
