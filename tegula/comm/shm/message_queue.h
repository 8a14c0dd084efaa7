// Carries a group's messages: on the thread of a caller who waits for one, else on a thread of its
// own that is started when first needed. Any number of sends and recvs may be under way; none waits
// for another one but those before it between the same two ranks.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "tegula/comm/shm/messages.h"
#include "tegula/comm/worker.h"

namespace tegula::inner::shm {

class MessageQueue {
 public:
  explicit MessageQueue(Channel& channel);
  // Ends messages under way with an error.
  ~MessageQueue();
  MessageQueue(const MessageQueue&) = delete;
  MessageQueue& operator=(const MessageQueue&) = delete;

  // Returns when the message is here (a recv) or taken over (a send). Throws its error.
  void run(comm::Message message);
  // on_end tells, on whichever thread ends it and under no lock. CommError if there is no thread
  // to be had; nothing was posted then.
  void start(comm::Message message, std::function<void(std::exception_ptr)> on_end);
  bool is_idle();

 private:
  void carry();
  void step(std::unique_lock<std::mutex>& lock, Backoff& backoff);
  void tell_ended(std::unique_lock<std::mutex>& lock);
  void ensure_carrier();

  Channel& channel_;
  std::mutex mutex_;
  std::condition_variable posted_;
  Messages messages_;
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace tegula::inner::shm
