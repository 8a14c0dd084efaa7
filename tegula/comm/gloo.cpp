// TCP, by the gloo inside libtorch. Ranks of one host talk over the loopback; others from the
// address by which they reach the job's rendezvous, or from the interface that GLOO_SOCKET_IFNAME
// names.
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <csignal>
#include <cstdlib>
#include <cstring>

#include "tegula/comm/c10d_engine.h"
#include "tegula/comm/engines.h"

namespace tegula::inner::comm {
namespace {

constexpr const char* kLoopback = "127.0.0.1";

// The address that this host would use to reach `host`; nothing is sent.
std::string address_towards(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), "9", &hints, &found) != 0) return kLoopback;
  std::string address = kLoopback;
  const int socket = ::socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_storage own{};
  socklen_t size = sizeof(own);
  char text[NI_MAXHOST] = {};
  if (socket >= 0 && connect(socket, found->ai_addr, found->ai_addrlen) == 0 &&
      getsockname(socket, reinterpret_cast<sockaddr*>(&own), &size) == 0 &&
      getnameinfo(reinterpret_cast<sockaddr*>(&own), size, text, sizeof(text), nullptr, 0,
                  NI_NUMERICHOST) == 0) {
    address = text;
  }
  if (socket >= 0) close(socket);
  freeaddrinfo(found);
  return address;
}

std::shared_ptr<gloo::transport::Device> new_device(const EngineOptions& options) {
  using Gloo = c10d::ProcessGroupGloo;
  if (options.rendezvous_host.empty()) return Gloo::createDeviceForHostname(kLoopback);
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
  if (interface != nullptr) return Gloo::createDeviceForInterface(interface);
  return Gloo::createDeviceForHostname(address_towards(options.rendezvous_host));
}

// Returns when all members are about to connect. The store knows of ranks that left; gloo would
// wait for them until its timeout.
void await_members(const EngineOptions& options) {
  const auto key = [](int index) { return "here/" + std::to_string(index); };
  options.store->set(key(options.index), "1");
  std::vector<std::string> all;
  for (int index = 0; index < options.size; ++index) all.push_back(key(index));
  options.store->wait(all, options.timeout);
}

// gloo writes to sockets in a way that kills the process when the peer is gone. Unless the program
// has its own idea of that signal, it is ignored, so that the write fails and becomes our error.
void survive_lost_peers() {
  struct sigaction present{};
  if (sigaction(SIGPIPE, nullptr, &present) == 0 && present.sa_handler == SIG_DFL) {
    std::signal(SIGPIPE, SIG_IGN);
  }
}

}  // namespace

std::shared_ptr<Engine> make_gloo_engine(const EngineOptions& options) {
  survive_lost_peers();
  try {
    auto settings = c10d::ProcessGroupGloo::Options::create(options.timeout);
    settings->devices.push_back(new_device(options));
    await_members(options);
    auto backend = c10::make_intrusive<c10d::ProcessGroupGloo>(options.store, options.index,
                                                               options.size, settings);
    return make_c10d_engine(
        backend, {"gloo", options.group, options.ranks, options.timeout, options.why_failed});
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    const std::string text = error.what();
    throw CommError("the ranks did not find each other over TCP: " +
                    text.substr(0, text.find('\n')))
        .fact("group", options.group)
        .hint("check that the hosts reach each other; GLOO_SOCKET_IFNAME chooses the interface");
  }
}

}  // namespace tegula::inner::comm
