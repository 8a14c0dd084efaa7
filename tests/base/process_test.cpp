#include "tegula/base/process.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "tegula/base/error.h"

namespace tegula::inner {
namespace process_test {

// What the body gives in a forked child.
bool in_child(const std::function<bool()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body() ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(Process, AChildIsAnotherOneThanItsParent) {
  const HomeProcess home;
  EXPECT_EQ(current_process(), getpid());
  EXPECT_TRUE(in_child([] { return current_process() == getpid(); }));
  EXPECT_TRUE(in_child([&] { return !home.is_here() && HomeProcess().is_here(); }));
  EXPECT_TRUE(home.is_here());
  EXPECT_NO_THROW(home.check());
}

TEST(Process, WhatAChildMayNotUseIsRefused) {
  const HomeProcess home;
  EXPECT_TRUE(in_child([&] {
    try {
      home.check();
    } catch (const UsageError& error) {
      return error.sentence() == "a forked child has no part in its parent's world";
    }
    return false;
  }));
}

struct Destroyed {
  explicit Destroyed(bool& flag) : told(&flag) {}
  ~Destroyed() { *told = true; }
  bool* told;
};

TEST(Process, OnlyTheProcessThatMadeAnObjectDestroysIt) {
  bool is_destroyed = false;
  auto object = make_shared_at_home<Destroyed>(is_destroyed);
  EXPECT_TRUE(in_child([&] {
    object.reset();
    return !is_destroyed;
  }));
  object.reset();
  EXPECT_TRUE(is_destroyed);
}

}  // namespace process_test
}  // namespace tegula::inner
