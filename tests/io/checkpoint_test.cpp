// Saving and loading a state: what comes back, what is refused, what an error leaves.
#include "tegula/io/checkpoint.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

#include "tegula/base/error.h"
#include "tegula/files/checkpoint_folder.h"
#include "tegula/io/safetensors.h"
#include "tegula/random/random.h"
#include "tegula/tensor/factories.h"
#include "tests/io/memory_files.h"
#include "tests/io/scratch_folder.h"
#include "tests/tensor/as_plain.h"

namespace tegula {
namespace checkpoint_test {

using Files = std::shared_ptr<MemoryFiles>;

// A few tensors of every kind, and values.
struct Things {
  Things(const World& world, const DeviceMesh& mesh, std::uint64_t seed) : state(world) {
    const Placements whole(mesh.ndim(), Replicate());
    Placements rows = whole, columns = whole;
    rows.back() = Shard(0);
    columns.back() = Shard(1);
    a = distribute_tensor(numbers({5, 3}, seed), mesh, rows, kSameOnAllRanks);
    b = distribute_tensor(numbers({4, 7}, seed + 1), mesh, columns, kSameOnAllRanks);
    c = distribute_tensor(numbers({}, seed + 2), mesh, whole, kSameOnAllRanks);
    plain = numbers({2, 2}, seed + 3);
    step = static_cast<std::int64_t>(seed);
    rate = 1.0 / static_cast<double>(seed + 1);
    note = "seed " + std::to_string(seed);
    state.add("a", a).add("b", b).add("c", c).add("plain", plain);
    state.add("step", step).add("rate", rate).add("note", note);
  }
  std::string difference_to(const Things& other) const {
    return difference(full_tensor(a), full_tensor(other.a), 0) +
           difference(full_tensor(b), full_tensor(other.b), 0) +
           difference(full_tensor(c), full_tensor(other.c), 0) + difference(plain, other.plain, 0) +
           (step == other.step ? "" : "step ") + (rate == other.rate ? "" : "rate ") +
           (note == other.note ? "" : "note ");
  }
  at::Tensor a, b, c, plain;
  std::int64_t step;
  double rate;
  std::string note;
  State state;
};

DeviceMesh line_of_all(const World& world) { return world.mesh({{"tp", world.size()}}); }

TEST(Checkpoint, ComesBackOnAnotherNumberOfRanks) {
  const ScratchFolder scratch;
  const std::string folder = scratch.path + "/new/run";
  run_impatient(3, [&](World& world) {
    const Things things(world, line_of_all(world), 10);
    save(folder, things.state, {.step = 4});
  });
  EXPECT_EQ(latest(folder), 4);
  for (const int ranks : {1, 2, 4}) {
    run_impatient(ranks, [&](World& world) {
      const DeviceMesh mesh = ranks == 4 ? world.mesh({{"dp", 2}, {"tp", 2}}) : line_of_all(world);
      Things things(world, mesh, 90);
      const LoadReport report = load(folder, things.state);
      EXPECT_EQ(report.step, 4);
      EXPECT_EQ(things.difference_to(Things(world, mesh, 10)), "");
    });
  }
  // files that anyone reads
  const SafetensorsFile file(folder + "/step-4/state-00001-of-00001.safetensors");
  EXPECT_EQ(difference(file.tensor("b"), numbers({4, 7}, 11), 0), "");
  EXPECT_EQ(difference(file.tensor("c"), numbers({}, 12), 0), "");
}

TEST(Checkpoint, KeepsTheLastOnesAndFindsTheNewestWholeOne) {
  const auto files = std::make_shared<MemoryFiles>();
  run_impatient(2, [&](World& world) {
    const Things things(world, line_of_all(world), 1);
    for (const std::int64_t step : {1, 5, 20, 100}) {
      save("run", things.state, {.step = step, .keep = 2, .files = files});
    }
  });
  EXPECT_EQ(inner::steps_in(*files, "run"), (std::vector<std::int64_t>{20, 100}));
  files->remove_all("run/step-100/state-00001-of-00001.safetensors");
  EXPECT_EQ(inner::latest_step(*files, "run"), 20);
  EXPECT_EQ(latest("no such folder"), std::nullopt);
}

TEST(Checkpoint, SpreadsTensorsOverFiles) {
  const auto files = std::make_shared<MemoryFiles>();
  run_impatient(2, [&](World& world) {
    const Things things(world, line_of_all(world), 1);
    save("run", things.state, {.most_file_bytes = 100, .chunk_bytes = 64, .files = files});
    Things others(world, line_of_all(world), 2);
    load("run", others.state, {.files = files});
    EXPECT_EQ(others.difference_to(things), "");
  });
  EXPECT_TRUE(files->exists("run/step-0/state-00003-of-00003.safetensors"));
}

TEST(Checkpoint, HasTheReductionsThatTensorsOweDone) {
  const auto files = std::make_shared<MemoryFiles>();
  run_impatient(2, [&](World& world) {
    const DeviceMesh mesh = line_of_all(world);
    const at::Tensor mine = at::full({3, 2}, world.rank() + 1.0, at::kDouble);
    const at::Tensor owed = from_local(mine, mesh, {Partial()});
    State state(world);
    save("run", state.add("x", owed), {.files = files});
    at::Tensor x = zeros({3, 2}, mesh, {Shard(1)}, at::kDouble);
    State other(world);
    load("run", other.add("x", x), {.files = files});
    EXPECT_EQ(difference(full_tensor(x), at::full({3, 2}, 3.0, at::kDouble), 0), "");
    State third(world);
    const std::string error =
        error_of([&] { load("run", third.add("x", owed), {.files = files}); });
    EXPECT_TRUE(contains(error, "partial x (f64[3, 2] on (tp=2) as [P(sum)])")) << error;
  });
}

TEST(Checkpoint, OfTensorsThatStandOnSomeRanksOnlyIsWhole) {
  const auto files = std::make_shared<MemoryFiles>();
  run_impatient(4, [&](World& world) {
    const std::int64_t stage = world.rank() / 2;
    const DeviceMesh mesh = world.mesh({{"tp", 2}}, {2 * stage, 2 * stage + 1});
    State state(world);
    const std::string name = "layers." + std::to_string(stage);
    state.add(name, distribute_tensor(numbers({3, 2}, static_cast<std::uint64_t>(stage)), mesh,
                                      {Shard(1)}, kSameOnAllRanks));
    save("run", state, {.files = files});
  });
  run_impatient(1, [&](World& world) {
    at::Tensor first = at::zeros({3, 2}, at::kDouble), second = first.clone();
    State state(world);
    load("run", state.add("layers.0", first).add("layers.1", second), {.files = files});
    EXPECT_EQ(difference(first, numbers({3, 2}, 0), 0), "");
    EXPECT_EQ(difference(second, numbers({3, 2}, 1), 0), "");
  });
}

TEST(Checkpoint, KeepsAValueOfEachRankUnderItsPlaceInTheMesh) {
  const auto files = std::make_shared<MemoryFiles>();
  const auto body = [&](World& world, std::int64_t& position, State& state) {
    const DeviceMesh mesh = world.mesh({{"dp", 2}, {"tp", 2}});
    state.add_per_rank(
        "position", mesh, [&position] { return position; },
        [&position](const StateValue& value) { position = std::get<std::int64_t>(value); });
  };
  run_impatient(4, [&](World& world) {
    std::int64_t position = 100 + world.rank();
    State state(world);
    body(world, position, state);
    save("run", state, {.files = files});
    position = 0;
    load("run", state, {.files = files});
    EXPECT_EQ(position, 100 + world.rank());
  });
  const inner::Contents contents =
      inner::parse_contents(inner::contents_bytes(*files, "run/step-0"));
  EXPECT_EQ(std::get<std::int64_t>(contents.manifest.values.at("position@dp=1,tp=0")), 102);
}

TEST(Checkpoint, ContinuesRandomNumbers) {
  const auto files = std::make_shared<MemoryFiles>();
  at::Tensor drawn;
  run_impatient(2, [&](World& world) {
    manual_seed(world, 42);
    const DeviceMesh mesh = line_of_all(world);
    rand({5}, mesh, {Shard(0)});
    State state(world);
    save("run", state.add_random(), {.files = files});
    const at::Tensor next = full_tensor(rand({5}, mesh, {Shard(0)}));
    if (world.rank() == 0) drawn = next;
  });
  run_impatient(3, [&](World& world) {
    State state(world);
    load("run", state.add_random(), {.files = files});
    const at::Tensor next = full_tensor(rand({5}, line_of_all(world), {Shard(0)}));
    EXPECT_EQ(difference(next, drawn, 0), "");
  });
}

TEST(Checkpoint, ThatDoesNotFitIsReportedAtOnceAndChangesNothing) {
  const auto files = std::make_shared<MemoryFiles>();
  run_impatient(2, [&](World& world) {
    const DeviceMesh mesh = line_of_all(world);
    const Things things(world, mesh, 1);
    save("run", things.state, {.files = files});
    at::Tensor a = zeros({5, 4}, mesh, {Shard(0)}, at::kDouble);
    at::Tensor b = zeros({4, 7}, mesh, {Shard(0)}, at::kFloat);
    at::Tensor other = zeros({2}, mesh, {Shard(0)}, at::kFloat);
    at::Tensor c = zeros({}, mesh, {Replicate()}, at::kDouble);
    double step = 0, rate = 0;
    State state(world);
    state.add("a", a).add("b", b).add("c", c).add("step", step).add("rate", rate);
    if (world.rank() == 1) state.add("other", other);  // what one rank lacks all report
    const std::string error = error_of([&] { load("run", state, {.files = files}); });
    EXPECT_EQ(error,
              "tegula: a checkpoint does not fit the state\n"
              "  path    run/step-0\n"
              "  dtype   b (f64[4, 7] in the checkpoint, f32[4, 7] here)\n"
              "  extra   note, plain\n"
              "  kind    step (an integer in the checkpoint, a number here)\n"
              "  missing other\n"
              "  shape   a (f64[5, 3] in the checkpoint, f64[5, 4] here)\n"
              "  hint    strict = false leaves what is missing as it is; renames, only and cast "
              "help with others");
    EXPECT_EQ(full_tensor(c).item<double>(), 0);
    EXPECT_EQ(rate, 0);
  });
}

TEST(Checkpoint, IsLoadedInPartUnderOtherNamesAndTypesOnRequest) {
  const auto files = std::make_shared<MemoryFiles>();
  run_impatient(2, [&](World& world) {
    const DeviceMesh mesh = line_of_all(world);
    const Things things(world, mesh, 1);
    save("run", things.state, {.files = files});
    at::Tensor b = zeros({4, 7}, mesh, {Shard(0)}, at::kFloat);
    at::Tensor c = at::ones({3});
    State state(world);
    state.add("new.b", b).add("c", c);
    LoadOptions options{
        .only = {"new.**"}, .renames = {{"b", "new.b"}}, .cast = true, .files = files};
    load("run", state, options);
    EXPECT_EQ(difference(full_tensor(b), numbers({4, 7}, 2).to(at::kFloat), 0), "");
    EXPECT_EQ(difference(c, at::ones({3}), 0), "");

    at::Tensor more = at::ones({3});
    State loose(world);
    loose.add("b", zeros({4, 7}, mesh, {Shard(0)}, at::kDouble)).add("more", more);
    const LoadReport report = load("run", loose, {.strict = false, .files = files});
    EXPECT_EQ(report.missing, (std::vector<std::string>{"more"}));
    EXPECT_EQ(report.extra, (std::vector<std::string>{"a", "c", "note", "plain", "rate", "step"}));
  });
}

TEST(Checkpoint, OfPlainTensorsThatDifferAmongRanksIsRefused) {
  const auto files = std::make_shared<MemoryFiles>();
  run_impatient(2, [&](World& world) {
    State state(world);
    state.add("x", at::full({2}, world.rank()));
    std::string error = error_of([&] { save("run", state, {.files = files}); });
    EXPECT_TRUE(contains(error, "ranks have different things under one name of a state")) << error;
    EXPECT_TRUE(contains(error, "rank 1  i64[2], plain, checksum")) << error;
    State values(world);
    std::int64_t value = world.rank();
    error = error_of([&] { save("run", values.add("value", value), {.files = files}); });
    EXPECT_TRUE(contains(error, "rank 0  0\n  rank 1  1")) << error;
  });
  EXPECT_FALSE(files->exists("run"));
}

TEST(Checkpoint, OfWhatFilesCannotHoldIsRefused) {
  run_impatient(2, [](World& world) {
    const auto refusal = [&](const at::Tensor& tensor) {
      State state(world);
      return error_of(
          [&] { save("run", state.add("x", tensor), {.files = std::make_shared<MemoryFiles>()}); });
    };
    EXPECT_TRUE(contains(refusal(at::zeros({2}, at::kFloat).to_sparse()), "is      sparse"));
    EXPECT_TRUE(contains(refusal(at::zeros({2}, at::kMeta)), "on the meta device"));
    State twice(world);
    twice.add("x", at::ones({1})).add("x", at::ones({1}));
    EXPECT_TRUE(
        contains(error_of([&] { save("run", twice); }), "two things of a state have one name"));
  });
}

TEST(Checkpoint, OfAStepThatIsThereIsRefused) {
  const auto files = std::make_shared<MemoryFiles>();
  run_impatient(2, [&](World& world) {
    const Things things(world, line_of_all(world), 1);
    save("run", things.state, {.step = 3, .files = files});
    const std::string error =
        error_of([&] { save("run", things.state, {.step = 3, .files = files}); });
    EXPECT_TRUE(contains(error, "there is a checkpoint of this step already")) << error;
  });
  EXPECT_EQ(inner::latest_step(*files, "run"), 3);
}

TEST(Checkpoint, OfTwoJobsToOneFolderIsRefusedForTheSecond) {
  const ScratchFolder scratch;
  const std::unique_ptr<inner::FileLock> other =
      inner::lock_folder(*inner::disk_files(), scratch.path);
  run_impatient(2, [&](World& world) {
    const Things things(world, line_of_all(world), 1);
    const std::string error = error_of([&] { save(scratch.path, things.state); });
    EXPECT_TRUE(contains(error, "another job is saving to this folder")) << error;
  });
  EXPECT_EQ(latest(scratch.path), std::nullopt);
}

// Every operation fails once, on whichever rank makes it.
TEST(Checkpoint, ThatFailsAtAnyOperationThrowsOnAllRanksAndLosesNothing) {
  const auto count_of = [](const Files& files) { return files->log().size(); };
  const auto files = std::make_shared<MemoryFiles>();
  const auto save_step = [&](World& world, std::int64_t step) {
    const Things things(world, line_of_all(world), static_cast<std::uint64_t>(step));
    save("run", things.state, {.step = step, .files = files});
  };
  run_impatient(2, [&](World& world) { save_step(world, 1); });
  const std::size_t operations = count_of(files);
  for (std::size_t failing = 0; failing < operations; ++failing) {
    std::atomic<std::size_t> made = 0;
    files->before = [&](const FileOperation& operation) {
      if (made++ == failing) {
        throw UsageError("cannot write to a file: No space left on device")
            .fact("path", operation.path);
      }
    };
    std::atomic<int> threw = 0;
    run_impatient(2, [&](World& world) {
      const std::string error = error_of([&] { save_step(world, 2); });
      if (contains(error, "No space left on device")) ++threw;
    });
    files->before = nullptr;
    // the folder is there already, so fewer operations are made than the first time
    EXPECT_EQ(threw, made > failing ? 2 : 0) << failing;
    files->remove_all("run/step-2");  // all was done, or all but the last sync
    EXPECT_EQ(inner::latest_step(*files, "run"), 1);
  }
  run_impatient(2, [&](World& world) { save_step(world, 2); });
  EXPECT_EQ(files->names_in("run"), (std::vector<std::string>{"step-1", "step-2"}));
}

TEST(Checkpoint, OfAWorldThatARankLeavesIsNotThere) {
  const auto files = std::make_shared<MemoryFiles>();
  const auto save_step = [&](World& world, std::int64_t step) {
    const Things things(world, line_of_all(world), 1);
    if (step == 2 && world.rank() == 1) throw std::runtime_error("gone");
    save("run", things.state, {.step = step, .files = files});
  };
  run_impatient(2, [&](World& world) { save_step(world, 1); });
  EXPECT_ANY_THROW(run_ranks(2, [&](World& world) { save_step(world, 2); }, impatient()));
  EXPECT_EQ(inner::latest_step(*files, "run"), 1);
  run_impatient(3, [&](World& world) { save_step(world, 3); });
  EXPECT_EQ(files->names_in("run"), (std::vector<std::string>{"step-1", "step-3"}));
}

TEST(Checkpoint, ThatIsDamagedIsRefusedOnAllRanks) {
  const auto files = std::make_shared<MemoryFiles>();
  run_impatient(2, [&](World& world) {
    const Things things(world, line_of_all(world), 1);
    save("run", things.state, {.chunk_bytes = 64, .files = files});
  });
  const std::string path = "run/step-0/state-00001-of-00001.safetensors";
  files->damage(path, files->contents().at(path).size() - 1);
  run_impatient(2, [&](World& world) {
    Things things(world, line_of_all(world), 2);
    const std::string error = error_of([&] { load("run", things.state, {.files = files}); });
    EXPECT_TRUE(contains(error, "a file is damaged: the checksum of a chunk is another")) << error;
    EXPECT_EQ(things.step, 2);
    load("run", things.state, {.verify = false, .files = files});
    EXPECT_EQ(things.step, 1);
  });
}

TEST(Checkpoint, ThatIsNotThereIsRefused) {
  run_impatient(2, [](World& world) {
    State state(world);
    EXPECT_TRUE(contains(error_of([&] { load("no such folder", state); }),
                         "there is no whole checkpoint in this folder"));
    EXPECT_TRUE(contains(error_of([&] { load("no such folder", state, {.step = 3}); }),
                         "cannot open a file: No such file or directory"));
    EXPECT_TRUE(
        contains(error_of([&] { save("run", state, {.step = -1}); }), "cannot be negative"));
    EXPECT_TRUE(contains(error_of([&] { save("/dev/null/run", state); }), "Not a directory"));
  });
}

// What a disk far away makes of reads: they are counted.
TEST(Checkpoint, IsReadInFewReads) {
  const auto files = std::make_shared<MemoryFiles>();
  constexpr int kTensors = 200;
  const auto fill = [&](World& world, State& state) {
    for (int k = 0; k < kTensors; ++k) {
      state.add("x" + std::to_string(k), zeros({6, 4}, line_of_all(world), {Shard(1)}));
    }
  };
  std::atomic<int> reads = 0;
  run_impatient(2, [&](World& world) {
    State state(world);
    fill(world, state);
    save("run", state, {.files = files});
    world.group().barrier();
    if (world.rank() == 0) {
      files->before = [&](const FileOperation& operation) {
        if (operation.kind == FileOperation::Kind::Read) ++reads;
      };
    }
    world.group().barrier();
    load("run", state, {.files = files});
  });
  EXPECT_LE(reads * 10, kTensors);
}

}  // namespace checkpoint_test
}  // namespace tegula
