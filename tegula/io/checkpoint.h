// Checkpoints: the state of a program in a folder, for any number of ranks.
//
//   save("run", state, {.step = step, .keep = 3});
//   ...
//   if (latest("run")) load("run", state);
//
// A checkpoint is a folder of safetensors files with whole tensors, and a manifest (docs/files.md).
// Its bytes do not depend on the number of ranks, the mesh or the placements: any mesh reads what
// any other wrote, and so does Python's safetensors.
//
// All ranks of the state's world call these with the same arguments. What one rank meets (a full
// disk, a folder that is read-only, a file that is damaged) all ranks throw, as a UsageError that
// names the rank. All ranks see the same folder.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tegula/io/state.h"

namespace tegula {

namespace inner {
class FileLayer;
}

struct SaveOptions {
  // The checkpoint's number; 0 or more.
  std::int64_t step = 0;
  // How many checkpoints stay, this one included; 0: all.
  std::int64_t keep = 0;
  // A file takes no more, but for one tensor that has more by itself.
  std::uint64_t most_file_bytes = std::uint64_t{5} << 30;
  // A checksum stands for so many bytes.
  std::uint64_t chunk_bytes = std::uint64_t{1} << 20;
  // Null: the disk.
  std::shared_ptr<inner::FileLayer> files = nullptr;
};

// Writes folder/step-N. Reductions that tensors owe are done; the tensors stay as they are. When it
// returns, the checkpoint outlasts a loss of power; a kill at any point leaves it whole or not
// there at all, and the earlier ones as they were. After an error nothing of it is left but, where
// the disk does not let it, a folder step-N.tmp, which the next save removes.
//
// UsageError: there is such a step already, another job is saving to the folder, ranks differ in
// what should be the same (state.h), a tensor that is sparse or has no values.
//
// Cost: every rank writes its share of each tensor, large pieces at a time, and syncs. Tensors that
// are not cut by rows are redistributed for it, one at a time.
void save(const std::string& folder, const State& state, const SaveOptions& options = {});

// Saves while the program goes on. One for a world, kept as long as there is something to save.
//
//   AsyncSaver saver;
//   saver.save("run", state, {.step = step});   // copies, then returns
//   ...                                         // the state may change
//   saver.wait();                               // at the end
//
// All ranks make the same calls. What a save meets in the background, all ranks get from the next
// save or wait, once, as from tegula::save; the checkpoint is not there then, the earlier ones are.
class AsyncSaver {
 public:
  // Copies of up to this many bytes of the state are held on each rank, in memory that is kept for
  // the next save; the rest is written before save returns.
  explicit AsyncSaver(std::uint64_t most_copied = std::uint64_t{4} << 30);
  // Waits. An error goes to the log.
  ~AsyncSaver();
  AsyncSaver(const AsyncSaver&) = delete;
  AsyncSaver& operator=(const AsyncSaver&) = delete;

  // Waits for the save before it. Copies what this rank has of the tensors, at the speed of memory;
  // a thread does the rest, on a lane of its own (comm/lane.h). UsageError as tegula::save.
  void save(const std::string& folder, const State& state, const SaveOptions& options = {});
  // Until the last save is on the disk.
  void wait();

 private:
  struct Work;
  std::uint64_t most_copied_;
  std::unique_ptr<Work> work_;
};

struct LoadOptions {
  // None: the newest that is whole.
  std::optional<std::int64_t> step = std::nullopt;
  // Refuse what the state has and the checkpoint lacks, and the reverse. Else the one stays as it
  // is, and the other does not matter.
  bool strict = true;
  // Patterns of names (tensor/module.h) of the state: the rest of the state stays as it is, and so
  // does what the checkpoint has of it. Empty: all.
  std::vector<std::string> only = {};
  // Names in the checkpoint and what the state has them under: {"old.layers.*", "layers.*"}. * is
  // any characters up to a dot, ** any characters. The first pattern that matches a name counts.
  std::vector<std::pair<std::string, std::string>> renames = {};
  // Convert elements of another type.
  bool cast = false;
  // Compare the checksums of all that is read.
  bool verify = true;
  std::shared_ptr<inner::FileLayer> files = nullptr;
};

struct LoadReport {
  std::int64_t step = 0;
  // Where load was not strict.
  std::vector<std::string> missing;  // of the state, on any rank
  std::vector<std::string> extra;    // of the checkpoint
};

// Fills the state from folder/step-N, in place: tensors keep their placements, whatever they were
// when they were saved.
//
// UsageError before anything has changed: no such checkpoint; names, shapes, element types or kinds
// of values that do not fit, all of them in one report. UsageError after tensors may have changed,
// in part: a file that cannot be read or is damaged. Values that are no tensors change last.
//
// Cost: every byte that is needed is read once, by one rank of a tensor's mesh, in reads of up to
// 8 MiB; what belongs to other ranks then travels to them. Plain tensors are read once, too, if all
// ranks have them, else by each rank that has them.
LoadReport load(const std::string& folder, const State& state, const LoadOptions& options = {});

// The newest step of the folder that is whole; none if there is none. Any rank may call it alone.
std::optional<std::int64_t> latest(const std::string& folder);

}  // namespace tegula
