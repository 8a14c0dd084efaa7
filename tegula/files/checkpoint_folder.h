// A folder of checkpoints on disk: how one comes into being, which ones are whole, what they hold.
//
//   run/step-100/manifest.json                        written last
//   run/step-100/state-00001-of-00002.safetensors     whole tensors
//   run/step-100/state-00002-of-00002.safetensors
//   run/step-200.tmp/...                              not finished
//
// A checkpoint is written to a folder that ends in .tmp, reaches the disk, and is renamed. So a
// kill or a loss of power at any point leaves a folder whose steps without .tmp are whole.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tegula/files/file_layer.h"
#include "tegula/files/file_plan.h"
#include "tegula/files/manifest.h"

namespace tegula::inner {

// "run/step-100"
std::string step_path(const std::string& folder, std::int64_t step);
// "run/step-100.tmp"
std::string unfinished_path(const std::string& folder, std::int64_t step);

// Steps with a finished name, ascending; none if there is no such folder.
std::vector<std::int64_t> steps_in(FileLayer& files, const std::string& folder);
// The last of them that is_whole.
std::optional<std::int64_t> latest_step(FileLayer& files, const std::string& folder);
// Whether its manifest reads and every file is there with its size. Does not read data.
bool is_whole(FileLayer& files, const std::string& path);

// The lock of a folder, which is made if it is not there. UsageError: another job is saving there.
std::unique_ptr<FileLock> lock_folder(FileLayer& files, const std::string& folder);

// UsageError: there is such a step already.
void check_is_new(FileLayer& files, const std::string& folder, std::int64_t step);

// The three ends of a save, by one rank that holds the lock.
//
// Makes the unfinished folder with its files, at their full sizes and with their headers, and
// removes what killed saves have left, as far as the disk lets it. UsageError: there is such a step
// already; what was left of this step cannot be removed; the disk is full.
void begin_checkpoint(FileLayer& files, const std::string& folder, std::int64_t step,
                      const FilePlan& plan);
// When all files are written and synced: the manifest, and the finished name. Then removes all but
// the last `keep` checkpoints; 0: none. One that cannot be removed is logged, and is no error. When
// it returns, the checkpoint outlasts a loss of power.
void commit_checkpoint(FileLayer& files, const std::string& folder, const Manifest& manifest,
                       std::int64_t keep);
// After an error: what was begun goes away, as far as the disk lets it. Does not throw.
void abandon_checkpoint(FileLayer& files, const std::string& folder, std::int64_t step) noexcept;

// What a checkpoint says of itself.
struct Contents {
  Manifest manifest;
  std::vector<SafetensorsHeader> headers;  // one per file of the manifest
  std::vector<std::uint64_t> data_begins;  // in the files
};

// Manifest and headers as they stand in the files, so that one rank can read them for all.
// UsageError with the path: something is missing, damaged or of another size.
std::string contents_bytes(FileLayer& files, const std::string& path);
// UsageError: no such bytes, or the manifest and the headers do not belong together.
Contents parse_contents(std::string_view bytes);

}  // namespace tegula::inner
