#include "tegula/base/random_bytes.h"

#include <sys/random.h>

#include <cerrno>
#include <cstring>

#include "tegula/base/error.h"

namespace tegula::inner {

std::string random_bytes(std::size_t count) {
  std::string bytes(count, '\0');
  for (std::size_t got = 0; got < count;) {
    const ssize_t more = getrandom(bytes.data() + got, count - got, 0);
    if (more > 0) got += static_cast<std::size_t>(more);
    if (more < 0 && errno != EINTR) {
      throw UsageError(std::string("the system has no random numbers: ") + std::strerror(errno))
          .hint("allow the system call getrandom");
    }
  }
  return bytes;
}

std::string in_hex(std::string_view bytes) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace tegula::inner
