#include "tegula/comm/shm/postman.h"

#include <utility>

namespace tegula::shm {

Postman::Postman(Channel& channel) : channel_(channel), mail_(channel) {}

Postman::~Postman() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_ending_ = true;
  }
  posted_.notify_all();
  mail_.wake();
  if (thread_.joinable()) thread_.join();
}

bool Postman::is_idle() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return mail_.is_idle();
}

// Moves letters, or lets go of the lock and waits a little. An error ends all letters.
void Postman::step(std::unique_lock<std::mutex>& lock, Patience& patience) {
  try {
    if (mail_.progress()) {
      patience = Patience(channel_.patience());
      return;
    }
    if (mail_.is_idle()) return;
    lock.unlock();
    const bool shall_look = mail_.nap(patience);
    lock.lock();
    if (shall_look) mail_.look();
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    mail_.fail_all(std::current_exception());
  }
}

void Postman::carry_now(Letter letter) {
  bool has_ended = false;
  std::exception_ptr error;
  letter.on_end = [&](std::exception_ptr e) {
    error = std::move(e);
    has_ended = true;
    posted_.notify_all();
  };
  std::unique_lock<std::mutex> lock(mutex_);
  const bool is_mine = mail_.is_idle();
  mail_.post(std::move(letter));
  if (is_mine) {
    Patience patience(channel_.patience());
    while (!has_ended) step(lock, patience);
  } else {
    mail_.wake();
    posted_.wait(lock, [&] { return has_ended; });
  }
  // Letters that others posted meanwhile need a carrier.
  if (!mail_.is_idle() && !thread_.joinable()) thread_ = std::thread([this] { run(); });
  if (error) std::rethrow_exception(error);
}

void Postman::carry_later(Letter letter) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    mail_.post(std::move(letter));
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  }
  posted_.notify_all();
  mail_.wake();
}

void Postman::run() {
  std::unique_lock<std::mutex> lock(mutex_);
  Patience patience(Patience::Start::Yielding);
  while (true) {
    posted_.wait(lock, [this] { return !mail_.is_idle() || is_ending_; });
    if (is_ending_) break;
    patience = Patience(Patience::Start::Yielding);
    while (!mail_.is_idle() && !is_ending_) step(lock, patience);
    posted_.notify_all();
  }
  mail_.fail_all(
      std::make_exception_ptr(channel_.error_about("the group ended while messages were under way")
                                  .hint("wait for sends and recvs before the world goes")));
}

}  // namespace tegula::shm
