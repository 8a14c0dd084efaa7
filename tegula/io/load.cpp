// The idea: one rank reads what the checkpoint says of itself, for all; every rank finds out what
// it needs, and they report together what does not fit. Then each reads its rows.
#include "tegula/base/error.h"
#include "tegula/bridge/torch_types.h"
#include "tegula/comm/comm_log.h"
#include "tegula/comm/together.h"
#include "tegula/files/checkpoint_folder.h"
#include "tegula/files/rename.h"
#include "tegula/io/checkpoint.h"
#include "tegula/io/fit.h"
#include "tegula/io/tensor_reader.h"

namespace tegula {

using namespace inner;

namespace {

// The path of the step and what it holds; read by rank 0.
std::pair<std::string, Contents> read_contents(const Group& group, FileLayer& files,
                                               const std::string& folder,
                                               const LoadOptions& options) {
  std::string path, bytes;
  together(group, [&] {
    if (group.index() != 0) return;
    const std::optional<std::int64_t> step =
        options.step ? options.step : latest_step(files, folder);
    if (!step) {
      throw UsageError("there is no whole checkpoint in this folder").fact("folder", folder);
    }
    path = step_path(folder, *step);
    bytes = contents_bytes(files, path);
  });
  return {broadcast_text(group, path, 0), parse_contents(broadcast_text(group, bytes, 0))};
}

std::vector<SourceFile> sources_of(const Contents& contents, const std::string& path, bool verify) {
  std::vector<SourceFile> sources;
  for (const ManifestFile& file : contents.manifest.files) {
    sources.push_back({path + "/" + file.name, file.size, contents.manifest.chunk_bytes,
                       verify ? file.checksums : std::vector<std::uint32_t>()});
  }
  return sources;
}

// In one order on all ranks: that of the checkpoint.
std::vector<SourcedTensor> sourced(const Fit& fit, const Contents& contents) {
  std::vector<SourcedTensor> tensors;
  for (const Fit::Tensor& one : fit.tensors) {
    const FileTensor& there = *one.place.tensor;
    const FilePiece all{one.place.file, contents.data_begins[one.place.file] + there.begin, 0,
                        there.bytes()};
    tensors.push_back({one.tensor, scalar_type_of(*there.dtype->dtype), {all}});
  }
  return tensors;
}

}  // namespace

LoadReport load(const std::string& folder, const State& state, const LoadOptions& options) {
  check_renames(options.renames);
  const CommLabel label("load");
  const Group group = state.world().group();
  const std::shared_ptr<FileLayer> files = options.files ? options.files : disk_files();
  const auto [path, contents] = read_contents(group, *files, folder, options);
  const Fit fit = fit_together(group, state, contents, path, options);
  read_tensors(group, *files, sources_of(contents, path, options.verify), sourced(fit, contents));
  together(group, [&fit = fit] {
    for (const Wants::Finish& last : fit.finish) last.run();
    for (const Fit::Value& value : fit.values) value.set(value.value);
  });
  return {contents.manifest.step, fit.missing, fit.extra};
}

std::optional<std::int64_t> latest(const std::string& folder) {
  return latest_step(*disk_files(), folder);
}

}  // namespace tegula
