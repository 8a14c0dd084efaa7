#include "tegula/base/launch.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "tegula/base/descriptor.h"
#include "tegula/base/error.h"

namespace tegula::inner::launch {
namespace {

constexpr std::size_t kShortestSecret = 16;  // characters
constexpr int kHighestPort = 65535;

std::string trimmed(const std::string& text) {
  constexpr const char* kBlanks = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

// The first bytes of a file that other users cannot read; a longer one is no secret of ours.
std::string private_text(const char* path) {
  const Descriptor file(open(path, O_RDONLY | O_CLOEXEC));
  struct stat status{};
  std::array<char, 4096> bytes{};
  ssize_t count = -1;
  if (file.get() >= 0 && fstat(file.get(), &status) == 0) {
    if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
      throw UsageError("the file with the job's secret is open to other users")
          .fact("file", path)
          .hint("chmod 600 it, and make a new secret");
    }
    count = read(file.get(), bytes.data(), bytes.size());
  }
  if (count < 0) {
    throw UsageError(std::string("cannot read the job's secret: ") + std::strerror(errno))
        .fact("file", path)
        .hint(std::string(kSecretFile) +
              " and --secret-file name a file with the same text on "
              "every host");
  }
  return {bytes.data(), static_cast<std::size_t>(count)};
}

}  // namespace

void set_variable(const char* name, const std::string& value) { setenv(name, value.c_str(), 1); }

void set_launch(const Place& place) {
  set_variable(kRank, std::to_string(place.rank));
  set_variable(kSize, std::to_string(place.size));
  set_variable(kLocalRank, std::to_string(place.local_rank));
  set_variable(kLocalSize, std::to_string(place.local_size));
  set_variable(kJob, place.job);
}

std::string secret_of(const char* text, const char* file) {
  if (text == nullptr && file == nullptr) return "";
  const std::string secret = trimmed(text != nullptr ? text : private_text(file));
  if (secret.size() < kShortestSecret) {
    throw UsageError("the job's secret has fewer than " + std::to_string(kShortestSecret) +
                     " characters")
        .fact("from", text != nullptr ? kSecret : file)
        .hint("make one: head -c 32 /dev/urandom | base64");
  }
  return secret;
}

std::optional<int> port_in(std::string_view text) {
  int port = 0;
  const char* end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, port);
  if (code != std::errc() || stop != end || port < 1 || port > kHighestPort) return std::nullopt;
  return port;
}

}  // namespace tegula::inner::launch
