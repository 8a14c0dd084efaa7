// Moves a group's letters: on the thread of a caller who waits for one, else on a thread of its own
// that is started when first needed. Any number of sends and recvs may be under way; none waits for
// another one but those before it between the same two ranks.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "tegula/comm/shm/mail.h"

namespace tegula::shm {

class Postman {
 public:
  explicit Postman(Channel& channel);
  // Ends letters under way with an error.
  ~Postman();
  Postman(const Postman&) = delete;
  Postman& operator=(const Postman&) = delete;

  // Returns when the letter is delivered (a recv) or taken over (a send). Throws its error.
  void carry_now(Letter letter);
  // letter.on_end tells.
  void carry_later(Letter letter);
  bool is_idle();

 private:
  void run();
  void step(std::unique_lock<std::mutex>& lock, Patience& patience);

  Channel& channel_;
  std::mutex mutex_;
  std::condition_variable posted_;
  Mail mail_;
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace tegula::shm
