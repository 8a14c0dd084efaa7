// A file of tokens, mapped into memory: ranks read what they need of it, the rest stays on disk.
//
//   write_token_file("train.tokens", ids, TokenType::U16);
//   const TokenFile file("train.tokens");
//   at::Tensor some = file.tokens(1000, 129);          // int64, a copy
//
// The file: the 8 bytes "tegula-t", then little-endian the version (u32, 1), the bytes of a token
// (u32, 2 or 4) and the number of tokens (u64), then the tokens, little-endian unsigned. Raw files,
// tokens and nothing else as other programs write them, are read if their type is given.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>

namespace tegula {

enum class TokenType : std::uint8_t { U16, U32 };
std::int64_t bytes_of(TokenType type);

// A handle; copies share the mapping. Any thread may read. The file must not become shorter while
// it is open: reading what is gone ends the process (SIGBUS).
class TokenFile {
 public:
  // UsageError: no file that can be read, no header or one of another version, a type that does not
  // exist, a length that is not what the header says (cut off, or forged).
  explicit TokenFile(const std::string& path);
  // A raw file. UsageError: no file that can be read, a length that is no multiple of a token.
  TokenFile(const std::string& path, TokenType type);

  std::int64_t size() const;  // in tokens
  TokenType type() const;
  // `count` tokens from `begin` on as int64, copied. UsageError if they are not all in the file.
  at::Tensor tokens(std::int64_t begin, std::int64_t count) const;

 private:
  struct Mapping;
  std::shared_ptr<const Mapping> mapping_;
};

// Writes integers of any type and shape, row by row; what stood there before is replaced when all
// is written. UsageError: tokens that the type cannot hold, a file that cannot be written.
void write_token_file(const std::string& path, const at::Tensor& tokens, TokenType type);

}  // namespace tegula
