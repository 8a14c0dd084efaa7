// Saves in the background: what was there when they began, errors at the next call.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>

#include "tegula/base/error.h"
#include "tegula/files/checkpoint_folder.h"
#include "tegula/io/checkpoint.h"
#include "tests/io/memory_files.h"
#include "tests/tensor/as_plain.h"

namespace tegula {
namespace async_saver_test {

struct Numbers {
  explicit Numbers(const World& world, double number) : state(world) {
    const DeviceMesh mesh = world.mesh({{"dp", world.size()}});
    const at::Tensor all = at::full({6, 5}, number, at::kDouble);
    rows = distribute_tensor(all, mesh, {Shard(0)}, kSameOnAllRanks);
    columns = distribute_tensor(all, mesh, {Shard(1)}, kSameOnAllRanks);
    state.add("rows", rows).add("columns", columns);
  }
  void fill(double number) const {
    rows.fill_(number);
    columns.fill_(number);
  }
  bool are(double number) const {
    return full_tensor(rows).eq(number).all().item<bool>() &&
           full_tensor(columns).eq(number).all().item<bool>();
  }
  at::Tensor rows, columns;
  State state;
};

TEST(AsyncSaver, SavesWhatWasThereWhenItBegan) {
  for (const std::uint64_t most_copied :
       {std::uint64_t{1} << 30, std::uint64_t{130}, std::uint64_t{0}}) {
    const auto files = std::make_shared<MemoryFiles>();
    run_impatient(2, [&](World& world) {
      Numbers numbers(world, 1);
      AsyncSaver saver(most_copied);
      for (int step = 1; step <= 3; ++step) {
        numbers.fill(step);
        saver.save("run", numbers.state, {.step = step, .files = files});
        numbers.fill(-1);  // and communicate, as the saver does
        EXPECT_TRUE(numbers.are(-1));
      }
      saver.wait();
      for (int step = 1; step <= 3; ++step) {
        load("run", numbers.state, {.step = step, .files = files});
        EXPECT_TRUE(numbers.are(step)) << step;
      }
    });
  }
}

TEST(AsyncSaver, ThrowsAtTheNextCallWhatItMet) {
  const auto files = std::make_shared<MemoryFiles>();
  std::atomic<bool> is_full = false;
  files->before = [&](const FileOperation& operation) {
    const bool is_data = operation.kind == FileOperation::Kind::Write && operation.offset >= 4096;
    if (is_full && is_data) throw UsageError("cannot write to a file: No space left on device");
  };
  run_impatient(2, [&](World& world) {
    const Numbers numbers(world, 1);
    AsyncSaver saver;
    saver.save("run", numbers.state, {.step = 1, .files = files});
    saver.wait();
    world.group().barrier();
    is_full = true;
    world.group().barrier();
    saver.save("run", numbers.state, {.step = 2, .files = files});
    const std::string error =
        error_of([&] { saver.save("run", numbers.state, {.step = 3, .files = files}); });
    EXPECT_TRUE(contains(error, "No space left on device")) << error;
    world.group().barrier();
    is_full = false;
    world.group().barrier();
    saver.save("run", numbers.state, {.step = 4, .files = files});
    saver.wait();
  });
  EXPECT_EQ(inner::steps_in(*files, "run"), (std::vector<std::int64_t>{1, 4}));
}

}  // namespace async_saver_test
}  // namespace tegula
