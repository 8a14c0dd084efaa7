#include "tegula/files/checkpoint_folder.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <set>

#include "tegula/base/error.h"
#include "tegula/base/log.h"
#include "tegula/base/text.h"
#include "tegula/files/chunk_reader.h"
#include "tegula/files/chunk_sums.h"

namespace tegula::inner {
namespace {

constexpr std::string_view kStep = "step-";
constexpr std::string_view kUnfinished = ".tmp";
constexpr std::string_view kLock = ".lock";

std::string joined(const std::string& folder, std::string_view name) {
  return folder + "/" + std::string(name);
}

std::string parent_of(const std::string& folder) {
  const std::filesystem::path parent = std::filesystem::path(folder).lexically_normal();
  const std::filesystem::path above =
      parent.has_filename() ? parent.parent_path() : parent.parent_path().parent_path();
  return above.empty() ? "." : above.string();
}

// "step-100" -> 100
std::optional<std::int64_t> step_of(std::string_view name) {
  if (!name.starts_with(kStep)) return std::nullopt;
  name.remove_prefix(kStep.size());
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  const bool is_number = error == std::errc() && end == name.data() + name.size() &&
                         std::to_string(step) == name && step >= 0;
  return is_number ? std::optional(step) : std::nullopt;
}

std::uint64_t size_of_file(FileLayer& files, const std::string& path) {
  return files.open_to_read(path)->size();
}

void write_file(FileLayer& files, const std::string& path, std::string_view text) {
  const std::unique_ptr<File> file = files.create(path);
  file->write_at(0, std::as_bytes(std::span(text.data(), text.size())));
  file->sync();
}

// What goes wrong is said, and fails no save.
template <class Removal>
void try_to_remove(const std::string& folder, Removal removal) {
  try {
    removal();
  } catch (const std::exception& error) {
    log_line(LogLevel::Warn,
             "tegula: an old checkpoint in " + folder + " is not removed: " + error.what());
  }
}

// All that can be removed, and that of this step.
void remove_unfinished(FileLayer& files, const std::string& folder, std::int64_t step) {
  files.remove_all(unfinished_path(folder, step));
  for (const std::string& name : files.names_in(folder)) {
    if (name.starts_with(kStep) && name.ends_with(kUnfinished)) {
      try_to_remove(folder, [&] { files.remove_all(joined(folder, name)); });
    }
  }
}

// The name goes first, so that no half of a checkpoint is ever under it.
void remove_step(FileLayer& files, const std::string& folder, std::int64_t step) {
  files.rename(step_path(folder, step), unfinished_path(folder, step));
  files.sync_folder(folder);
  files.remove_all(unfinished_path(folder, step));
}

// Leaves the last `keep`, among them this one, whatever its number.
void remove_old_steps(FileLayer& files, const std::string& folder, std::int64_t written,
                      std::int64_t keep) {
  std::vector<std::int64_t> steps = steps_in(files, folder);
  std::erase(steps, written);
  while (static_cast<std::int64_t>(steps.size()) >= keep) {
    try_to_remove(folder, [&] { remove_step(files, folder, steps.front()); });
    steps.erase(steps.begin());
  }
}

void make_files(FileLayer& files, const std::string& path, const FilePlan& plan) {
  files.make_folder(path);
  for (const PlannedFile& planned : plan.files) {
    const std::unique_ptr<File> file = files.create(joined(path, planned.name));
    file->allocate(planned.size);
    file->write_at(0, std::as_bytes(std::span(planned.header)));
    file->sync();
  }
}

// Length and JSON, as they stand in the file; their chunks are right.
std::string header_bytes(FileLayer& files, const std::string& path, const ManifestFile& said,
                         std::uint64_t chunk_bytes) {
  const std::unique_ptr<File> file = files.open_to_read(path);
  if (file->size() != said.size) {
    throw UsageError("a file of a checkpoint has another size than its manifest says")
        .fact("path", path)
        .fact("says", std::to_string(said.size))
        .fact("has", std::to_string(file->size()));
  }
  const ChunkedFile chunked{file.get(), path, said.size, chunk_bytes, said.checksums};
  std::string first(std::min<std::uint64_t>(kLengthBytes, said.size), '\0');
  read_wanted(chunked, {{0, std::as_writable_bytes(std::span(first))}});
  std::string bytes(kLengthBytes + header_length(first, said.size), '\0');
  read_wanted(chunked, {{0, std::as_writable_bytes(std::span(bytes))}});
  return bytes;
}

void check_names(const Contents& contents) {
  std::set<std::string_view> names;
  for (const SafetensorsHeader& header : contents.headers) {
    for (const FileTensor& tensor : header.tensors) {
      if (names.insert(tensor.name).second) continue;
      throw UsageError("two files of a checkpoint hold a tensor of one name")
          .fact("name", in_quotes(tensor.name));
    }
  }
}

}  // namespace

std::string step_path(const std::string& folder, std::int64_t step) {
  return joined(folder, std::string(kStep) + std::to_string(step));
}

std::string unfinished_path(const std::string& folder, std::int64_t step) {
  return step_path(folder, step) + std::string(kUnfinished);
}

std::vector<std::int64_t> steps_in(FileLayer& files, const std::string& folder) {
  std::vector<std::int64_t> steps;
  if (!files.exists(folder)) return steps;
  for (const std::string& name : files.names_in(folder)) {
    if (const std::optional<std::int64_t> step = step_of(name)) steps.push_back(*step);
  }
  std::ranges::sort(steps);
  return steps;
}

bool is_whole(FileLayer& files, const std::string& path) {
  try {
    const Manifest manifest =
        parse_manifest(text_of_file(files, joined(path, kManifestName), kMostManifestBytes));
    return std::ranges::all_of(manifest.files, [&](const ManifestFile& file) {
      return size_of_file(files, joined(path, file.name)) == file.size;
    });
  } catch (const UsageError&) {
    return false;
  }
}

std::optional<std::int64_t> latest_step(FileLayer& files, const std::string& folder) {
  std::vector<std::int64_t> steps = steps_in(files, folder);
  while (!steps.empty() && !is_whole(files, step_path(folder, steps.back()))) steps.pop_back();
  return steps.empty() ? std::nullopt : std::optional(steps.back());
}

std::unique_ptr<FileLock> lock_folder(FileLayer& files, const std::string& folder) {
  if (!files.exists(folder)) {
    files.make_folder(folder);
    files.sync_folder(parent_of(folder));
  }
  std::unique_ptr<FileLock> lock = files.try_lock(joined(folder, kLock));
  if (lock) return lock;
  throw UsageError("another job is saving to this folder")
      .fact("folder", folder)
      .hint("give each job a folder of its own, or wait for the other one");
}

void check_is_new(FileLayer& files, const std::string& folder, std::int64_t step) {
  if (!files.exists(step_path(folder, step))) return;
  throw UsageError("there is a checkpoint of this step already")
      .fact("path", step_path(folder, step))
      .hint("save under another step, or remove that folder first");
}

void begin_checkpoint(FileLayer& files, const std::string& folder, std::int64_t step,
                      const FilePlan& plan) {
  check_is_new(files, folder, step);
  remove_unfinished(files, folder, step);
  try {
    make_files(files, unfinished_path(folder, step), plan);
  } catch (...) {
    abandon_checkpoint(files, folder, step);
    throw;
  }
}

void commit_checkpoint(FileLayer& files, const std::string& folder, const Manifest& manifest,
                       std::int64_t keep) {
  const std::string path = unfinished_path(folder, manifest.step);
  write_file(files, joined(path, kManifestName), to_string(manifest));
  files.sync_folder(path);
  files.rename(path, step_path(folder, manifest.step));
  files.sync_folder(folder);
  if (keep == 0) return;
  try_to_remove(folder, [&] { remove_old_steps(files, folder, manifest.step, keep); });
}

void abandon_checkpoint(FileLayer& files, const std::string& folder, std::int64_t step) noexcept {
  try {
    files.remove_all(unfinished_path(folder, step));
  } catch (const std::exception&) {
    // the next save removes it
  }
}

std::string contents_bytes(FileLayer& files, const std::string& path) {
  const std::string text = text_of_file(files, joined(path, kManifestName), kMostManifestBytes);
  try {
    const Manifest manifest = parse_manifest(text);
    std::string bytes;
    append_block(bytes, text);
    for (const ManifestFile& file : manifest.files) {
      bytes += header_bytes(files, joined(path, file.name), file, manifest.chunk_bytes);
    }
    return bytes;
  } catch (UsageError& error) {
    throw std::move(error).fact("in", path);
  }
}

Contents parse_contents(std::string_view bytes) {
  Contents contents;
  contents.manifest = parse_manifest(take_block(bytes));
  for (const ManifestFile& file : contents.manifest.files) {
    const std::string_view json = take_block(bytes);
    const std::uint64_t data_begin = kLengthBytes + json.size();
    if (data_begin > file.size) throw UsageError("a file is shorter than its header");
    contents.data_begins.push_back(data_begin);
    contents.headers.push_back(parse_safetensors_header(json, file.size - data_begin));
  }
  check_names(contents);
  return contents;
}

}  // namespace tegula::inner
