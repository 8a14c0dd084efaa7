// One thread that runs a group's asynchronous calls in order, started when first needed.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace tegula::inner::comm {

// As std::thread, but a CommError if the system has none to give.
std::thread new_thread(std::function<void()> body);

class Worker {
 public:
  // Says that a call has ended, to whoever waits for it. It runs when the worker no longer counts
  // as running, so that one who was told and ends the group finds it idle. May be empty.
  using Announcement = std::function<void()>;
  using Task = std::function<Announcement()>;  // neither throws

  Worker() = default;
  // Runs what is queued, then ends.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Makes sure that there is a thread: queue() does not fail from then on. CommError if there is
  // none to be had.
  void start();
  // CommError likewise; the task is not queued then.
  void queue(Task task);
  // Runs the task after what is queued: here and now if nothing is.
  void run_in_turn(Task task);
  // Nothing is queued or running.
  bool is_idle();
  // Waits until nothing is queued or running and all ends are announced. While the lock is held,
  // nothing starts.
  std::unique_lock<std::mutex> lock_when_idle();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  bool is_running_ = false;
  bool is_announcing_ = false;
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace tegula::inner::comm
