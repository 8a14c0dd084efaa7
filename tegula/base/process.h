// Which process this is, told from a child that it forked. Such a child has copies of its parent's
// objects, but none of its threads; locks may be held for ever, and shared memory is the parent's.
#pragma once

#include <memory>
#include <utility>

namespace tegula::inner {

// As getpid(), without a system call.
int current_process();

// The process that made an object.
class HomeProcess {
 public:
  // False in a child that was forked since.
  bool is_here() const { return id_ == current_process(); }
  // UsageError in such a child: a world is of use to the process alone that made it.
  void check() const {
    if (!is_here()) refuse();
  }

 private:
  [[noreturn]] static void refuse();

  int id_ = current_process();
};

// As std::make_shared, but a forked child does not destroy the object: it could only wait for
// threads that are not there, or end what its parent still uses.
template <class T, class... Arguments>
std::shared_ptr<T> make_shared_at_home(Arguments&&... arguments) {
  const auto destroy = [home = HomeProcess()](T* object) {
    if (home.is_here()) delete object;
  };
  return std::shared_ptr<T>(new T(std::forward<Arguments>(arguments)...), destroy);
}

}  // namespace tegula::inner
