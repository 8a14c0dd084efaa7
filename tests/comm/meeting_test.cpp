// The ranks of a host meet, whatever else happens on it. Timeouts are long, where the test is that
// nobody waits for them, and short, where they have to pass.
#include "tegula/comm/shm/meeting.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <optional>
#include <thread>
#include <vector>

#include "tegula/base/descriptor.h"
#include "tegula/base/random_bytes.h"
#include "tegula/base/sha256.h"
#include "tests/comm/child.h"

namespace tegula::inner::shm {
namespace meeting_test {

using namespace std::chrono_literals;

constexpr auto kLong = 300s;

// A packet, as peers send it.
struct Packet {
  std::uint32_t kind;
  std::int32_t rank;
  char nonce[16];
  char proof[32];
};
constexpr std::size_t kPacketBytes = sizeof(Packet);
constexpr std::uint32_t kHello = 0x7465'6701;
constexpr std::uint32_t kChallenge = kHello + 1;
constexpr std::uint32_t kProof = kHello + 2;

std::string new_job() { return in_hex(random_bytes(16)); }

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

sockaddr_un address_of(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, name.size());
  return address;
}

socklen_t size_of(const std::string& name) {
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

Descriptor new_socket() {
  return Descriptor(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

bool connects(const Descriptor& socket, const std::string& name) {
  const sockaddr_un address = address_of(name);
  return connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), size_of(name)) == 0;
}

// As soon as somebody listens.
Descriptor connected_to(const std::string& name) {
  Descriptor socket = new_socket();
  while (!connects(socket, name)) std::this_thread::sleep_for(1ms);
  return socket;
}

Descriptor listening_at(const std::string& name, int queue) {
  Descriptor socket = new_socket();
  const sockaddr_un address = address_of(name);
  if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), size_of(name)) != 0 ||
      listen(socket.get(), queue) != 0) {
    throw std::runtime_error(std::strerror(errno));
  }
  return socket;
}

// Meets, and ends as a rank does.
void attend(const std::string& job, int rank, int ranks) {
  meet_on_host(job, rank, ranks, kLong)->leave(rank);
}

void expect_told(Child& child, const std::string& part) {
  const std::string outcome = child.outcome();
  EXPECT_TRUE(contains(outcome, part)) << outcome;
}

TEST(Meeting, RanksThatComeInAnyOrderMeet) {
  const std::string job = new_job();
  const Gate late;
  Child two([&] { attend(job, 2, 3); });
  Child zero([&] {
    late.wait();
    attend(job, 0, 3);
  });
  Child one([&] { attend(job, 1, 3); });
  std::this_thread::sleep_for(20ms);
  late.open();
  for (Child* rank : {&zero, &one, &two}) EXPECT_EQ(rank->outcome(), "");
}

// Lets a signal interrupt the calling thread a thousand times a second.
void be_interrupted_all_the_time() {
  struct sigaction action{};
  action.sa_handler = [](int) {};  // no SA_RESTART: system calls fail
  sigaction(SIGUSR1, &action, nullptr);
  std::thread([self = pthread_self()] {
    for (;;) {
      pthread_kill(self, SIGUSR1);
      std::this_thread::sleep_for(1ms);
    }
  }).detach();
}

TEST(Meeting, SignalsDoNotDisturbIt) {
  const std::string job = new_job();
  const auto rank = [&](int number) {
    be_interrupted_all_the_time();
    if (number == 0) std::this_thread::sleep_for(30ms);
    attend(job, number, 3);
  };
  Child zero([&] { rank(0); });
  Child one([&] { rank(1); });
  Child two([&] { rank(2); });
  for (Child* child : {&zero, &one, &two}) EXPECT_EQ(child->outcome(), "");
}

TEST(Meeting, PeersThatAreSilentOrSendSomethingElseHoldNobodyUp) {
  const std::string job = new_job();
  const std::string name = meeting_name(job);
  Child zero([&] { attend(job, 0, 2); });
  std::vector<Descriptor> guests;
  for (int i = 0; i < 100; ++i) guests.push_back(connected_to(name));
  for (std::size_t bytes : {std::size_t{1}, kPacketBytes, std::size_t{1000}}) {
    const std::string noise = random_bytes(bytes);
    guests.push_back(connected_to(name));
    send(guests.back().get(), noise.data(), noise.size(), MSG_NOSIGNAL);
    connected_to(name);  // and closed at once
  }
  Child one([&] { attend(job, 1, 2); });
  EXPECT_EQ(one.outcome(), "");
  EXPECT_EQ(zero.outcome(), "");
}

// Mapping the board fails in it, as it may where memory is short.
void leave_no_room_for_memory() {
  long pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const auto bytes = static_cast<rlim_t>(pages) * 4096 + (rlim_t{8} << 20);
  const rlimit limit{bytes, bytes};
  setrlimit(RLIMIT_AS, &limit);
}

TEST(Meeting, ARankThatEndsBeforeItHasJoinedIsAnErrorOnAllAtOnce) {
  const std::string job = new_job();
  const Gate met;
  Child zero([&] { meet_on_host(job, 0, 3, kLong); });
  Child one([&] {
    const std::shared_ptr<Board> board = meet_on_host(job, 1, 3, kLong);
    met.open();
    while (!board->fault(0).raised()) std::this_thread::sleep_for(1ms);
    throw board->fault(0).error();
  });
  Child two([&] {
    met.wait();
    leave_no_room_for_memory();
    meet_on_host(job, 2, 3, kLong);
  });
  const std::string told =
      "tegula: rank 2 of this host ended when the ranks met\n  hint    look at that rank's output";
  expect_told(two, "cannot map shared memory");
  EXPECT_EQ(zero.outcome(), told);
  EXPECT_EQ(one.outcome(), told);
}

// It may open so many more files.
void leave_few_descriptors(int more) {
  const int next = dup(STDIN_FILENO);
  close(next);
  const auto count = static_cast<rlim_t>(next + more);
  const rlimit limit{count, count};
  setrlimit(RLIMIT_NOFILE, &limit);
}

TEST(Meeting, ARankThatMayNotOpenFilesIsToldSo) {
  const std::string job = new_job();
  for (int rank : {0, 1}) {
    Child alone([&] {
      leave_few_descriptors(0);
      meet_on_host(job, rank, 2, kLong);
    });
    expect_told(alone, "cannot make a socket to meet the other ranks: Too many open files");
  }
  Child zero(
      [&] { meet_on_host(job, 0, 2, kLong); });  // hands a descriptor over that finds no place
  Child one([&] {
    leave_few_descriptors(1);
    meet_on_host(job, 1, 2, kLong);
  });
  expect_told(zero, "rank 1 of this host ended when the ranks met");
}

TEST(Meeting, ARankThatDiesAfterItHasJoinedEndsIt) {
  const std::string job = new_job();
  Child zero([&] { meet_on_host(job, 0, 3, kLong); });
  Child one([&] {
    const std::shared_ptr<Board> board = meet_on_host(job, 1, 3, kLong);
    raise(SIGKILL);
  });
  expect_told(zero, "rank 1 of this host died when the ranks met");
}

TEST(Meeting, RanksThatDoNotComeAreNamed) {
  const std::string job = new_job();
  Child zero([&] { meet_on_host(job, 0, 2, 100ms); });
  EXPECT_EQ(zero.outcome(),
            "tegula: ranks on this host did not come in time: 1\n  hint    start as many processes "
            "as the launcher's variables say; look at the absent ranks' output");
  Child one([&] { meet_on_host(job, 1, 2, 100ms); });
  EXPECT_EQ(
      one.outcome(),
      "tegula: rank 0 of this host did not come in time\n  seen    nobody at the meeting "
      "place\n  hint    start as many processes as the launcher's variables say; look at that "
      "rank's output");
}

TEST(Meeting, ASecondProcessOfOneRankIsToldSo) {
  const std::string job = new_job();
  const Gate all_met;
  const Gate has_one;
  const auto rank = [&](int number) {
    const std::shared_ptr<Board> board = meet_on_host(job, number, 3, kLong);
    if (number == 1) has_one.open();
    all_met.wait();
    board->leave(number);
  };
  Child zero([&] { rank(0); });
  Child one([&] { rank(1); });
  has_one.wait();
  Child second([&] { rank(1); });
  EXPECT_EQ(second.outcome(),
            "tegula: there is a rank 1 already\n  hint    give every process its own rank");
  Child two([&] { rank(2); });
  all_met.open();
  for (Child* child : {&zero, &one, &two}) EXPECT_EQ(child->outcome(), "");
}

// While it waits to be let in it leaves the processor to others.
void meet_without_spinning(const std::string& job, std::chrono::milliseconds timeout) {
  std::string told;
  try {
    meet_on_host(job, 1, 2, timeout);
  } catch (const CommError& error) {
    told = error.what();
  }
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto busy = std::chrono::seconds(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                    std::chrono::microseconds(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
  if (busy > timeout / 2) throw std::runtime_error("it was busy all the time: " + told);
  throw std::runtime_error(told);
}

TEST(Meeting, AFullQueueOfGuestsDoesNotMakeARankWaitLongerThanItsTimeout) {
  const std::string job = new_job();
  const std::string name = meeting_name(job);
  const Descriptor listener = listening_at(name, 0);
  std::vector<Descriptor> guests;
  do guests.push_back(new_socket());
  while (connects(guests.back(), name));
  Child one([&] { meet_without_spinning(job, 500ms); });
  expect_told(one, "seen    a process that takes no guests");
}

TEST(Meeting, AProcessThatDoesNotKnowTheJobIsNotBelieved) {
  const std::string job = new_job();
  const Descriptor listener = listening_at(meeting_name(job), 5);
  Child impostor([&] {
    for (;;) {
      const Descriptor guest(accept(listener.get(), nullptr, nullptr));
      char hello[kPacketBytes];
      if (guest.get() < 0 || recv(guest.get(), hello, sizeof(hello), 0) <= 0) {
        std::this_thread::sleep_for(1ms);
        continue;
      }
      const Packet answer{kChallenge, 1, {}, {}};
      send(guest.get(), &answer, sizeof(answer), MSG_NOSIGNAL);
    }
  });
  Child one([&] { meet_on_host(job, 1, 2, 500ms); });
  expect_told(one, "seen    a process that does not know this job");
}

// The next packet; nothing if the peer closes.
std::optional<Packet> next_packet(const Descriptor& socket) {
  Packet packet{};
  for (;;) {
    const ssize_t count = recv(socket.get(), &packet, sizeof(packet), 0);
    if (count == static_cast<ssize_t>(sizeof(packet))) return packet;
    if (count == 0 || errno != EAGAIN) return std::nullopt;
    std::this_thread::sleep_for(1ms);
  }
}

TEST(Meeting, AGuestThatDoesNotKnowTheJobGetsNothing) {
  const std::string job = new_job();
  Child zero([&] { attend(job, 0, 2); });
  for (const bool reflects : {false, true}) {
    const Descriptor guest = connected_to(meeting_name(job));
    const Packet hello{kHello, 1, {}, {}};
    send(guest.get(), &hello, sizeof(hello), MSG_NOSIGNAL);
    const std::optional<Packet> challenge = next_packet(guest);
    ASSERT_TRUE(challenge && challenge->kind == kChallenge);
    Packet proof{kProof, 1, {}, {}};
    if (reflects) std::memcpy(proof.proof, challenge->proof, sizeof(proof.proof));
    send(guest.get(), &proof, sizeof(proof), MSG_NOSIGNAL);
    EXPECT_FALSE(next_packet(guest));
  }
  Child one([&] { attend(job, 1, 2); });
  EXPECT_EQ(one.outcome(), "");
  EXPECT_EQ(zero.outcome(), "");
}

// Plays rank 0 up to the proof that it knows the job.
void prove_to(const Descriptor& guest, const std::string& job) {
  const std::optional<Packet> hello = next_packet(guest);
  if (!hello) throw std::runtime_error("the guest is gone");
  Packet challenge{kChallenge, hello->rank, {}, {}};
  const std::string key = hmac_sha256(job, "tegula proof");
  const std::string said = "host " + std::to_string(hello->rank) + " " +
                           std::string(hello->nonce, sizeof(hello->nonce)) +
                           std::string(challenge.nonce, sizeof(challenge.nonce));
  hmac_sha256(key, said).copy(challenge.proof, sizeof(challenge.proof));
  send(guest.get(), &challenge, sizeof(challenge), MSG_NOSIGNAL);
}

TEST(Meeting, ARankZeroThatEndsMeanwhileIsAnErrorAtOnce) {
  const std::string job = new_job();
  Descriptor listener = listening_at(meeting_name(job), 5);
  Child one([&] {
    listener = Descriptor();  // closed in this process
    meet_on_host(job, 1, 2, kLong);
  });
  Descriptor guest(-1);
  while (guest.get() < 0) guest = Descriptor(accept(listener.get(), nullptr, nullptr));
  prove_to(guest, job);
  next_packet(guest);
  listener = Descriptor();
  guest = Descriptor();
  EXPECT_EQ(one.outcome(),
            "tegula: rank 0 of this host ended when the ranks met\n  hint    look at that rank's "
            "output; give every process its own rank");
}

TEST(Meeting, ARankZeroThatIsStoppedForAWhileDoesNotMatter) {
  const std::string job = new_job();
  Child zero([&] { attend(job, 0, 2); });
  connected_to(meeting_name(job));
  kill(zero.id(), SIGSTOP);
  Child one([&] { attend(job, 1, 2); });
  std::this_thread::sleep_for(50ms);
  kill(zero.id(), SIGCONT);
  EXPECT_EQ(one.outcome(), "");
  EXPECT_EQ(zero.outcome(), "");
}

TEST(Meeting, ASocketOfAnotherUserIsNotBelieved) {
  if (getuid() != 0) GTEST_SKIP() << "only root can be another user";
  const std::string job = new_job();
  const std::string name = meeting_name(job);
  const Gate taken;
  Child other([&] {
    if (setuid(65534) != 0) throw std::runtime_error("cannot be another user");
    const Descriptor listener = listening_at(name, 5);
    taken.open();
    pause();
  });
  taken.wait();
  Child one([&] { meet_without_spinning(job, 500ms); });
  expect_told(one, "seen    a process of another user at the meeting place");
  Child zero([&] { meet_on_host(job, 0, 2, kLong); });
  expect_told(zero, "the ranks' meeting place is taken: Address already in use");
}

TEST(Meeting, ItsNameTellsNothingOfTheJob) {
  EXPECT_FALSE(contains(meeting_name("a secret"), "secret"));
  EXPECT_NE(meeting_name("a secret"), meeting_name("another secret"));
  EXPECT_LT(meeting_name("a secret").size(), sizeof(sockaddr_un::sun_path) - 1);
}

}  // namespace meeting_test
}  // namespace tegula::inner::shm
