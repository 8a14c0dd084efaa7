// A save, in its parts: what has to be done while the state stays as it is, and what need not.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tegula/comm/world.h"
#include "tegula/files/checkpoint_folder.h"
#include "tegula/io/checkpoint.h"
#include "tegula/io/inventory.h"
#include "tegula/io/rows.h"

namespace tegula::inner {

class CheckpointWriter;

// All ranks make the calls of one in the same order; each may throw on all of them, after which
// what was begun is gone.
class SaveJob {
 public:
  // Finds out what there is to save, and that it can be saved there.
  SaveJob(const std::string& folder, const State& state, const SaveOptions& options);
  ~SaveJob();
  SaveJob(const SaveJob&) = delete;
  SaveJob& operator=(const SaveJob&) = delete;

  // Copies what this rank has of the first tensors to `copies`, as long as no rank copies more than
  // `most_copied` bytes, and writes its rows of the others. After it the state may change.
  void take_tensors(std::uint64_t most_copied, ReusedMemory& copies);
  // Writes the copies, waits for the disk, and gives the checkpoint its name. Another thread may
  // call it, on a lane of its own; it does not look at the state.
  void finish();

 private:
  // Of a tensor, what finish writes.
  struct Copy {
    const PlannedTensor* planned;
    at::Tensor tensor;        // distributed: its rows travel then
    std::int64_t offset = 0;  // of rows
  };

  void make_files();
  std::size_t count_of_copies(const std::vector<const at::Tensor*>& tensors,
                              std::uint64_t most_copied) const;
  void copy(const PlannedTensor& planned, const at::Tensor& tensor, ReusedMemory& memory);
  void write(const PlannedTensor& planned, const std::optional<Rows>& rows);

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
  bool has_files_ = false;
  bool is_done_ = false;
};

}  // namespace tegula::inner
