// The idea: what goes where is a fact of names, types and shapes (file_plan.h), so ranks need not
// ask each other where to write. Rank 0 makes the files and commits them; all write. A copy for
// later is of what the rank has, tiles as they are: rows are made of them when they are written.
#include "tegula/io/save_job.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <map>

#include "tegula/base/error.h"
#include "tegula/bridge/torch_types.h"
#include "tegula/comm/comm_log.h"
#include "tegula/comm/together.h"
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
  throw UsageError(
      "a checkpoint's step, and how many to keep, cannot be negative; its sizes are 1 or more")
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

at::Tensor dense_on_host(const at::Tensor& tensor) {
  return tensor.detach().resolve_conj().resolve_neg().to(host_device()).contiguous();
}

// Whether a copy of the tile is enough for now.
bool is_copied_as_tile(const at::Tensor& tensor) {
  return is_dtensor(tensor) && !spec_of(tensor).is_partial() && rows_travel(spec_of(tensor));
}

bool has_tile(const at::Tensor& tensor, int rank) {
  const DeviceMesh mesh = mesh_of(tensor);
  return mesh.coordinate_of(rank) && mesh.fiber_of(rank) == 0;
}

at::Tensor copied(const at::Tensor& from, ReusedMemory& memory) {
  const at::Tensor to = memory.tensor(from.sizes(), from.scalar_type());
  const bool is_dense =
      from.is_contiguous() && from.device() == host_device() && !from.is_conj() && !from.is_neg();
  if (is_dense) {
    copy_past_caches(to, from);
  } else {
    to.copy_(from);
  }
  return to;
}

// A distributed tensor of a copy of this rank's tile.
at::Tensor copied_tile(const at::Tensor& tensor, ReusedMemory& memory) {
  const DTensorSpec spec = spec_of(tensor);
  FromLocalOptions options;
  options.shape = spec.shape();
  options.order = spec.shard_order();
  options.check = false;
  const DeviceMesh mesh = mesh_of(tensor);
  const at::Tensor tile = copied(to_local(tensor.detach()), memory);
  return from_local(tile.to(device_of(mesh)), mesh, spec.placements(), options);
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
    check_is_new(*files_, folder_, options_.step);
  });
}

SaveJob::~SaveJob() {
  if (has_files_ && !is_done_ && world_.rank() == 0)
    abandon_checkpoint(*files_, folder_, options_.step);
}

void SaveJob::make_files() {
  has_files_ = true;
  together(world_.group(), [&] {
    if (world_.rank() == 0) begin_checkpoint(*files_, folder_, options_.step, plan_);
  });
  writer_ = std::make_unique<CheckpointWriter>(*files_, unfinished_path(folder_, options_.step),
                                               plan_, options_.chunk_bytes);
}

// The same number on all ranks, since tiles of copies travel later and those of others now.
std::size_t SaveJob::count_of_copies(const std::vector<const at::Tensor*>& tensors,
                                     std::uint64_t most_copied) const {
  if (most_copied == 0) return 0;
  std::uint64_t bytes = 0;
  std::size_t count = 0;
  for (; count < tensors.size(); ++count) {
    const at::Tensor* tensor = tensors[count];
    if (tensor == nullptr) continue;
    if (is_dtensor(*tensor)) {
      bytes += has_tile(*tensor, world_.rank()) ? to_local(tensor->detach()).nbytes() : 0;
    } else if (inventory_.plain.at(plan_.tensors[count].tensor.name) == world_.rank()) {
      bytes += tensor->nbytes();
    }
    if (bytes > most_copied) break;
  }
  return static_cast<std::size_t>(
      world_.group()
          .all_reduce(at::full({1}, static_cast<std::int64_t>(count), at::kLong), ReduceOp::Min)
          .item<std::int64_t>());
}

void SaveJob::copy(const PlannedTensor& planned, const at::Tensor& tensor, ReusedMemory& memory) {
  if (is_copied_as_tile(tensor)) {
    if (has_tile(tensor, world_.rank())) {
      copies_.push_back({&planned, copied_tile(tensor, memory)});
    }
  } else if (is_dtensor(tensor)) {
    if (const std::optional<Rows> rows = rows_of(tensor)) {
      copies_.push_back(
          {&planned, rows->is_own ? copied(rows->local, memory) : rows->local, rows->offset});
    }
  } else if (inventory_.plain.at(planned.tensor.name) == world_.rank()) {
    copies_.push_back({&planned, copied(tensor.detach(), memory)});
  }
}

void SaveJob::write(const PlannedTensor& planned, const std::optional<Rows>& rows) {
  if (!rows) return;
  writer_->write(planned.file, planned.begin + static_cast<std::uint64_t>(rows->offset),
                 bytes_of(rows->local));
}

// In the order of the files, in which all ranks communicate.
void SaveJob::take_tensors(std::uint64_t most_copied, ReusedMemory& copies) {
  const CommLabel label("save");
  const at::NoGradGuard no_grad;
  std::map<std::string_view, const at::Tensor*> mine;
  for (const StateTensor& entry : saved_.tensors) mine[entry.name] = &entry.tensor;
  std::vector<const at::Tensor*> tensors;  // null: on other ranks only
  for (const PlannedTensor& planned : plan_.tensors) {
    const auto found = mine.find(planned.tensor.name);
    tensors.push_back(found == mine.end() ? nullptr : found->second);
  }
  const std::size_t copied = count_of_copies(tensors, most_copied);
  if (copied < tensors.size() || most_copied == 0) make_files();
  for (std::size_t k = 0; k < tensors.size(); ++k) {
    const PlannedTensor& planned = plan_.tensors[k];
    if (tensors[k] == nullptr) continue;
    const at::Tensor& tensor = *tensors[k];
    if (k < copied) {
      copy(planned, tensor, copies);
    } else if (is_dtensor(tensor)) {
      write(planned, rows_of(tensor));
    } else if (inventory_.plain.at(planned.tensor.name) == world_.rank()) {
      write(planned, Rows{dense_on_host(tensor), 0});
    }
  }
  saved_ = {};
}

void SaveJob::finish() {
  const CommLabel label("save");
  const Group group = world_.group();
  if (!has_files_) make_files();
  for (const Copy& copy : copies_) {
    write(*copy.planned,
          is_dtensor(copy.tensor) ? rows_of(copy.tensor) : Rows{copy.tensor, copy.offset});
  }
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
