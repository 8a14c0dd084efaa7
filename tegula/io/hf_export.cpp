// The idea: the rows of a weight of ours are written to where they stand among those of the files,
// each rank its own.
#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <map>

#include "tegula/base/error.h"
#include "tegula/base/text.h"
#include "tegula/bridge/torch_types.h"
#include "tegula/comm/comm_log.h"
#include "tegula/comm/together.h"
#include "tegula/files/model_folder.h"
#include "tegula/io/checkpoint_writer.h"
#include "tegula/io/hf_weights.h"
#include "tegula/io/inventory.h"
#include "tegula/io/rows.h"
#include "tegula/tensor/dtensor.h"

namespace tegula {

using namespace inner;

namespace {

// What is written under which name, in which part of it.
struct Export {
  std::vector<NamedTensor> tensors;
  struct Source {
    at::Tensor tensor;
    RowRange rows;
    std::vector<std::string> theirs;
    std::vector<RowRange> of_theirs;
    std::uint64_t row_bytes = 0;
  };
  std::vector<Source> sources;
};

// Whether the weights that are joined are left out, which is all of them or none.
bool is_left_out(const std::string& name, const HfMeaning& meaning, const HfOptions& options) {
  const bool is_without = matches_any(options.without, name);
  for (const std::string& one : meaning.ours) {
    if (matches_any(options.without, one) == is_without) continue;
    throw UsageError("of weights that are joined in files, some are left out and some are not")
        .fact("weight", in_quotes(name))
        .fact("with", in_quotes(one))
        .hint("let without match all of them, or none");
  }
  return is_without;
}

Export plan_export(const std::vector<ModuleMember>& members, const HfOptions& options) {
  std::map<std::string, at::Tensor> here;  // under the names by which they are written
  for (const ModuleMember& member : members) here[member.names.front()] = member.tensor;
  Export plan;
  for (const ModuleMember& member : members) {
    const std::string& name = member.names.front();
    const HfMeaning meaning = meaning_of(name, options);
    if (is_left_out(name, meaning, options)) continue;
    const NamedTensor mine = described({name, member.tensor});
    std::vector<Shape> ours;
    for (const std::string& one : meaning.ours) {
      const auto found = here.find(one);
      if (found == here.end() || !have_alike_rows(found->second.sizes().vec(), mine.shape)) {
        throw UsageError("weights that are joined in files are not all there, or have other rows")
            .fact("weight", in_quotes(name))
            .fact("with", in_quotes(one));
      }
      const NamedTensor other = described({one, found->second});
      if (other.dtype != mine.dtype) {
        const auto text = [](const NamedTensor& weight) {
          return in_quotes(weight.name) + ", " + to_string(TensorMeta(weight.shape, weight.dtype));
        };
        throw UsageError("weights that are joined in files have different types")
            .fact("weight", text(mine))
            .fact("with", text(other));
      }
      ours.push_back(other.shape);
    }
    const auto count = static_cast<std::int64_t>(meaning.theirs.size());
    const std::int64_t rows = row_ranges(ours).back().end;
    if (rows % count != 0 || (mine.shape.empty() && meaning.theirs.size() > 1)) {
      throw UsageError("the rows of a weight cannot be divided equally")
          .fact("weight", in_quotes(name))
          .fact("rows", std::to_string(rows))
          .fact("parts", std::to_string(count));
    }
    std::vector<Shape> theirs(meaning.theirs.size(), mine.shape);
    if (!mine.shape.empty()) {
      for (Shape& shape : theirs) shape.front() = rows / count;
    }
    if (meaning.index == 0) {
      for (std::size_t k = 0; k < theirs.size(); ++k) {
        plan.tensors.push_back({meaning.theirs[k], mine.dtype, theirs[k]});
      }
    }
    plan.sources.push_back({member.tensor, row_ranges(ours)[meaning.index], meaning.theirs,
                            row_ranges(theirs), row_bytes_of(mine.shape, mine.dtype)});
  }
  return plan;
}

void write_export(const Export& plan, const FilePlan& files, int rank, CheckpointWriter& writer) {
  std::map<std::string_view, const PlannedTensor*> planned;
  for (const PlannedTensor& one : files.tensors) planned[one.tensor.name] = &one;
  for (const Export::Source& source : plan.sources) {
    std::optional<Rows> rows;
    if (is_dtensor(source.tensor)) {
      rows = rows_of(source.tensor);
    } else if (rank == 0) {
      rows = Rows{source.tensor.detach().to(host_device()).contiguous(), 0};
    }
    if (!rows) continue;
    std::vector<FilePiece> places;
    for (const std::string& name : source.theirs) {
      places.push_back({planned.at(name)->file, planned.at(name)->begin, 0, 0});
    }
    const auto begin = static_cast<std::uint64_t>(rows->offset);
    const std::span<const std::byte> bytes(
        static_cast<const std::byte*>(rows->local.const_data_ptr()), rows->local.nbytes());
    for (const FilePiece& piece :
         pieces_of(source.rows, source.of_theirs, places, source.row_bytes)) {
      const std::uint64_t first = std::max(begin, piece.tensor_begin);
      const std::uint64_t last = std::min(begin + bytes.size(), piece.tensor_begin + piece.bytes);
      if (first >= last) continue;
      writer.write(piece.file, piece.file_begin + (first - piece.tensor_begin),
                   bytes.subspan(first - begin, last - first));
    }
  }
}

// The files with their headers, in a folder that takes its name at the end.
void make_export(FileLayer& files, const std::string& path, const FilePlan& plan) {
  files.remove_all(path);
  files.make_folder(path);
  std::map<std::string, std::string> weight_map;
  std::uint64_t total = 0;
  for (const PlannedTensor& one : plan.tensors) {
    weight_map[one.tensor.name] = plan.files[one.file].name;
    total += one.bytes;
  }
  for (const PlannedFile& planned : plan.files) {
    const std::unique_ptr<File> file = files.create(path + "/" + planned.name);
    file->allocate(planned.size);
    file->write_at(0, std::as_bytes(std::span(planned.header)));
    file->sync();
  }
  if (plan.files.size() == 1) return;
  const std::string index = weight_map_text(weight_map, total);
  const std::unique_ptr<File> file = files.create(path + "/" + std::string(kModelIndex));
  file->write_at(0, std::as_bytes(std::span(index)));
  file->sync();
}

void remove_quietly(FileLayer& files, const std::string& path) {
  try {
    files.remove_all(path);
  } catch (const std::exception&) {
    // what stopped the export says more
  }
}

}  // namespace

void inner::export_hf_members(const std::vector<ModuleMember>& members, const std::string& folder,
                              const World& world, const HfOptions& options) {
  check_names(options);
  const CommLabel label("export_hf");
  const Group group = world.group();
  const std::shared_ptr<FileLayer> files = disk_files();
  const std::string path = folder + ".tmp";
  Export plan;
  FilePlan planned;
  together(group, [&] {
    plan = plan_export(members, options);
    FilePlanOptions how;
    how.stem = "model";
    how.most_bytes = options.most_file_bytes;
    how.metadata = {{"format", "pt"}};
    planned = plan_files(plan.tensors, how);
    if (planned.files.size() == 1) planned.files.front().name = "model.safetensors";
    if (world.rank() == 0 && files->exists(folder)) {
      throw UsageError("there is such a folder already").fact("folder", folder);
    }
  });
  try {
    together(group, [&] {
      if (world.rank() == 0) make_export(*files, path, planned);
    });
    constexpr std::uint64_t kChunkBytes = std::uint64_t{1} << 30;  // nobody asks for checksums
    CheckpointWriter writer(*files, path, planned, kChunkBytes);
    write_export(plan, planned, world.rank(), writer);
    together(group, [&] { writer.finish(); });
    together(group, [&] {
      if (world.rank() != 0) return;
      files->sync_folder(path);
      files->rename(path, folder);
    });
  } catch (...) {
    if (world.rank() == 0) remove_quietly(*files, path);
    throw;
  }
}
void export_hf(torch::nn::Module& module, const std::string& folder, const DeviceMesh& mesh,
               const HfOptions& options) {
  export_hf_members(members_of(module), folder, World::of(mesh), options);
}

}  // namespace tegula
