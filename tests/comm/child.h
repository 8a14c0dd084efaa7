// A process of a test.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

namespace tegula {

// Runs the body in a process of its own. Killed with its owner, and after a minute.
class Child {
 public:
  explicit Child(const std::function<void()>& body);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t id() const { return id_; }
  // Waits for its end: what the body threw; empty if it returned.
  std::string outcome();

 private:
  pid_t id_ = -1;
  int errors_ = -1;  // the reading end of a pipe
  bool has_ended_ = false;
};

// Lets processes go on that were forked while it lived and that wait for it.
class Gate {
 public:
  Gate();
  ~Gate();
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  // Of any process: until open() was called, or all who could call it have ended.
  void wait() const;
  void open() const;

 private:
  int ends_[2];
};

}  // namespace tegula
