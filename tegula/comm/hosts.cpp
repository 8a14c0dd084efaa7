// One store, which rank 0 serves (or the launcher), and one key per rank in it: the board on which
// it sits, its place there, and a keyed hash of both by the job's secret. Ranks with one board
// share memory; boards have random names, so that nobody depends on what hosts call themselves.
#include "tegula/comm/hosts.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>

#include "tegula/base/error.h"
#include "tegula/base/launch.h"
#include "tegula/base/random_bytes.h"
#include "tegula/base/sha256.h"
#include "tegula/base/text.h"

namespace tegula::inner::comm {
namespace {

// A socket that listens at one address of this host only. Negative if `host` is a name, which other
// hosts may resolve to another address, or none of this host's.
int listener_at(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return -1;
  int listener = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (bind(listener, found->ai_addr, found->ai_addrlen) != 0 || listen(listener, SOMAXCONN) != 0) {
    close(listener);
    listener = -1;
  }
  freeaddrinfo(found);
  return listener;
}

c10::intrusive_ptr<c10d::TCPStore> new_store(const Place& place, c10d::TCPStoreOptions options) {
  options.port = static_cast<std::uint16_t>(place.store_port);
  options.waitWorkers = false;
  options.useLibUV = false;  // not in every libtorch
  try {
    return c10::make_intrusive<c10d::TCPStore>(place.store_host, options);
  } catch (const std::exception& error) {
    const std::string text = error.what();
    throw CommError("the ranks' rendezvous cannot be reached: " + text.substr(0, text.find('\n')))
        .fact("at", place.store_host + ", port " + std::to_string(place.store_port))
        .hint("it is a host and a free port of rank 0, the same on all hosts");
  }
}

// The server outlives the worlds: ranks of other hosts may still ask it when rank 0 has ended its
// world, and the next world finds it there. So it belongs to the process, and is never destroyed.
void serve_store(const Place& place, std::chrono::milliseconds timeout) {
  static std::mutex mutex;
  static auto& served = *new std::map<int, c10::intrusive_ptr<c10d::TCPStore>>();  // by port
  const std::lock_guard<std::mutex> lock(mutex);
  if (served.contains(place.store_port)) return;
  c10d::TCPStoreOptions options;
  options.isServer = true;
  options.timeout = timeout;
  const int listener = listener_at(place.store_host, place.store_port);
  if (listener >= 0) options.masterListenFd = listener;
  served[place.store_port] = new_store(place, options);
}

c10::intrusive_ptr<c10d::Store> connect_store(const Place& place,
                                              std::chrono::milliseconds timeout) {
  if (place.store_host.empty() || place.store_port == 0) {
    throw UsageError("ranks on several hosts need a place to find each other")
        .fact("launcher", place.launcher)
        .hint(std::string("set ") + launch::kStoreHost + " and " + launch::kStorePort +
              " to a host and a free port of rank 0");
  }
  if (place.rank == 0 && !place.launcher_has_store) serve_store(place, timeout);
  c10d::TCPStoreOptions options;
  options.timeout = timeout;
  return new_store(place, options);
}

}  // namespace

std::string host_identity() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  char space[64] = {};
  if (readlink("/proc/self/ns/net", space, sizeof(space) - 1) < 0) space[0] = '\0';
  std::string boot;  // tells machines apart that were cloned, names and all
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return boot + " " + space + " " + name;
}

namespace {

// Where a rank sits: on the board that the ranks of its host share, which has a random name.
struct Seat {
  std::string board;
  std::string place;

  std::string proof(const std::string& secret, int rank) const {
    return in_hex(hmac_sha256(secret, "seat " + std::to_string(rank) + " " + board + " " + place));
  }
};

void tell_seat(c10d::Store& store, const std::string& secret, int rank, const Seat& seat) {
  store.set("host/" + std::to_string(rank),
            seat.board + " " + seat.place + " " + seat.proof(secret, rank));
}

std::string told_by(c10d::Store& store, int rank) {
  try {
    return store.get_to_str("host/" + std::to_string(rank));
  } catch (const std::exception& error) {
    const std::string text = error.what();
    throw CommError("rank " + std::to_string(rank) +
                    " did not come to the rendezvous: " + text.substr(0, text.find('\n')))
        .hint("start the job on all hosts; look at that rank's output");
  }
}

Seat seat_of(c10d::Store& store, const std::string& secret, int rank) {
  Seat seat;
  std::string proof;
  std::istringstream(told_by(store, rank)) >> seat.board >> seat.place >> proof;
  if (!are_same_secrets(proof, seat.proof(secret, rank))) {
    throw CommError("rank " + std::to_string(rank) + " does not know this job's secret")
        .hint(std::string("give the same ") + launch::kSecret + " or --secret-file on all hosts");
  }
  return seat;
}

// Negative if it is none of the places of this host.
int place_in(const std::string& text, int local_size) {
  int place = -1;
  const char* end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, place);
  return code == std::errc() && stop == end && place < local_size ? place : -1;
}

std::vector<int> ranks_on_hosts(const WorldState& world, c10d::Store& store,
                                const std::string& secret) {
  const std::string mine = world.board->compare_set("board", "", in_hex(random_bytes(16)));
  tell_seat(store, secret, world.rank, {mine, std::to_string(world.local_rank)});
  std::vector<int> places;
  for (int rank = 0; rank < world.size; ++rank) {
    const Seat seat = seat_of(store, secret, rank);
    const int place = seat.board == mine ? place_in(seat.place, world.local_size) : -1;
    if (seat.board == mine && (place < 0 || std::ranges::count(places, place) > 0)) {
      throw CommError("rank " + std::to_string(rank) + " cannot have place " +
                      in_quotes(seat.place) + " on this host")
          .fact("places", "0 ... " + std::to_string(world.local_size - 1) + ", one rank each")
          .hint("start all ranks of a host by one launcher");
    }
    places.push_back(place);
  }
  return places;
}

}  // namespace

// Whoever does not know the secret cannot name what the groups' members tell each other.
void find_hosts(WorldState& world, const Place& place, const std::string& world_name) {
  const auto store = connect_store(place, world.timeout);
  const auto seats = c10::make_intrusive<c10d::PrefixStore>(world_name, store);
  world.board_ranks = ranks_on_hosts(world, *seats, place.secret);
  world.store = c10::make_intrusive<c10d::PrefixStore>(
      in_hex(hmac_sha256(place.secret, "store of " + world_name)), store);
  world.rendezvous_host = place.store_host;
}

}  // namespace tegula::inner::comm
