// What a process that does not know the job sends to ranks that meet: to the first rank as a guest,
// or to a guest as the first rank. The first byte says which, and each packet begins with its size.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <thread>

#include "fuzz/target.h"
#include "tegula/base/descriptor.h"
#include "tegula/comm/shm/meeting.h"

using namespace tegula;
using namespace tegula::fuzz;
using inner::Descriptor;

namespace {

constexpr std::chrono::milliseconds kMeeting{15};

struct Address {
  explicit Address(const std::string& job) {
    const std::string text = inner::shm::meeting_name(job);
    name.sun_family = AF_UNIX;
    text.copy(name.sun_path + 1, sizeof(name.sun_path) - 1);
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&name); }
  sockaddr_un name{};
  socklen_t size = 0;
};

Descriptor new_socket() { return Descriptor(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)); }

void send_packets(int socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t size = static_cast<unsigned char>(bytes[0]);
    const std::string_view packet = bytes.substr(1, size);
    if (send(socket, packet.data(), packet.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) return;
    bytes.remove_prefix(1 + packet.size());
  }
}

// Law: who does not know the job is answered by challenges only, and gets no descriptor.
void check_answers(int socket) {
  char bytes[256] = {};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  iovec part{bytes, sizeof(bytes)};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  int answers = 0;
  while (recvmsg(socket, &message, MSG_DONTWAIT) > 0) {
    require(CMSG_FIRSTHDR(&message) == nullptr, "a stranger gets no board", answers);
    require(++answers <= 1, "a stranger is challenged once", answers);
    message.msg_controllen = sizeof(control);
  }
}

// Law: ranks do not meet a stranger; they give up in time, by a CommError.
void expect_nobody(const std::string& job, int rank) {
  try {
    inner::shm::meet_on_host(job, rank, 2, kMeeting);
  } catch (const CommError&) {
    return;
  }
  require(false, "ranks do not meet a stranger", rank);
}

void visit_first_rank(const std::string& job, std::string_view bytes) {
  std::thread first([&] { expect_nobody(job, 0); });
  const Address address(job);
  const Descriptor socket = new_socket();
  for (int tries = 0; tries < 10; ++tries) {  // until it listens
    if (connect(socket.get(), address.get(), address.size) == 0) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  send_packets(socket.get(), bytes);
  first.join();
  check_answers(socket.get());
}

void receive_guest(const std::string& job, std::string_view bytes) {
  const Address address(job);
  const Descriptor listener = new_socket();
  require(bind(listener.get(), address.get(), address.size) == 0, "a new job's place is free", job);
  listen(listener.get(), SOMAXCONN);
  std::thread guest([&] { expect_nobody(job, 1); });
  const Descriptor socket(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  send_packets(socket.get(), bytes);
  guest.join();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  static int jobs = 0;
  const std::string job = "fuzz " + std::to_string(getpid()) + " " + std::to_string(++jobs);
  const std::string_view packets = text_of(data, size).substr(1);
  if (data[0] % 2 == 0) {
    visit_first_rank(job, packets);
  } else {
    receive_guest(job, packets);
  }
  return 0;
}
