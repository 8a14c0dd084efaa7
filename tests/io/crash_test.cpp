// A loss of power at any point of a save: the folder that it leaves loads as the old checkpoint or
// as the new one. What the disk has of writes, names and removals that were not synced yet is
// anybody's guess; the test guesses in five ways for every prefix of a save's operations.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tegula/base/error.h"
#include "tegula/files/checkpoint_folder.h"
#include "tegula/io/checkpoint.h"
#include "tests/io/memory_files.h"
#include "tests/placement/random.h"
#include "tests/tensor/as_plain.h"

namespace tegula {
namespace crash_test {

using Kind = FileOperation::Kind;
using Log = std::vector<FileOperation>;

enum class Guess {
  All,         // as after a kill: the system has all of it
  OnlySynced,  // nothing that was not synced
  NamesAlone,  // all names, but only synced bytes
  TornWrites,  // all names, and the first part of each write
  SomeNames,   // names by chance, and the first part of each write
};

std::string folder_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

bool is_of_names(const FileOperation& one) {
  return one.kind == Kind::MakeFolder || one.kind == Kind::Create || one.kind == Kind::Rename ||
         one.kind == Kind::Remove;
}

// Whether a sync behind it, before the crash, covers it: of the folder that has the name, or of the
// file by the same handle. What is made in a folder that is renamed later is found by its old path.
bool is_synced(const Log& log, std::size_t index, std::size_t end) {
  const FileOperation& one = log[index];
  for (std::size_t k = index + 1; k < end; ++k) {
    const FileOperation& later = log[k];
    if (is_of_names(one) && later.kind == Kind::SyncFolder && later.path == folder_of(one.path)) {
      return true;
    }
    if (!is_of_names(one) && later.kind == Kind::Sync && later.handle == one.handle) return true;
  }
  return false;
}

// What the disk has when the power goes after `end` operations of the log.
void lay_out(const Log& log, std::size_t end, Guess guess, Random& random, MemoryFiles& disk) {
  for (std::size_t k = 0; k < end; ++k) {
    FileOperation one = log[k];
    const bool is_certain = guess == Guess::All || is_synced(log, k, end);
    if (is_of_names(one)) {
      if (!is_certain && guess == Guess::OnlySynced) continue;
      if (!is_certain && guess == Guess::SomeNames && random.one_in(2)) continue;
    } else if (!is_certain) {
      if (guess != Guess::TornWrites && guess != Guess::SomeNames) continue;
      one.bytes.resize(
          static_cast<std::size_t>(random.between(0, static_cast<std::int64_t>(one.bytes.size()))));
    }
    // what is in a folder whose name was lost is lost with it
    const bool has_place = one.kind != Kind::Create || disk.exists(folder_of(one.path));
    const bool is_there = one.kind == Kind::Create || one.kind == Kind::MakeFolder ||
                          one.kind == Kind::SyncFolder || disk.exists(one.path);
    if (has_place && is_there) disk.repeat(one);
  }
}

constexpr std::int64_t kRows = 40;

// The whole state is one number, everywhere.
struct OneNumber {
  OneNumber(const World& world, double number) : state(world), value(number) {
    const DeviceMesh mesh = world.mesh({{"dp", world.size()}});
    x = distribute_tensor(at::full({kRows, 3}, number, at::kDouble), mesh, {Shard(0)},
                          kSameOnAllRanks);
    y = distribute_tensor(at::full({3, kRows}, number, at::kDouble), mesh, {Shard(1)},
                          kSameOnAllRanks);
    state.add("x", x).add("y", y).add("value", value);
  }
  bool is(double number) const {
    return value == number && full_tensor(x).eq(number).all().item<bool>() &&
           full_tensor(y).eq(number).all().item<bool>();
  }
  at::Tensor x, y;
  State state;
  double value;
};

// "old", "new", or what is wrong.
std::string found_on(const std::shared_ptr<MemoryFiles>& disk) {
  const World world = World::alone();
  OneNumber loaded(world, 0);
  try {
    load("run", loaded.state, {.files = disk});
  } catch (const std::exception& error) {
    return error.what();
  }
  if (loaded.is(1)) return "old";
  return loaded.is(2) ? "new" : "a mixture";
}

// The first save, and the operations of a second one that replaces it.
struct TwoSaves {
  TwoSaves() {
    disk = std::make_shared<MemoryFiles>();
    run(1, 2);
    first.copy_from(*disk);
    disk->clear_log();
    run(2, 3);
    log = disk->log();
  }
  void run(std::int64_t step, int ranks) {
    run_impatient(ranks, [&](World& world) {
      const OneNumber one(world, static_cast<double>(step));
      save("run", one.state,
           {.step = step, .keep = 1, .most_file_bytes = 1000, .chunk_bytes = 256, .files = disk});
    });
  }
  std::shared_ptr<MemoryFiles> disk;
  MemoryFiles first;
  Log log;
};

// Counts what is found after a crash at every point; what is neither old nor new is listed.
struct Matrix {
  Matrix(const TwoSaves& saves, const Log& log) {
    Random random(11);
    for (std::size_t end = 0; end <= log.size(); ++end) {
      for (const Guess guess : {Guess::All, Guess::OnlySynced, Guess::NamesAlone, Guess::TornWrites,
                                Guess::SomeNames, Guess::SomeNames, Guess::SomeNames}) {
        const auto left = std::make_shared<MemoryFiles>();
        left->copy_from(saves.first);
        lay_out(log, end, guess, random, *left);
        const std::string found = found_on(left);
        if (found == "old") {
          ++old_ones;
        } else if (found == "new") {
          ++new_ones;
        } else {
          wrong.push_back("after " + std::to_string(end) + " operations, guess " +
                          std::to_string(static_cast<int>(guess)) + ": " + found);
        }
      }
    }
  }
  int old_ones = 0, new_ones = 0;
  std::vector<std::string> wrong;
};

TEST(Crash, AtAnyPointOfASaveLeavesTheOldOrTheNewCheckpoint) {
  const TwoSaves saves;
  ASSERT_GT(saves.log.size(), 20u);
  const Matrix matrix(saves, saves.log);
  EXPECT_TRUE(matrix.wrong.empty()) << matrix.wrong.front();
  EXPECT_GT(matrix.old_ones, 40);
  EXPECT_GT(matrix.new_ones, 4);
  EXPECT_EQ(found_on(saves.disk), "new");
}

// The matrix is worth something: it finds what each kind of sync is for.
TEST(Crash, MatrixNoticesASyncThatIsMissing) {
  const TwoSaves saves;
  for (const Kind forgotten : {Kind::Sync, Kind::SyncFolder}) {
    Log log = saves.log;
    std::erase_if(log, [&](const FileOperation& one) { return one.kind == forgotten; });
    EXPECT_FALSE(Matrix(saves, log).wrong.empty());
  }
}

TEST(Crash, WhatCannotBeRemovedDoesNotFailTheSavesOfOtherSteps) {
  TwoSaves saves;
  saves.run(5, 2);
  saves.disk->before = [](const FileOperation& one) {
    if (one.kind == Kind::Remove && one.path == "run/step-5.tmp") throw UsageError("stays here");
  };
  for (const std::int64_t step : {1, 2}) {
    saves.run(step, 2);  // throws nothing
    EXPECT_EQ(inner::steps_in(*saves.disk, "run"), std::vector<std::int64_t>{step});
  }
  EXPECT_EQ(found_on(saves.disk), "new");
  EXPECT_TRUE(saves.disk->exists("run/step-5.tmp"));
  run_impatient(2, [&](World& world) {
    const OneNumber one(world, 5);
    const std::string error =
        error_of([&] { save("run", one.state, {.step = 5, .files = saves.disk}); });
    EXPECT_TRUE(contains(error, "stays here")) << error;
  });
}

}  // namespace crash_test
}  // namespace tegula
