// A save, in its parts: what has to be done while the state stays as it is, and what need not.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tegula/comm/world.h"
#include "tegula/files/checkpoint_folder.h"
#include "tegula/io/checkpoint.h"
#include "tegula/io/inventory.h"

namespace tegula::inner {

class CheckpointWriter;

// All ranks make the calls of one in the same order; each may throw on all of them, after which
// what was begun is gone.
class SaveJob {
 public:
  // Finds out what there is to save, and makes the files.
  SaveJob(const std::string& folder, const State& state, const SaveOptions& options);
  ~SaveJob();
  SaveJob(const SaveJob&) = delete;
  SaveJob& operator=(const SaveJob&) = delete;

  // Writes this rank's rows of all tensors, but for copies of the first ones of up to this many
  // bytes together, which finish writes. After it the state may change.
  void take_tensors(std::uint64_t most_copied);
  // Writes the copies, waits for the disk, and gives the checkpoint its name. Another thread may
  // call it, on a lane of its own; it does not look at the state.
  void finish();

 private:
  struct Copy {
    at::Tensor rows;
    std::size_t file;
    std::uint64_t offset;
  };

  std::string folder_;
  SaveOptions options_;
  World world_;
  std::shared_ptr<FileLayer> files_;
  Saved saved_;
  Inventory inventory_;
  FilePlan plan_;
  std::unique_ptr<FileLock> lock_;
  std::unique_ptr<CheckpointWriter> writer_;
  std::vector<Copy> copies_;
  bool is_done_ = false;
};

}  // namespace tegula::inner
