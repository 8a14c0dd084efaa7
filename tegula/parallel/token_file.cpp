#include "tegula/parallel/token_file.h"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>

#include "tegula/base/descriptor.h"
#include "tegula/base/error.h"
#include "tegula/base/text.h"

static_assert(std::endian::native == std::endian::little,
              "tokens are read as they lie in the file");

namespace tegula {

using namespace inner;

namespace {

constexpr char kMagic[] = {'t', 'e', 'g', 'u', 'l', 'a', '-', 't'};
constexpr std::uint32_t kVersion = 1;

struct Header {
  char magic[sizeof kMagic];
  std::uint32_t version;
  std::uint32_t token_bytes;
  std::uint64_t count;
};
static_assert(sizeof(Header) == 24);

UsageError unreadable(const std::string& path, const std::string& why) {
  return UsageError("a token file cannot be read").fact("file", in_quotes(path)).fact("why", why);
}

std::uint64_t greatest(TokenType type) {
  return type == TokenType::U16 ? std::numeric_limits<std::uint16_t>::max()
                                : std::numeric_limits<std::uint32_t>::max();
}

}  // namespace

std::int64_t bytes_of(TokenType type) { return type == TokenType::U16 ? 2 : 4; }

struct TokenFile::Mapping {
  explicit Mapping(const std::string& file) : path(file) {
    const Descriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat status{};
    if (descriptor.get() < 0 || ::fstat(descriptor.get(), &status) != 0) {
      throw unreadable(path, std::strerror(errno)).hint("check the path and its permissions");
    }
    if (!S_ISREG(status.st_mode)) {
      throw unreadable(path, "it is no regular file").hint("name a file");
    }
    bytes = status.st_size;
    if (bytes == 0) return;  // nothing can be mapped
    memory = ::mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ, MAP_SHARED,
                    descriptor.get(), 0);
    if (memory == MAP_FAILED) {
      memory = nullptr;
      throw unreadable(path, std::strerror(errno)).hint("map smaller files, or raise limits");
    }
  }
  ~Mapping() {
    if (memory != nullptr) ::munmap(memory, static_cast<std::size_t>(bytes));
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  void read_header() {
    Header header{};
    const char* hint = "write it with write_token_file, or give the type of a raw file";
    if (bytes < static_cast<std::int64_t>(sizeof header)) {
      throw unreadable(path, "it is too short for a header").hint(hint);
    }
    std::memcpy(&header, memory, sizeof header);
    if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) {
      throw unreadable(path, "it does not begin as a token file does").hint(hint);
    }
    if (header.version != kVersion || (header.token_bytes != 2 && header.token_bytes != 4)) {
      throw unreadable(path, "version " + std::to_string(header.version) + " with tokens of " +
                                 std::to_string(header.token_bytes) + " bytes")
          .hint("known is version 1 with tokens of 2 or 4 bytes");
    }
    type = header.token_bytes == 2 ? TokenType::U16 : TokenType::U32;
    begin = sizeof header;
    const std::int64_t rest = bytes - begin;
    // divided, not multiplied: a count may be anything
    if (rest % bytes_of(type) != 0 ||
        header.count != static_cast<std::uint64_t>(rest / bytes_of(type))) {
      throw unreadable(path, "its header says " + std::to_string(header.count) + " tokens, but " +
                                 std::to_string(rest) + " bytes follow")
          .hint("it was cut off or changed; write it again");
    }
    count = rest / bytes_of(type);
  }

  void take_raw(TokenType given) {
    type = given;
    count = bytes / bytes_of(type);
    if (bytes % bytes_of(type) == 0) return;
    throw unreadable(path, std::to_string(bytes) + " bytes are no whole number of tokens")
        .hint("give the type that it was written with");
  }

  std::string path;
  std::int64_t bytes = 0;
  void* memory = nullptr;
  TokenType type = TokenType::U16;
  std::int64_t begin = 0;  // of the tokens, in bytes
  std::int64_t count = 0;
};

TokenFile::TokenFile(const std::string& path) {
  auto mapping = std::make_shared<Mapping>(path);
  mapping->read_header();
  mapping_ = std::move(mapping);
}

TokenFile::TokenFile(const std::string& path, TokenType type) {
  auto mapping = std::make_shared<Mapping>(path);
  mapping->take_raw(type);
  mapping_ = std::move(mapping);
}

std::int64_t TokenFile::size() const { return mapping_->count; }
TokenType TokenFile::type() const { return mapping_->type; }

namespace {

template <class Token>
void widen(const char* from, std::int64_t count, std::int64_t* into) {
  for (std::int64_t k = 0; k < count; ++k) {
    Token token = 0;
    std::memcpy(&token, from + k * static_cast<std::int64_t>(sizeof token), sizeof token);
    into[k] = token;
  }
}

}  // namespace

at::Tensor TokenFile::tokens(std::int64_t begin, std::int64_t count) const {
  if (begin < 0 || count < 0 || begin > size() || count > size() - begin) {
    throw UsageError("a token file does not have these tokens")
        .fact("file", in_quotes(mapping_->path))
        .fact("asked", std::to_string(count) + " from " + std::to_string(begin) + " on")
        .fact("size", std::to_string(size()))
        .hint("ask for tokens that are there");
  }
  at::Tensor result = at::empty({count}, at::kLong);
  if (count == 0) return result;
  const char* first =
      static_cast<const char*>(mapping_->memory) + mapping_->begin + begin * bytes_of(type());
  auto* into = result.mutable_data_ptr<std::int64_t>();
  switch (type()) {
    case TokenType::U16:
      widen<std::uint16_t>(first, count, into);
      break;
    case TokenType::U32:
      widen<std::uint32_t>(first, count, into);
      break;
  }
  return result;
}

namespace {

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

// Whether all was written, the closing included.
bool write_all(const std::string& path, const Header& header, const at::Tensor& dense) {
  File file(std::fopen(path.c_str(), "wb"), &std::fclose);
  if (!file || std::fwrite(&header, sizeof header, 1, file.get()) != 1) return false;
  const std::size_t bytes = dense.nbytes();
  if (bytes > 0 && std::fwrite(dense.const_data_ptr(), 1, bytes, file.get()) != bytes) return false;
  return std::fclose(file.release()) == 0;
}

}  // namespace

void write_token_file(const std::string& path, const at::Tensor& tokens, TokenType type) {
  if (!at::isIntegralType(tokens.scalar_type(), /*includeBool=*/false)) {
    throw UsageError("tokens are integers")
        .fact("dtype", c10::toString(tokens.scalar_type()))
        .hint("convert them first");
  }
  const at::Tensor all = tokens.to(at::kLong).contiguous();
  const auto most = static_cast<std::int64_t>(greatest(type));
  if (all.numel() > 0 &&
      (all.min().item<std::int64_t>() < 0 || all.max().item<std::int64_t>() > most)) {
    throw UsageError("a token does not fit its type")
        .fact("tokens", std::to_string(all.min().item<std::int64_t>()) + " ... " +
                            std::to_string(all.max().item<std::int64_t>()))
        .fact("type", "0 ... " + std::to_string(most))
        .hint("use TokenType::U32, or a smaller vocabulary");
  }
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.version = kVersion;
  header.token_bytes = static_cast<std::uint32_t>(bytes_of(type));
  header.count = static_cast<std::uint64_t>(all.numel());
  // the low bytes of two's complement are the unsigned number
  const at::Tensor narrow = all.to(type == TokenType::U16 ? at::kShort : at::kInt);
  const std::string beside = path + ".part";
  if (write_all(beside, header, narrow) && std::rename(beside.c_str(), path.c_str()) == 0) return;
  const std::string why = std::strerror(errno);
  std::remove(beside.c_str());
  throw UsageError("a token file cannot be written")
      .fact("file", in_quotes(path))
      .fact("why", why)
      .hint("check the path, its permissions and the space on the disk");
}

}  // namespace tegula
