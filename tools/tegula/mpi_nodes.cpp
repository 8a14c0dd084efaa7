// Everything that goes over a socket is a message: four bytes of length, then the text. A node
// introduces itself with its number; from then on it gets commands and answers each with its exit
// code. One thread of host 0's launcher passes messages between agents and nodes.
#include "tools/tegula/mpi_nodes.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <thread>

#include "tegula/base/descriptor.h"
#include "tegula/base/error.h"
#include "tegula/base/text.h"
#include "tools/tegula/random_name.h"

namespace tegula::cli {

using namespace inner;

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kLongestMessage = 1 << 20;
constexpr int kNoAnswer = 255;

bool write_all(int socket, const void* data, std::size_t bytes) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t count = send(socket, from, bytes, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    from += count;
    bytes -= static_cast<std::size_t>(count);
  }
  return true;
}

bool read_all(int socket, void* data, std::size_t bytes) {
  char* to = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t count = recv(socket, to, bytes, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    to += count;
    bytes -= static_cast<std::size_t>(count);
  }
  return true;
}

bool send_message(int socket, const std::string& text) {
  const std::uint32_t length = htonl(static_cast<std::uint32_t>(text.size()));
  return write_all(socket, &length, sizeof(length)) && write_all(socket, text.data(), text.size());
}

std::optional<std::string> receive_message(int socket) {
  std::uint32_t length = 0;
  if (!read_all(socket, &length, sizeof(length))) return std::nullopt;
  length = ntohl(length);
  if (length > kLongestMessage) return std::nullopt;
  std::string text(length, '\0');
  if (!read_all(socket, text.data(), length)) return std::nullopt;
  return text;
}

struct HostPort {
  std::string host;
  std::string port;
};

HostPort split(const std::string& rendezvous) {
  const std::size_t colon = rendezvous.rfind(':');
  return {rendezvous.substr(0, colon), rendezvous.substr(colon + 1)};
}

struct AddressList {
  addrinfo* first = nullptr;
  ~AddressList() {
    if (first != nullptr) freeaddrinfo(first);
  }
};

void resolve(const std::string& rendezvous, AddressList& list) {
  const HostPort place = split(rendezvous);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  const int code = getaddrinfo(place.host.c_str(), place.port.c_str(), &hints, &list.first);
  if (code == 0) return;
  throw UsageError("cannot find the rendezvous: " + std::string(gai_strerror(code)))
      .fact("rendezvous", rendezvous)
      .hint("give the address of host 0 and a free port of it, host:port");
}

std::string address_text(const sockaddr* address, socklen_t size) {
  char text[NI_MAXHOST] = {};
  getnameinfo(address, size, text, sizeof(text), nullptr, 0, NI_NUMERICHOST);
  return text;
}

Descriptor listen_at(const std::string& rendezvous, std::string& own_address) {
  AddressList list;
  resolve(rendezvous, list);
  Descriptor listener(socket(list.first->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;
  setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (bind(listener.get(), list.first->ai_addr, list.first->ai_addrlen) != 0 ||
      listen(listener.get(), 64) != 0) {
    throw UsageError("cannot listen at the rendezvous: " + std::string(std::strerror(errno)))
        .fact("rendezvous", rendezvous)
        .hint("on host 0 it must be an address of that host and a free port");
  }
  own_address = address_text(list.first->ai_addr, list.first->ai_addrlen);
  return listener;
}

// An abstract address: no file, gone with the socket.
sockaddr_un local_address(const std::string& name, socklen_t& size) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::size_t length = std::min(name.size(), sizeof(address.sun_path) - 2);
  std::memcpy(address.sun_path + 1, name.data(), length);
  size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  return address;
}

bool starts_open_mpi_daemon(const std::string& command) {
  return command.find("orted") != std::string::npos || command.find("prted") != std::string::npos;
}

}  // namespace

struct Switchboard::State {
  struct Node {
    Descriptor socket;
    std::optional<Descriptor> agent;  // who waits for its answer
  };

  std::vector<std::string> hosts;
  std::map<std::string, Node> nodes;  // by address
  std::string name = "tegula-mpi-" + random_name();
  Descriptor agents;
  std::atomic<bool> ends = false;
  std::thread thread;

  void welcome(int listener, int count, std::chrono::seconds timeout);
  void listen_for_agents();
  void serve();
  void take_agent();
  void pass_answer(Node& node);
};

void Switchboard::State::welcome(int listener, int count, std::chrono::seconds timeout) {
  const Clock::time_point deadline = Clock::now() + timeout;
  std::vector<bool> has_come(static_cast<std::size_t>(count));
  hosts.resize(static_cast<std::size_t>(count));
  has_come[0] = true;
  for (int missing = count - 1; missing > 0;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd waiting{listener, POLLIN, 0};
    if (left <= 0 || poll(&waiting, 1, static_cast<int>(left)) == 0) {
      std::vector<std::int64_t> absent;
      for (int node = 1; node < count; ++node) {
        if (!has_come[static_cast<std::size_t>(node)]) absent.push_back(node);
      }
      throw CommError("hosts did not come to the rendezvous in time: " + join(absent))
          .hint("run the same command on every host, each with its --node-rank");
    }
    sockaddr_storage peer{};
    socklen_t size = sizeof(peer);
    Descriptor guest(accept4(listener, reinterpret_cast<sockaddr*>(&peer), &size, SOCK_CLOEXEC));
    const std::optional<std::string> hello = receive_message(guest.get());
    if (!hello) continue;
    const int node = std::atoi(hello->c_str());
    if (node < 1 || node >= count || has_come[static_cast<std::size_t>(node)]) continue;
    has_come[static_cast<std::size_t>(node)] = true;
    const std::string address = address_text(reinterpret_cast<sockaddr*>(&peer), size);
    hosts[static_cast<std::size_t>(node)] = address;
    nodes[address] = Node{std::move(guest), std::nullopt};
    --missing;
  }
}

void Switchboard::State::listen_for_agents() {
  agents = Descriptor(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  socklen_t size = 0;
  const sockaddr_un address = local_address(name, size);
  if (bind(agents.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      listen(agents.get(), 64) != 0) {
    throw CommError("cannot listen for mpirun's agents: " + std::string(std::strerror(errno)))
        .hint("try again");
  }
}

void Switchboard::State::take_agent() {
  Descriptor agent(accept4(agents.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (agent.get() < 0 || !is_same_user(agent.get())) return;
  const std::optional<std::string> host = receive_message(agent.get());
  const std::optional<std::string> command = receive_message(agent.get());
  if (!host || !command) return;
  const auto node = nodes.find(*host);
  if (node == nodes.end() || !send_message(node->second.socket.get(), *command)) {
    send_message(agent.get(), std::to_string(kNoAnswer));
    return;
  }
  node->second.agent = std::move(agent);
}

void Switchboard::State::pass_answer(Node& node) {
  const std::string answer = receive_message(node.socket.get()).value_or(std::to_string(kNoAnswer));
  if (node.agent) send_message(node.agent->get(), answer);
  node.agent.reset();
  if (answer == std::to_string(kNoAnswer)) node.socket = Descriptor();
}

void Switchboard::State::serve() {
  while (!ends) {
    std::vector<pollfd> waiting{{agents.get(), POLLIN, 0}};
    std::vector<Node*> sources;
    for (auto& [address, node] : nodes) {
      if (node.socket.get() < 0) continue;
      waiting.push_back({node.socket.get(), POLLIN, 0});
      sources.push_back(&node);
    }
    if (poll(waiting.data(), waiting.size(), 100) <= 0) continue;
    if (waiting[0].revents != 0) take_agent();
    for (std::size_t i = 0; i < sources.size(); ++i) {
      if (waiting[i + 1].revents != 0) pass_answer(*sources[i]);
    }
  }
}

Switchboard::Switchboard(const std::string& rendezvous, int nodes, std::chrono::seconds timeout)
    : state_(std::make_unique<State>()) {
  std::string own_address;
  const Descriptor listener = listen_at(rendezvous, own_address);
  state_->welcome(listener.get(), nodes, timeout);
  state_->hosts[0] = own_address;
  state_->listen_for_agents();
  state_->thread = std::thread([state = state_.get()] { state->serve(); });
}

Switchboard::~Switchboard() {
  state_->ends = true;
  state_->thread.join();
}

const std::vector<std::string>& Switchboard::hosts() const { return state_->hosts; }

std::string Switchboard::agent_command() const {
  return std::filesystem::read_symlink("/proc/self/exe").string() + " mpi-agent " + state_->name;
}

int run_mpi_agent(const std::string& switchboard, const std::string& host,
                  const std::string& command) {
  const Descriptor launcher(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  socklen_t size = 0;
  const sockaddr_un address = local_address(switchboard, size);
  if (connect(launcher.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0) {
    throw CommError("the launcher is gone: " + std::string(std::strerror(errno)))
        .hint("mpirun calls this, not you");
  }
  if (!send_message(launcher.get(), host) || !send_message(launcher.get(), command))
    return kNoAnswer;
  return std::atoi(receive_message(launcher.get()).value_or(std::to_string(kNoAnswer)).c_str());
}

namespace {

Descriptor connect_to(const std::string& rendezvous, std::chrono::seconds timeout) {
  const Clock::time_point deadline = Clock::now() + timeout;
  AddressList list;
  resolve(rendezvous, list);
  while (true) {
    Descriptor node(socket(list.first->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (connect(node.get(), list.first->ai_addr, list.first->ai_addrlen) == 0) return node;
    if (Clock::now() > deadline) {
      throw CommError("host 0 did not come to the rendezvous in time: " +
                      std::string(std::strerror(errno)))
          .fact("rendezvous", rendezvous)
          .hint("run the same command on every host, each with its --node-rank");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

pid_t start_shell(const std::string& command) {
  const pid_t process = fork();
  if (process != 0) return process;
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
  _exit(127);
}

int exit_code(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

// Blocks the signals that end a launcher and the one of ended children, and reads them.
class Signals {
 public:
  Signals() {
    sigset_t signals;
    sigemptyset(&signals);
    for (int number : {SIGCHLD, SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, number);
    sigprocmask(SIG_BLOCK, &signals, &before_);
    descriptor_ = Descriptor(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  }
  ~Signals() { sigprocmask(SIG_SETMASK, &before_, nullptr); }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  int descriptor() const { return descriptor_.get(); }
  // The next signal that came, 0 if none.
  int next() const {
    signalfd_siginfo info{};
    return read(descriptor_.get(), &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))
               ? static_cast<int>(info.ssi_signo)
               : 0;
  }

 private:
  sigset_t before_{};
  Descriptor descriptor_;
};

}  // namespace

int serve_mpi_node(const std::string& rendezvous, int node_rank, std::chrono::seconds timeout) {
  const Signals signals;
  const Descriptor node = connect_to(rendezvous, timeout);
  send_message(node.get(), std::to_string(node_rank));
  pid_t running = -1;
  int code = 0;
  const auto stop = [&](int result) {
    if (running > 0) {
      kill(-running, SIGKILL);
      waitpid(running, nullptr, 0);
    }
    return result;
  };
  while (true) {
    pollfd waiting[] = {{node.get(), POLLIN, 0}, {signals.descriptor(), POLLIN, 0}};
    poll(waiting, 2, -1);
    for (int number = signals.next(); number != 0; number = signals.next()) {
      if (number != SIGCHLD) return stop(128 + number);
    }
    int status = 0;
    if (running > 0 && waitpid(running, &status, WNOHANG) == running) {
      running = -1;
      if (code == 0) code = exit_code(status);
      send_message(node.get(), std::to_string(exit_code(status)));
    }
    if (waiting[0].revents == 0) continue;
    const std::optional<std::string> command = receive_message(node.get());
    if (!command) return stop(code);
    const bool may_run = running < 0 && starts_open_mpi_daemon(*command);
    if (!may_run || (running = start_shell(*command)) < 0)
      send_message(node.get(), std::to_string(kNoAnswer));
  }
}

}  // namespace tegula::cli
