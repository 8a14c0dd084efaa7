#include "tegula/comm/worker.h"

#include <system_error>
#include <utility>

#include "tegula/base/error.h"

namespace tegula::inner::comm {

std::thread new_thread(std::function<void()> body) {
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& error) {
    throw CommError(std::string("cannot start a thread: ") + error.what())
        .hint("raise the limits on threads (ulimit -u) and memory, or run fewer ranks here");
  }
}

Worker::~Worker() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Worker::start() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!thread_.joinable()) thread_ = new_thread([this] { run(); });
}

void Worker::queue(Task task) {
  start();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  changed_.notify_all();
}

void Worker::run_in_turn(Task task) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (tasks_.empty() && !is_running_) {
      if (const Announcement announce = task()) announce();
      return;
    }
  }
  queue(std::move(task));
}

bool Worker::is_idle() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return tasks_.empty() && !is_running_;
}

std::unique_lock<std::mutex> Worker::lock_when_idle() {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto is_free = [this] { return tasks_.empty() && !is_running_ && !is_announcing_; };
  if (!is_free()) changed_.wait(lock, is_free);
  return lock;
}

void Worker::run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return !tasks_.empty() || is_ending_; });
    if (tasks_.empty()) return;
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    is_running_ = true;
    lock.unlock();
    Announcement announce = task();
    task = nullptr;
    lock.lock();
    is_running_ = false;
    is_announcing_ = true;
    lock.unlock();
    if (announce) announce();
    announce = nullptr;
    lock.lock();
    is_announcing_ = false;
    changed_.notify_all();
  }
}

}  // namespace tegula::inner::comm
