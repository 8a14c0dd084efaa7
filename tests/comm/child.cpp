#include "tests/comm/child.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <exception>
#include <stdexcept>

namespace tegula {

Child::Child(const std::function<void()>& body) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  id_ = fork();
  if (id_ == 0) {
    alarm(60);
    try {
      body();
    } catch (const std::exception& error) {
      const std::string text = error.what();
      _exit(write(ends[1], text.data(), text.size()) >= 0 ? 1 : 2);
    }
    _exit(0);
  }
  close(ends[1]);
  errors_ = ends[0];
}

Child::~Child() {
  if (has_ended_) return;
  kill(id_, SIGKILL);
  outcome();
}

std::string Child::outcome() {
  int status = 0;
  waitpid(id_, &status, 0);
  has_ended_ = true;
  std::string text;
  char buffer[4096];
  // Not to its end, which other children may hold open.
  pollfd waiting{errors_, POLLIN, 0};
  if (poll(&waiting, 1, 0) > 0) {
    const ssize_t count = read(errors_, buffer, sizeof(buffer));
    if (count > 0) text.assign(buffer, static_cast<std::size_t>(count));
  }
  close(errors_);
  if (WIFSIGNALED(status)) return "killed by signal " + std::to_string(WTERMSIG(status));
  return text.empty() && status != 0 ? "ended with status " + std::to_string(status) : text;
}

Gate::Gate() {
  if (pipe2(ends_, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
}

Gate::~Gate() {
  close(ends_[0]);
  close(ends_[1]);
}

void Gate::wait() const {
  pollfd waiting{ends_[0], POLLIN, 0};
  while (poll(&waiting, 1, 1000) == 0) {
  }
}

void Gate::open() const {
  if (write(ends_[1], "x", 1) != 1) throw std::runtime_error("the gate does not open");
}

}  // namespace tegula
