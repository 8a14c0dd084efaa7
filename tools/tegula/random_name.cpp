#include "tools/tegula/random_name.h"

#include <sys/random.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "tegula/base/error.h"

namespace tegula::cli {

std::string random_name() {
  std::array<unsigned char, 16> bytes{};
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    throw UsageError(std::string("no random numbers: ") + std::strerror(errno));
  }
  std::string name;
  for (unsigned char byte : bytes) {
    constexpr const char* kDigits = "0123456789abcdef";
    name += kDigits[byte >> 4];
    name += kDigits[byte & 15];
  }
  return name;
}

}  // namespace tegula::cli
