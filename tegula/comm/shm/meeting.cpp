#include "tegula/comm/shm/meeting.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <thread>
#include <vector>

#include "tegula/base/descriptor.h"
#include "tegula/base/hash.h"
#include "tegula/base/text.h"

namespace tegula::inner::shm {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

struct Address {
  sockaddr_un name{};
  socklen_t size = 0;
};

Address address_of(const std::string& job) {
  char text[64];
  std::snprintf(text, sizeof(text), "tegula-%u-%016zx%016zx", getuid(), Hasher().add(job).result(),
                Hasher().add("again").add(job).result());
  Address address;
  address.name.sun_family = AF_UNIX;
  std::strcpy(address.name.sun_path + 1, text);  // a leading zero: no file
  address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + std::strlen(text));
  return address;
}

// What goes over the socket: a rank's number to the first rank, the board's descriptor back.
struct Packet {
  std::int32_t rank = -1;
  int descriptor = -1;
};

bool send_packet(int socket, const Packet& packet) {
  iovec part{const_cast<std::int32_t*>(&packet.rank), sizeof(packet.rank)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (packet.descriptor >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &packet.descriptor, sizeof(int));
  }
  return sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof(packet.rank));
}

std::optional<Packet> receive_packet(int socket, std::chrono::milliseconds longest) {
  pollfd waiting{socket, POLLIN, 0};
  if (poll(&waiting, 1, static_cast<int>(longest.count())) <= 0) return std::nullopt;
  Packet packet;
  iovec part{&packet.rank, sizeof(packet.rank)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != static_cast<ssize_t>(sizeof(packet.rank))) {
    return std::nullopt;
  }
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_type == SCM_RIGHTS) {
    std::memcpy(&packet.descriptor, CMSG_DATA(header), sizeof(int));
  }
  return packet;
}

[[noreturn]] void fail(const std::string& sentence, const std::string& hint) {
  throw CommError(sentence).hint(hint);
}

std::shared_ptr<Board> host_meeting(const Address& address, int ranks, Clock::time_point deadline) {
  const Descriptor listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (bind(listener.get(), reinterpret_cast<const sockaddr*>(&address.name), address.size) != 0 ||
      listen(listener.get(), ranks) != 0) {
    fail(std::string("the ranks' meeting place is taken: ") + std::strerror(errno),
         "another job on this host has the same identity; give each job its own (TEGULA_JOB)");
  }
  std::shared_ptr<Board> board = Board::create(ranks);
  board->join(0);
  std::vector<bool> has_come(static_cast<std::size_t>(ranks));
  has_come[0] = true;
  for (int missing = ranks - 1; missing > 0;) {
    pollfd waiting{listener.get(), POLLIN, 0};
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    if (left <= 0ms || poll(&waiting, 1, static_cast<int>(left.count())) == 0) {
      std::vector<std::int64_t> absent;
      for (int rank = 0; rank < ranks; ++rank) {
        if (!has_come[static_cast<std::size_t>(rank)]) absent.push_back(rank);
      }
      fail("ranks on this host did not come in time: " + join(absent),
           "start as many processes as the launcher's variables say; look at the absent ranks' "
           "output");
    }
    const Descriptor guest(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (guest.get() < 0 || !is_same_user(guest.get())) continue;
    const std::optional<Packet> hello = receive_packet(guest.get(), 1000ms);
    if (!hello || hello->rank <= 0 || hello->rank >= ranks) continue;
    if (has_come[static_cast<std::size_t>(hello->rank)]) continue;  // join() tells it
    if (!send_packet(guest.get(), {ranks, board->descriptor()})) continue;
    has_come[static_cast<std::size_t>(hello->rank)] = true;
    --missing;
  }
  return board;
}

std::shared_ptr<Board> attend_meeting(const Address& address, int rank, int ranks,
                                      Clock::time_point deadline) {
  while (Clock::now() < deadline) {
    const Descriptor guest(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (connect(guest.get(), reinterpret_cast<const sockaddr*>(&address.name), address.size) != 0) {
      std::this_thread::sleep_for(1ms);  // the first rank is not there yet
      continue;
    }
    if (!is_same_user(guest.get()) || !send_packet(guest.get(), {rank, -1})) continue;
    const std::optional<Packet> answer = receive_packet(guest.get(), 1000ms);
    if (!answer || answer->descriptor < 0) {
      std::this_thread::sleep_for(1ms);
      continue;
    }
    std::shared_ptr<Board> board = Board::adopt(answer->descriptor, ranks);
    board->join(rank);
    return board;
  }
  fail("rank 0 of this host did not come in time",
       "start as many processes as the launcher's variables say; look at that rank's output");
}

}  // namespace

std::shared_ptr<Board> meet_on_host(const std::string& job, int rank, int ranks,
                                    std::chrono::milliseconds timeout) {
  const Address address = address_of(job);
  const Clock::time_point deadline = Clock::now() + timeout;
  return rank == 0 ? host_meeting(address, ranks, deadline)
                   : attend_meeting(address, rank, ranks, deadline);
}

}  // namespace tegula::inner::shm
