// A guest is any process that connects to the first rank, which serves all of them at once and
// waits for none. What goes over the socket, a packet each:
//
//   guest    Hello      I am rank r; a random number of mine
//   host     Challenge  a random number of mine; the proof that I know the job
//   guest    Proof      the proof that I know it, too
//   host     Welcome    the board's descriptor
//   guest    joins the board and closes the connection: it has come
//
// A proof is a keyed hash of both numbers, the rank and the side; the key comes from the job's
// text. A guest may give up before it sends its proof, and come again. After that it waits for the
// board, so that whoever was given the board and closes without having joined has failed.
#include "tegula/comm/shm/meeting.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <list>
#include <optional>
#include <thread>
#include <vector>

#include "tegula/base/descriptor.h"
#include "tegula/base/random_bytes.h"
#include "tegula/base/sha256.h"
#include "tegula/base/text.h"

namespace tegula::inner::shm {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto kStrangersTime = 5s;  // until a peer has proved that it knows the job
constexpr auto kLook = 100ms;        // how often the host looks for ranks that died
constexpr std::size_t kStrangers = 64;

constexpr std::size_t kNonceBytes = 16;
constexpr std::size_t kProofBytes = 32;

struct Address {
  sockaddr_un name{};
  socklen_t size = 0;
};

Address address_of(const std::string& job) {
  const std::string text = meeting_name(job);
  Address address;
  address.name.sun_family = AF_UNIX;
  text.copy(address.name.sun_path + 1, sizeof(address.name.sun_path) - 1);  // leading zero: no file
  address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  return address;
}

Descriptor new_socket() {
  Descriptor made(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (made.get() >= 0) return made;
  throw CommError(std::string("cannot make a socket to meet the other ranks: ") +
                  std::strerror(errno))
      .hint("allow the process more open files (ulimit -n)");
}

// --- packets ----------------------------------------------------------------------------------

enum class PacketKind : std::uint32_t { Hello = 0x7465'6701, Challenge, Proof, Welcome };

struct Packet {
  PacketKind kind{};
  std::int32_t rank = -1;
  std::array<char, kNonceBytes> nonce{};
  std::array<char, kProofBytes> proof{};
};

std::array<char, kNonceBytes> new_nonce() {
  std::array<char, kNonceBytes> nonce{};
  random_bytes(kNonceBytes).copy(nonce.data(), nonce.size());
  return nonce;
}

// What two peers have said so far.
struct Exchange {
  std::int32_t rank = -1;
  std::array<char, kNonceBytes> of_guest{};
  std::array<char, kNonceBytes> of_host{};
};

std::array<char, kProofBytes> proof_of(const std::string& job, PacketKind kind,
                                       const Exchange& exchange) {
  const std::string message = std::string(kind == PacketKind::Challenge ? "host " : "guest ") +
                              std::to_string(exchange.rank) + " " +
                              std::string(exchange.of_guest.data(), kNonceBytes) +
                              std::string(exchange.of_host.data(), kNonceBytes);
  std::array<char, kProofBytes> proof{};
  hmac_sha256(hmac_sha256(job, "tegula proof"), message).copy(proof.data(), proof.size());
  return proof;
}

bool proves(const std::array<char, kProofBytes>& proof, const std::string& job, PacketKind kind,
            const Exchange& exchange) {
  const std::array<char, kProofBytes> wanted = proof_of(job, kind, exchange);
  return are_same_secrets({proof.data(), proof.size()}, {wanted.data(), wanted.size()});
}

// Never waits. A descriptor goes along unless it is negative.
bool send_packet(int socket, Packet packet, int descriptor = -1) {
  iovec part{&packet, sizeof(packet)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (descriptor >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
  }
  return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(sizeof(packet));
}

enum class Arrival { Packet, Nothing, End };

// Never waits. End: the peer is gone, or sent what is no packet of ours. `descriptor` is null where
// none may come; the kernel drops those that come nevertheless.
Arrival receive_packet(int socket, Packet& packet, int* descriptor = nullptr) {
  iovec part{&packet, sizeof(packet)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (descriptor != nullptr) {
    message.msg_control = control;
    message.msg_controllen = CMSG_LEN(sizeof(int));  // room for one
  }
  const ssize_t count = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return Arrival::Nothing;
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_type == SCM_RIGHTS) {
    std::memcpy(descriptor, CMSG_DATA(header), sizeof(int));
  }
  const bool is_whole =
      count == static_cast<ssize_t>(sizeof(packet)) && (message.msg_flags & MSG_TRUNC) == 0;
  return is_whole ? Arrival::Packet : Arrival::End;
}

// Until something has happened, a signal included, or the time has come; a second at most.
void wait_for(std::vector<pollfd>& waiting, Clock::time_point until) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
  poll(waiting.data(), waiting.size(), static_cast<int>(std::clamp(left, 0ms, 1000ms).count()));
}

// --- the first rank ---------------------------------------------------------------------------

struct Guest {
  Descriptor socket;
  Clock::time_point limit;  // for a stranger's next packet
  enum class State { Connected, Challenged, Welcomed } state = State::Connected;
  Exchange exchange{};
};

class Host {
 public:
  Host(const std::string& job, int ranks);
  // Serves guests until all ranks have joined.
  std::shared_ptr<Board> meet(Clock::time_point deadline);

 private:
  void serve(Clock::time_point until);
  void accept_guests();
  // False: done with it.
  bool answer(Guest& guest);
  bool answer(Guest& guest, const Packet& packet);
  void check_end(const Guest& guest) const;
  void check_presence() const;
  bool has_joined(int rank) const;
  std::vector<std::int64_t> absent() const;

  const std::string& job_;
  int ranks_;
  Descriptor listener_;
  std::shared_ptr<Board> board_;
  std::list<Guest> guests_;
};

Host::Host(const std::string& job, int ranks) : job_(job), ranks_(ranks), listener_(new_socket()) {
  const Address address = address_of(job);
  if (bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address.name), address.size) != 0 ||
      listen(listener_.get(), SOMAXCONN) != 0) {
    throw CommError(std::string("the ranks' meeting place is taken: ") + std::strerror(errno))
        .hint(
            "another job on this host has the same identity, or another user has taken its place; "
            "give each job its own TEGULA_SECRET");
  }
  board_ = Board::create(ranks);
  board_->join(0);
}

std::shared_ptr<Board> Host::meet(Clock::time_point deadline) {
  try {
    while (!absent().empty()) {
      if (Clock::now() >= deadline) {
        throw CommError("ranks on this host did not come in time: " + join(absent()))
            .hint(
                "start as many processes as the launcher's variables say; look at the absent "
                "ranks' output");
      }
      serve(std::min(deadline, Clock::now() + kLook));
      check_presence();
    }
  } catch (const CommError& error) {
    board_->fault(0).raise(error);  // for those that have met already
    throw;
  }
  return board_;
}

void Host::serve(Clock::time_point until) {
  std::vector<pollfd> waiting = {{listener_.get(), POLLIN, 0}};
  for (const Guest& guest : guests_) waiting.push_back({guest.socket.get(), POLLIN, 0});
  wait_for(waiting, until);
  std::erase_if(guests_, [&](Guest& guest) { return !answer(guest); });
  accept_guests();
}

// Not more at once than it lets in, so that those inside get their answers.
void Host::accept_guests() {
  for (std::size_t i = 0; i < kStrangers; ++i) {
    Descriptor socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (socket.get() < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
    if (socket.get() < 0) {
      // Where there are no more descriptors, the guest stays in the queue: some may be free soon.
      if (errno != EAGAIN) std::this_thread::sleep_for(10ms);
      return;
    }
    if (!is_same_user(socket.get())) continue;
    guests_.push_back({std::move(socket), Clock::now() + kStrangersTime});
    const auto strangers = std::count_if(guests_.begin(), guests_.end(), [](const Guest& guest) {
      return guest.state != Guest::State::Welcomed;
    });
    if (static_cast<std::size_t>(strangers) > kStrangers + static_cast<std::size_t>(ranks_)) {
      guests_.erase(std::find_if(guests_.begin(), guests_.end(), [](const Guest& guest) {
        return guest.state != Guest::State::Welcomed;
      }));
    }
  }
}

bool Host::answer(Guest& guest) {
  Packet packet;
  switch (receive_packet(guest.socket.get(), packet)) {
    case Arrival::Packet:
      return answer(guest, packet);
    case Arrival::Nothing:
      return guest.state == Guest::State::Welcomed || Clock::now() < guest.limit;
    case Arrival::End:
      check_end(guest);
      return false;
  }
  return false;
}

bool Host::answer(Guest& guest, const Packet& packet) {
  Exchange& exchange = guest.exchange;
  if (guest.state == Guest::State::Connected && packet.kind == PacketKind::Hello &&
      packet.rank > 0) {
    exchange = {packet.rank, packet.nonce, new_nonce()};
    guest.state = Guest::State::Challenged;
    return send_packet(guest.socket.get(), {PacketKind::Challenge, exchange.rank, exchange.of_host,
                                            proof_of(job_, PacketKind::Challenge, exchange)});
  }
  if (guest.state == Guest::State::Challenged && packet.kind == PacketKind::Proof &&
      proves(packet.proof, job_, PacketKind::Proof, exchange)) {
    guest.state = Guest::State::Welcomed;
    return send_packet(guest.socket.get(), {PacketKind::Welcome, exchange.rank, {}, {}},
                       board_->descriptor());
  }
  return false;
}

// A second process of the same number is told so by Board::join.
void Host::check_end(const Guest& guest) const {
  if (guest.state != Guest::State::Welcomed || has_joined(guest.exchange.rank)) return;
  throw CommError("rank " + std::to_string(guest.exchange.rank) +
                  " of this host ended when the ranks met")
      .hint("look at that rank's output");
}

void Host::check_presence() const {
  for (int rank = 1; rank < ranks_; ++rank) {
    if (board_->presence(rank) != Presence::Dead) continue;
    throw CommError("rank " + std::to_string(rank) + " of this host died when the ranks met")
        .hint("look at that rank's output");
  }
}

bool Host::has_joined(int rank) const {
  return rank < ranks_ && board_->presence(rank) != Presence::NotYet;
}

std::vector<std::int64_t> Host::absent() const {
  std::vector<std::int64_t> ranks;
  for (int rank = 1; rank < ranks_; ++rank) {
    if (!has_joined(rank)) ranks.push_back(rank);
  }
  return ranks;
}

// --- the others -------------------------------------------------------------------------------

class Attendee {
 public:
  Attendee(const std::string& job, int rank, int ranks, Clock::time_point deadline)
      : job_(job), rank_(rank), ranks_(ranks), address_(address_of(job)), deadline_(deadline) {}
  std::shared_ptr<Board> meet();

 private:
  // One visit to the first rank; null if it has to be made again.
  std::shared_ptr<Board> visit();
  bool connect_to_host(const Descriptor& socket);
  Arrival receive(const Descriptor& socket, Packet& packet, int* descriptor,
                  Clock::time_point until) const;

  const std::string& job_;
  int rank_;
  int ranks_;
  Address address_;
  Clock::time_point deadline_;
  bool has_met_host_ = false;  // who proved that it is
  std::string seen_;           // at the meeting place; empty: nobody
};

std::shared_ptr<Board> Attendee::meet() {
  auto pause = 1ms;
  while (Clock::now() < deadline_) {
    if (std::shared_ptr<Board> board = visit()) return board;
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, 50ms);
  }
  throw CommError("rank 0 of this host did not come in time")
      .fact("seen", seen_.empty() ? "nobody at the meeting place" : seen_)
      .hint("start as many processes as the launcher's variables say; look at that rank's output");
}

std::shared_ptr<Board> Attendee::visit() {
  const Descriptor socket = new_socket();
  if (!connect_to_host(socket)) return nullptr;
  Exchange exchange{rank_, new_nonce(), {}};
  if (!send_packet(socket.get(), {PacketKind::Hello, rank_, exchange.of_guest, {}})) return nullptr;
  Packet challenge;
  if (receive(socket, challenge, nullptr, std::min(deadline_, Clock::now() + kStrangersTime)) !=
      Arrival::Packet) {
    seen_ = "a process that does not answer";
    return nullptr;
  }
  exchange.of_host = challenge.nonce;
  if (challenge.kind != PacketKind::Challenge ||
      !proves(challenge.proof, job_, PacketKind::Challenge, exchange)) {
    seen_ = "a process that does not know this job";
    return nullptr;
  }
  has_met_host_ = true;
  seen_ = "rank 0, which did not go on";
  if (!send_packet(socket.get(),
                   {PacketKind::Proof, rank_, {}, proof_of(job_, PacketKind::Proof, exchange)})) {
    return nullptr;
  }
  Packet welcome;
  int descriptor = -1;
  receive(socket, welcome, &descriptor, deadline_);
  if (descriptor < 0) return nullptr;
  std::shared_ptr<Board> board = Board::adopt(descriptor, ranks_);
  board->join(rank_);
  return board;
}

// A queue of guests that is full refuses at once, so that no call here waits.
bool Attendee::connect_to_host(const Descriptor& socket) {
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address_.name), address_.size) ==
      0) {
    if (is_same_user(socket.get())) return true;
    seen_ = "a process of another user at the meeting place";
    return false;
  }
  if (errno == EAGAIN && seen_.empty()) seen_ = "a process that takes no guests";
  if (errno == ECONNREFUSED && has_met_host_) {
    throw CommError("rank 0 of this host ended when the ranks met")
        .hint("look at that rank's output; give every process its own rank");
  }
  return false;
}

Arrival Attendee::receive(const Descriptor& socket, Packet& packet, int* descriptor,
                          Clock::time_point until) const {
  for (;;) {
    const Arrival arrival = receive_packet(socket.get(), packet, descriptor);
    if (arrival != Arrival::Nothing || Clock::now() >= until) return arrival;
    std::vector<pollfd> waiting = {{socket.get(), POLLIN, 0}};
    wait_for(waiting, until);
  }
}

}  // namespace

std::string meeting_name(const std::string& job) {
  return "tegula-" + std::to_string(getuid()) + "-" + in_hex(hmac_sha256(job, "tegula meeting"));
}

std::shared_ptr<Board> meet_on_host(const std::string& job, int rank, int ranks,
                                    std::chrono::milliseconds timeout) {
  const Clock::time_point deadline = Clock::now() + timeout;
  if (rank == 0) return Host(job, ranks).meet(deadline);
  return Attendee(job, rank, ranks, deadline).meet();
}

}  // namespace tegula::inner::shm
