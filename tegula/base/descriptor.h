// A file descriptor or socket that is closed with its owner, and who is at its other end.
#pragma once

namespace tegula::inner {

class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&& other) noexcept;
  // Negative: none.
  int get() const { return number_; }

 private:
  int number_;
};

// Whether the process at the other end of a Unix socket runs as the same user.
bool is_same_user(int socket);

}  // namespace tegula::inner
