// The idea: what goes where is a fact of names, types and shapes (file_plan.h), so ranks need not
// ask each other where to write. Rank 0 makes the files and commits them; all write.
#include "tegula/io/save_job.h"

#include <ATen/ATen.h>

#include <map>

#include "tegula/base/error.h"
#include "tegula/bridge/torch_types.h"
#include "tegula/comm/comm_log.h"
#include "tegula/io/agreement.h"
#include "tegula/io/checkpoint_writer.h"
#include "tegula/io/rows.h"
#include "tegula/tensor/dtensor.h"

namespace tegula::inner {
namespace {

std::span<const std::byte> bytes_of(const at::Tensor& dense) {
  return {static_cast<const std::byte*>(dense.const_data_ptr()), dense.nbytes()};
}

void check_options(const SaveOptions& options) {
  if (options.step >= 0 && options.keep >= 0 && options.chunk_bytes > 0 &&
      options.most_file_bytes > 0) {
    return;
  }
  throw UsageError("a checkpoint needs a step and a number of ones to keep of 0 or more, and sizes")
      .fact("step", std::to_string(options.step))
      .fact("keep", std::to_string(options.keep))
      .fact("most_file_bytes", std::to_string(options.most_file_bytes))
      .fact("chunk_bytes", std::to_string(options.chunk_bytes));
}

FilePlan plan_of(const Inventory& inventory, const SaveOptions& options) {
  FilePlanOptions plan;
  plan.most_bytes = options.most_file_bytes;
  plan.metadata = {{"format", "pt"}};
  return plan_files(inventory.tensors, plan);
}

// What this rank writes of a tensor. Communicates if it is distributed.
std::optional<Rows> rows_here(const at::Tensor& tensor, const std::string& name,
                              const Inventory& inventory, int rank) {
  if (is_dtensor(tensor)) return rows_of(tensor);
  if (inventory.plain.at(name) != rank) return std::nullopt;
  const at::Tensor dense =
      tensor.detach().resolve_conj().resolve_neg().to(host_device()).contiguous();
  return Rows{dense, 0, dense.is_alias_of(tensor)};
}

// Of all files, from what each rank has written of them.
std::vector<ManifestFile> checked_files(const Group& group, const FilePlan& plan,
                                        CheckpointWriter& writer, std::uint64_t chunk_bytes) {
  std::vector<ManifestFile> files;
  for (std::size_t k = 0; k < plan.files.size(); ++k) {
    const PlannedFile& planned = plan.files[k];
    if (group.index() == 0) writer.sums(k).add(0, std::as_bytes(std::span(planned.header)));
    std::vector<std::uint32_t> remainders = writer.sums(k).remainders();
    const at::Tensor mine =
        at::from_blob(remainders.data(), {static_cast<std::int64_t>(remainders.size())}, at::kInt);
    group.all_reduce_(mine, ReduceOp::Bxor);
    files.push_back({planned.name, planned.size, checksums(remainders, planned.size, chunk_bytes)});
  }
  return files;
}

}  // namespace

SaveJob::SaveJob(const std::string& folder, const State& state, const SaveOptions& options)
    : folder_(folder),
      options_(options),
      world_(state.world()),
      files_(options.files ? options.files : disk_files()) {
  check_options(options);
  const CommLabel label("save");
  const Group group = world_.group();
  together(group, [&] {
    for (const std::shared_ptr<StatePart>& part : state.parts()) part->list_saved(saved_);
  });
  inventory_ = take_inventory(world_, saved_);
  plan_ = plan_of(inventory_, options);
  together(group, [&] {
    if (world_.rank() != 0) return;
    lock_ = lock_folder(*files_, folder_);
    begin_checkpoint(*files_, folder_, options_.step, plan_);
  });
  writer_ = std::make_unique<CheckpointWriter>(*files_, unfinished_path(folder_, options_.step),
                                               plan_, options_.chunk_bytes);
}

SaveJob::~SaveJob() {
  if (!is_done_ && world_.rank() == 0) abandon_checkpoint(*files_, folder_, options_.step);
}

// In the order of the files, in which all ranks communicate.
void SaveJob::take_tensors(std::uint64_t most_copied) {
  const CommLabel label("save");
  std::map<std::string_view, const at::Tensor*> mine;
  for (const StateTensor& entry : saved_.tensors) mine[entry.name] = &entry.tensor;
  std::uint64_t copied = 0;
  for (const PlannedTensor& planned : plan_.tensors) {
    const auto found = mine.find(planned.tensor.name);
    if (found == mine.end()) continue;
    const std::optional<Rows> rows =
        rows_here(*found->second, planned.tensor.name, inventory_, world_.rank());
    if (!rows) continue;
    const std::uint64_t offset = planned.begin + static_cast<std::uint64_t>(rows->offset);
    if (copied + rows->local.nbytes() > most_copied) {
      writer_->write(planned.file, offset, bytes_of(rows->local));
      continue;
    }
    copied += rows->local.nbytes();
    copies_.push_back({rows->is_own ? rows->local.clone() : rows->local, planned.file, offset});
  }
  saved_ = {};
}

void SaveJob::finish() {
  const CommLabel label("save");
  const Group group = world_.group();
  for (const Copy& copy : copies_) writer_->write(copy.file, copy.offset, bytes_of(copy.rows));
  copies_.clear();
  together(group, [&] { writer_->finish(); });
  const Manifest manifest{options_.step, options_.chunk_bytes,
                          checked_files(group, plan_, *writer_, options_.chunk_bytes),
                          inventory_.values};
  together(group, [&] {
    if (world_.rank() == 0) commit_checkpoint(*files_, folder_, manifest, options_.keep);
  });
  is_done_ = true;
  lock_.reset();
}

}  // namespace tegula::inner
