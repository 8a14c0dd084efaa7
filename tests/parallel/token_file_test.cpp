// Tokens come back as they were written, and files that lie are refused.
#include "tegula/parallel/token_file.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>

#include "tegula/comm/comm_log.h"
#include "tegula/parallel/token_sampler.h"
#include "tests/tensor/as_plain.h"

namespace tegula {
namespace token_file_test {

// A path that is free again at the end.
struct Path {
  Path() : text(testing::TempDir() + "tegula-tokens-" + std::to_string(::getpid())) {}
  ~Path() { std::remove(text.c_str()); }
  std::string text;
};

std::string bytes_in(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void put(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

TEST(TokenFile, GivesBackWhatWasWritten) {
  const Path path;
  for (const auto& [type, most] : {std::pair(TokenType::U16, std::int64_t{65535}),
                                   std::pair(TokenType::U32, std::int64_t{4294967295})}) {
    const at::Tensor tokens = at::tensor({std::int64_t{0}, std::int64_t{1}, most, most - 1});
    write_token_file(path.text, tokens, type);
    const TokenFile file(path.text);
    EXPECT_EQ(file.size(), 4);
    EXPECT_EQ(file.type(), type);
    EXPECT_EQ(difference(file.tokens(0, 4), tokens), "");
    EXPECT_EQ(difference(file.tokens(1, 2), tokens.narrow(0, 1, 2)), "");
    EXPECT_EQ(file.tokens(4, 0).numel(), 0);
    const TokenFile raw(path.text, type);  // the header is 24 bytes of tokens, then
    EXPECT_EQ(difference(raw.tokens(24 / bytes_of(type), 4), tokens), "");
  }
  write_token_file(path.text, at::empty({0}, at::kInt), TokenType::U16);
  EXPECT_EQ(TokenFile(path.text).size(), 0);
}

TEST(TokenFile, HasTheFormThatItsHeaderDocuments) {
  const Path path;
  write_token_file(path.text, at::tensor({258, 7}, at::kInt), TokenType::U16);
  EXPECT_EQ(bytes_in(path.text), std::string("tegula-t"
                                             "\1\0\0\0"
                                             "\2\0\0\0"
                                             "\2\0\0\0\0\0\0\0"
                                             "\2\1\7\0",
                                             28));
}

TEST(TokenFile, RefusesFilesThatLie) {
  const Path path;
  write_token_file(path.text, at::arange(5), TokenType::U32);
  const std::string right = bytes_in(path.text);
  const auto refusal = [&](const std::string& bytes) {
    put(path.text, bytes);
    return error_of([&] { TokenFile{path.text}; });
  };
  const auto with = [&](std::size_t at, const std::string& bytes) {
    std::string changed = right;
    return changed.replace(at, bytes.size(), bytes);
  };
  EXPECT_TRUE(contains(refusal(""), "too short for a header"));
  EXPECT_TRUE(contains(refusal(right.substr(0, 20)), "too short for a header"));
  EXPECT_TRUE(contains(refusal(with(0, "x")), "does not begin as a token file does"));
  EXPECT_TRUE(contains(refusal(with(8, "\2")), "version 2"));
  EXPECT_TRUE(contains(refusal(with(12, std::string("\0", 1))), "tokens of 0 bytes"));
  EXPECT_TRUE(contains(refusal(right.substr(0, 40)), "its header says 5 tokens, but 16 bytes"));
  EXPECT_TRUE(contains(refusal(right + "x"), "but 21 bytes"));
  // counts whose size in bytes would wrap around to the right one
  EXPECT_TRUE(contains(refusal(with(23, "\x40")), "its header says"));
  EXPECT_TRUE(contains(refusal(with(16, std::string(8, '\xff'))), "its header says"));
  put(path.text, "abc");
  EXPECT_TRUE(contains(error_of([&] { TokenFile(path.text, TokenType::U16); }), "no whole number"));
  EXPECT_TRUE(contains(error_of([&] { TokenFile("/no/such"); }), "cannot be read"));
  EXPECT_TRUE(contains(error_of([&] { TokenFile("/"); }), "no regular file"));
}

TEST(TokenFile, RefusesTokensThatAreNotThere) {
  const Path path;
  write_token_file(path.text, at::arange(5), TokenType::U16);
  const TokenFile file(path.text);
  const std::int64_t huge = std::numeric_limits<std::int64_t>::max();
  for (const auto& [begin, count] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {0, 6}, {6, 0}, {-1, 2}, {2, -1}, {3, huge}, {huge, 1}}) {
    EXPECT_TRUE(contains(error_of([&] { file.tokens(begin, count); }), "does not have these"));
  }
}

TEST(TokenFile, IsNotWrittenWithTokensThatDoNotFit) {
  const Path path;
  const auto refusal = [&](const at::Tensor& tokens, TokenType type) {
    return error_of([&] { write_token_file(path.text, tokens, type); });
  };
  EXPECT_TRUE(contains(refusal(at::tensor({65536}), TokenType::U16), "does not fit"));
  EXPECT_TRUE(contains(refusal(at::tensor({-1}), TokenType::U32), "does not fit"));
  EXPECT_TRUE(contains(refusal(at::tensor({0.5}), TokenType::U32), "tokens are integers"));
  EXPECT_FALSE(std::filesystem::exists(path.text));
  EXPECT_TRUE(
      contains(error_of([] { write_token_file("/no/such", at::arange(2), TokenType::U16); }),
               "cannot be written"));
}

TEST(TokenSampler, GivesBatchesOfSequencesAsDTensors) {
  const Path path;
  const at::Tensor tokens = at::arange(100, 135);  // 34 inputs: 8 sequences of 4, and two are left
  write_token_file(path.text, tokens, TokenType::U16);
  const SamplerOptions options{.batch = 3, .seed = 5};
  DistributedSampler order(8, options);
  std::vector<at::Tensor> wanted;
  for (int step = 0; step < 4; ++step) {
    std::vector<at::Tensor> rows;
    for (const std::int64_t one : order.next().samples) {
      rows.push_back(at::arange(100 + 4 * one, 104 + 4 * one));
    }
    wanted.push_back(at::stack(rows));
  }
  for (const int ranks : {1, 2, 4}) {
    run_impatient(ranks, [&](World& world) {
      const DeviceMesh mesh = world.mesh({{"dp", ranks}, {"tp", 1}});
      TokenSampler sampler(TokenFile(path.text), 4, mesh, options);
      EXPECT_EQ(sampler.sequences(), 8);
      for (const at::Tensor& inputs : wanted) {
        const CommLog log(world);
        const TokenBatch batch = sampler.next();
        EXPECT_TRUE(log.empty());
        EXPECT_EQ(to_string(placements_of(batch.inputs)), "[S(0), R]");
        EXPECT_EQ(difference(full_tensor(batch.inputs), inputs), "");
        EXPECT_EQ(difference(full_tensor(batch.targets), inputs + 1), "");
      }
    });
  }
}

TEST(TokenSampler, RefusesAFileWithoutASequence) {
  const Path path;
  write_token_file(path.text, at::arange(4), TokenType::U16);
  run_impatient(1, [&](World& world) {
    const DeviceMesh mesh = world.mesh({{"dp", 1}});
    for (const std::int64_t length : {0, 4}) {
      EXPECT_TRUE(contains(error_of([&] { TokenSampler(TokenFile(path.text), length, mesh, {}); }),
                           "no sequence"));
    }
  });
}

}  // namespace token_file_test
}  // namespace tegula
