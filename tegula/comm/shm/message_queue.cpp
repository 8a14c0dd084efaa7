#include "tegula/comm/shm/message_queue.h"

#include <utility>

namespace tegula::inner::shm {

MessageQueue::MessageQueue(Channel& channel) : channel_(channel), messages_(channel) {}

MessageQueue::~MessageQueue() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_ending_ = true;
  }
  posted_.notify_all();
  messages_.wake();
  if (thread_.joinable()) thread_.join();
}

bool MessageQueue::is_idle() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return messages_.is_idle();
}

// Moves messages, or lets go of the lock and waits a little. An error ends all of them.
void MessageQueue::step(std::unique_lock<std::mutex>& lock, Backoff& backoff) {
  try {
    if (messages_.progress()) {
      backoff = Backoff(channel_.backoff());
    } else if (!messages_.is_idle()) {
      lock.unlock();
      const bool shall_check = messages_.nap(backoff);
      lock.lock();
      if (shall_check) messages_.check_peers();
    }
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    messages_.fail_all(std::current_exception());
  }
  tell_ended(lock);
}

// Without the lock: who is told may post the next message.
void MessageQueue::tell_ended(std::unique_lock<std::mutex>& lock) {
  const std::vector<EndedMessage> ended = messages_.take_ended();
  if (ended.empty()) return;
  lock.unlock();
  for (const EndedMessage& message : ended) message.on_end(message.error);
  lock.lock();
}

void MessageQueue::ensure_carrier() {
  if (!thread_.joinable()) thread_ = comm::new_thread([this] { carry(); });
}

void MessageQueue::run(comm::Message message) {
  bool has_ended = false;
  std::exception_ptr error;
  PendingMessage pending{std::move(message), nullptr};
  pending.on_end = [&](std::exception_ptr e) {
    const std::lock_guard<std::mutex> lock(mutex_);
    error = std::move(e);
    has_ended = true;
    posted_.notify_all();
  };
  std::unique_lock<std::mutex> lock(mutex_);
  const bool is_mine = messages_.is_idle();
  messages_.post(std::move(pending));
  if (is_mine) {
    Backoff backoff(channel_.backoff());
    while (!has_ended) step(lock, backoff);
  } else {
    messages_.wake();
    posted_.wait(lock, [&] { return has_ended; });
  }
  // Messages that others posted meanwhile need a carrier.
  if (!messages_.is_idle()) {
    try {
      ensure_carrier();
    } catch (...) {
      messages_.fail_all(std::current_exception());
      tell_ended(lock);
    }
  }
  if (error) std::rethrow_exception(error);
}

void MessageQueue::start(comm::Message message, std::function<void(std::exception_ptr)> on_end) {
  PendingMessage pending{std::move(message), std::move(on_end)};
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ensure_carrier();
    messages_.post(std::move(pending));
  }
  posted_.notify_all();
  messages_.wake();
}

void MessageQueue::carry() {
  std::unique_lock<std::mutex> lock(mutex_);
  Backoff backoff(Backoff::Start::Yielding);
  while (true) {
    posted_.wait(lock, [this] { return !messages_.is_idle() || is_ending_; });
    if (is_ending_) break;
    backoff = Backoff(Backoff::Start::Yielding);
    while (!messages_.is_idle() && !is_ending_) step(lock, backoff);
    posted_.notify_all();
  }
  messages_.fail_all(
      std::make_exception_ptr(channel_.error_about("the group ended while messages were under way")
                                  .hint("wait for sends and recvs before the world goes")));
  tell_ended(lock);
}

}  // namespace tegula::inner::shm
