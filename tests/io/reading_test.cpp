// What a load reads: each byte once, by one rank, many tensors in one read.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>

#include "tegula/io/checkpoint.h"
#include "tests/io/memory_files.h"
#include "tests/tensor/as_plain.h"

namespace tegula {
namespace reading_test {

constexpr int kRanks = 4;
constexpr std::uint64_t kChunk = 4096;

// Reads of the data of a checkpoint, by all ranks.
class CountedReads {
 public:
  explicit CountedReads(MemoryFiles& files) : files_(files) {
    files_.before = [this](const FileOperation& operation) {
      if (operation.kind != FileOperation::Kind::Read) return;
      const std::scoped_lock lock(mutex_);
      // headers, of a chunk, are read by rank 0 for all
      if (operation.offset >= kChunk) reads_.push_back({operation.offset, operation.size});
    };
  }
  ~CountedReads() { files_.before = nullptr; }
  CountedReads(const CountedReads&) = delete;
  CountedReads& operator=(const CountedReads&) = delete;

  std::size_t count() const { return reads_.size(); }
  std::uint64_t bytes() const {
    std::uint64_t sum = 0;
    for (const Read& read : reads_) sum += read.size;
    return sum;
  }
  bool overlap() {
    std::ranges::sort(reads_, {}, &Read::begin);
    return std::ranges::adjacent_find(reads_, [](const Read& a, const Read& b) {
             return a.begin + a.size > b.begin;
           }) != reads_.end();
  }

 private:
  struct Read {
    std::uint64_t begin = 0;
    std::uint64_t size = 0;
  };
  MemoryFiles& files_;
  std::mutex mutex_;
  std::vector<Read> reads_;
};

// So many tensors of 4 KiB, made by a function of the mesh.
template <class Make>
void add_many(State& state, int count, double value, Make make) {
  for (int k = 0; k < count; ++k) {
    state.add("x" + std::to_string(1000 + k), make(at::full({16, 32}, value + k, at::kDouble)));
  }
}

TEST(Reading, OfPlainTensorsIsDoneOnceForAllRanks) {
  const auto files = std::make_shared<MemoryFiles>();
  constexpr int kTensors = 4096;  // 16 MiB: two stripes
  const auto plain = [](const at::Tensor& tensor) { return tensor.clone(); };
  run_impatient(1, [&](World& world) {
    State state(world);
    add_many(state, kTensors, 1, plain);
    save("run", state, {.chunk_bytes = 64 * kChunk, .files = files});
  });
  CountedReads reads(*files);
  run_impatient(kRanks, [&](World& world) {
    State state(world);
    std::vector<at::Tensor> tensors;
    add_many(state, kTensors, 0, [&](const at::Tensor& tensor) {
      tensors.push_back(tensor);
      return tensor;
    });
    load("run", state, {.files = files});
    for (int k = 0; k < kTensors; ++k) {
      ASSERT_TRUE(tensors[static_cast<std::size_t>(k)].eq(k + 1).all().item<bool>()) << k;
    }
  });
  EXPECT_FALSE(reads.overlap());
  EXPECT_LE(reads.bytes(), std::uint64_t{kTensors} * 4096 + 64 * kChunk);  // the header shares one
}

TEST(Reading, OfPlainTensorsThatSomeRanksLackIsDoneByTheOthers) {
  const auto files = std::make_shared<MemoryFiles>();
  run_impatient(2, [&](World& world) {
    State saved(world);
    saved.add("all", at::ones({5})).add("some", at::full({3}, 2));
    save("run", saved, {.files = files});
    const at::Tensor all = at::zeros({5}), some = at::zeros({3}, at::kLong);
    State state(world);
    state.add("all", all);
    if (world.rank() == 1) state.add("some", some);
    load("run", state, {.files = files});
    EXPECT_TRUE(all.eq(1).all().item<bool>());
    EXPECT_EQ(some.sum().item<double>(), world.rank() == 1 ? 6 : 0);
  });
}

TEST(Reading, OfManySlicesTakesATenthOfTheReadsOrLess) {
  const auto files = std::make_shared<MemoryFiles>();
  constexpr int kTensors = 500;
  const auto add_columns = [](State& state, const World& world, double value) {
    const DeviceMesh mesh = world.mesh({{"tp", world.size()}});
    add_many(state, kTensors, value, [&](const at::Tensor& tensor) {
      return distribute_tensor(tensor, mesh, {Shard(1)}, kSameOnAllRanks);
    });
  };
  run_impatient(1, [&](World& world) {
    State state(world);
    add_columns(state, world, 1);
    save("run", state, {.files = files});
  });
  CountedReads reads(*files);
  run_impatient(kRanks, [&](World& world) {
    State state(world);
    add_columns(state, world, 0);
    load("run", state, {.files = files});
  });
  EXPECT_FALSE(reads.overlap());
  constexpr std::size_t kSlices = std::size_t{kTensors} * kRanks;
  EXPECT_LE(10 * reads.count(), kSlices) << reads.count() << " reads";
}

}  // namespace reading_test
}  // namespace tegula
