// Messages that carry their shape, where they cannot be right. What they give is in suite.cpp.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <csignal>
#include <functional>
#include <string>

#include "tegula/base/error.h"
#include "tegula/comm/comm_log.h"
#include "tegula/comm/tensor_head.h"
#include "tests/comm/ranks.h"

namespace tegula::inner {
namespace message_test {

using namespace std::chrono_literals;
using comm::TensorHead;

TEST(TensorHead, TellsWhatATensorIs) {
  const TensorHead head = comm::head_of(TensorMeta({2, 0, 3}, DType::BF16));
  EXPECT_EQ(to_string(comm::meta_in(head.memory())), "bf16[2, 0, 3]");
  EXPECT_EQ(to_string(comm::meta_in(comm::head_of(TensorMeta({}, DType::F32)).memory())), "f32[]");
  EXPECT_THROW(comm::head_of(TensorMeta(Shape(65, 1), DType::F32)), UsageError);
}

TEST(TensorHead, WhatCannotBeTrueIsRefused) {
  const auto why = [](const std::function<void(TensorHead&)>& spoil) -> std::string {
    TensorHead head = comm::head_of(TensorMeta({2, 3}, DType::F32));
    spoil(head);
    try {
      comm::meta_in(head.memory());
    } catch (const CommError& error) {
      return error.sentence();
    }
    return "nothing was thrown";
  };
  const std::string start = "a message came whose head cannot be true: ";
  EXPECT_EQ(why([](TensorHead& head) { head.mark = 7; }),
            start + "it does not begin as a head does");
  EXPECT_EQ(why([](TensorHead& head) { head.dims = 65; }), start + "it has 65 dims");
  EXPECT_EQ(why([](TensorHead& head) { head.dims = -1; }), start + "it has -1 dims");
  EXPECT_EQ(why([](TensorHead& head) { head.dtype = 99; }), start + "there is no dtype 99");
  EXPECT_EQ(why([](TensorHead& head) { head.bytes = 25; }),
            start + "f32[2, 3] does not have 25 bytes");
  const auto starts_so = [&](const std::string& text) { return text.substr(0, start.size()); };
  EXPECT_EQ(starts_so(why([](TensorHead& head) { head.sizes[0] = -2; })), start);
  EXPECT_EQ(starts_so(why([](TensorHead& head) {
              head.sizes[0] = std::int64_t{1} << 40;
              head.sizes[1] = std::int64_t{1} << 40;
            })),
            start);
  const std::byte little[3] = {};
  EXPECT_THROW(comm::meta_in(little), CommError);
}

TEST(MessageWithShape, APlainMessageDoesNotFit) {
  const std::vector<RankEnd> ends = run_processes(2, [](World& world) {
    const Group group = world.group();
    if (world.rank() == 0) {
      group.send(at::ones({3}), 1);
      group.recv_with_shape(1);
    } else {
      group.recv_with_shape(0);
    }
  });
  for (const RankEnd& end : ends) {
    EXPECT_EQ(end.exit_code, 1);
    for (const char* text :
         {"not what its receiver awaits", "send(f32[3], tag 0)", "recv_with_shape(tag 0)"}) {
      EXPECT_NE(end.error.find(text), std::string::npos) << end.error;
    }
  }
}

std::string sentence_thrown_by(const std::function<void()>& call) {
  try {
    call();
  } catch (const CommError& error) {
    return error.sentence();
  }
  return "nothing was thrown";
}

// What is no head, sent under the tag that such messages have there.
TEST(MessageWithShape, ABadHeadBreaksAGroupOverGloo) {
  run_ranks(2,
            [](World& world) {
              const Group group = world.group();
              if (world.rank() == 0) {
                const auto bytes = static_cast<std::int64_t>(sizeof(TensorHead));
                group.send(at::full({bytes}, 255, at::kByte), 1, 1 << 20);
              } else {
                const std::string want =
                    "a message came whose head cannot be true: it does not begin as a head does";
                for (int i = 0; i < 2; ++i) {
                  EXPECT_EQ(sentence_thrown_by([&] { group.recv_with_shape(0); }), want);
                }
              }
              world.group({0, 1}, {"end", "shm", std::nullopt}).barrier();
            },
            {"gloo", std::nullopt});
}

TEST(MessageWithShape, ASenderThatIsLateOrDiesIsAnError) {
  for (const int signal : {SIGSTOP, SIGKILL}) {
    const std::vector<RankEnd> ends = run_processes(
        2,
        [signal](World& world) {
          world.group().barrier();
          if (world.rank() == 1) raise(signal);
          const Pending pending = world.group().recv_with_shape_async(1);
          require(sentence_thrown_by([&] { pending.wait(); }).starts_with("rank 1"),
                  "no error of rank 1");
          world.group().recv_with_shape(1);
        },
        {"", 500ms}, 5);
    EXPECT_EQ(ends[0].exit_code, 1);
    EXPECT_NE(ends[0].error.find(signal == SIGKILL ? "rank 1 died" : "rank 1 did not come within"),
              std::string::npos)
        << ends[0].error;
  }
}

TEST(MessageWithShape, CallsThatCannotBeRightAreRefused) {
  run_ranks(2, [](World& world) {
    const Group group = world.group();
    EXPECT_THROW(group.recv_with_shape(world.rank()), UsageError);
    EXPECT_THROW(group.recv_with_shape(2), UsageError);
    EXPECT_THROW(group.recv_with_shape(1 - world.rank(), -1), UsageError);
    EXPECT_THROW(group.send_with_shape(at::ones({1}), 1 - world.rank(), 1 << 20), UsageError);
    EXPECT_THROW(group.send_with_shape(at::Tensor(), 1 - world.rank()), UsageError);
  });
  EXPECT_THROW(World::fake(2).group().recv_with_shape(1), UsageError);
  EXPECT_NO_THROW(World::fake(2).group().send_with_shape(at::ones({1}), 1));
}

TEST(MessageWithShape, TheLogTellsTheBytesThatCame) {
  run_ranks(2, [](World& world) {
    CommLog log(world);
    if (world.rank() == 0) {
      world.group().send_with_shape(at::ones({4, 2}), 1);
      EXPECT_EQ(log.to_string(), "send over world (2 ranks): 32 bytes");
    } else {
      world.group().recv_with_shape(0);
      EXPECT_EQ(log.to_string(), "recv over world (2 ranks): 32 bytes");
    }
  });
}

}  // namespace message_test
}  // namespace tegula::inner
