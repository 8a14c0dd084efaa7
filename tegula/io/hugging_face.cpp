// The idea: a weight of ours is a run of rows of what files have, joined. So it is a list of pieces
// of files, by which it is read and written like any other tensor (tensor_reader.h, rows.h).
#include "tegula/io/hugging_face.h"

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <map>
#include <set>

#include "tegula/base/error.h"
#include "tegula/base/text.h"
#include "tegula/bridge/torch_types.h"
#include "tegula/comm/comm_log.h"
#include "tegula/files/model_folder.h"
#include "tegula/files/rename.h"
#include "tegula/io/agreement.h"
#include "tegula/io/checkpoint_writer.h"
#include "tegula/io/inventory.h"
#include "tegula/io/rows.h"
#include "tegula/io/tensor_reader.h"
#include "tegula/tensor/dtensor.h"
#include "tegula/tensor/name_patterns.h"

namespace tegula {

using namespace inner;

namespace {

constexpr std::size_t kMostShown = 12;

bool matches_any(const std::vector<std::string>& patterns, const std::string& name) {
  return std::ranges::any_of(patterns, [&](const auto& one) { return matches(one, name); });
}

// A parameter or buffer with all of its names.
struct Member {
  at::Tensor tensor;
  std::vector<std::string> names;
};

std::vector<Member> members_of(torch::nn::Module& module) {
  std::vector<Member> members;
  std::map<c10::TensorImpl*, std::size_t> places;
  const auto add = [&](const auto& items) {
    for (const auto& item : items) {
      if (!item.value().defined()) continue;
      const auto [place, is_new] =
          places.try_emplace(item.value().unsafeGetTensorImpl(), members.size());
      if (is_new) members.push_back({item.value(), {}});
      members[place->second].names.push_back(item.key());
    }
  };
  add(module.named_parameters());
  add(module.named_buffers());
  return members;
}

// What a name means: which of ours it is among those that are joined, and theirs.
struct Meaning {
  std::vector<std::string> ours;
  std::size_t index = 0;
  std::vector<std::string> theirs;
};

Meaning meaning_of(const std::string& name, const HfOptions& options) {
  for (const HfName& one : options.names) {
    for (std::size_t k = 0; k < one.ours.size(); ++k) {
      if (!renamed(name, one.ours[k], "")) continue;
      Meaning meaning{{}, k, {}};
      for (const std::string& pattern : one.ours) {
        meaning.ours.push_back(*renamed(name, one.ours[k], pattern));
      }
      for (const std::string& pattern : one.theirs) {
        meaning.theirs.push_back(*renamed(name, one.ours[k], pattern));
      }
      return meaning;
    }
  }
  return {{name}, 0, {name}};
}

void check_names(const HfOptions& options) {
  for (const HfName& one : options.names) {
    if (one.ours.empty() || one.theirs.empty()) {
      throw UsageError("a name of a weight has none of ours, or none of theirs");
    }
    Renames renames;
    for (const std::string& pattern : one.ours) renames.push_back({one.ours.front(), pattern});
    for (const std::string& pattern : one.ours) renames.push_back({pattern, one.ours.front()});
    for (const std::string& pattern : one.theirs) renames.push_back({one.ours.front(), pattern});
    check_renames(renames);
  }
}

// Rows of one thing among the joined rows of all.
struct RowRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

std::int64_t rows_in(const Shape& shape) { return shape.empty() ? 1 : shape.front(); }

std::vector<RowRange> row_ranges(const std::vector<Shape>& shapes) {
  std::vector<RowRange> ranges;
  std::int64_t begin = 0;
  for (const Shape& shape : shapes) {
    ranges.push_back({begin, begin + rows_in(shape)});
    begin = ranges.back().end;
  }
  return ranges;
}

bool have_alike_rows(const Shape& a, const Shape& b) {
  return a.size() == b.size() && (a.empty() || std::equal(a.begin() + 1, a.end(), b.begin() + 1));
}

// Where the rows of one of ours are among theirs, in bytes.
std::vector<FilePiece> pieces_of(const RowRange& mine, const std::vector<RowRange>& theirs,
                                 const std::vector<FilePiece>& places, std::uint64_t row_bytes) {
  std::vector<FilePiece> pieces;
  for (std::size_t k = 0; k < theirs.size(); ++k) {
    const std::int64_t first = std::max(mine.begin, theirs[k].begin);
    const std::int64_t last = std::min(mine.end, theirs[k].end);
    if (first >= last) continue;
    const auto bytes_between = [&](std::int64_t from, std::int64_t to) {
      return static_cast<std::uint64_t>(to - from) * row_bytes;
    };
    pieces.push_back({places[k].file, places[k].file_begin + bytes_between(theirs[k].begin, first),
                      bytes_between(mine.begin, first), bytes_between(first, last)});
  }
  return pieces;
}

std::uint64_t row_bytes_of(const Shape& shape, DType dtype) {
  std::int64_t bytes = size_of(dtype);
  for (std::size_t dim = 1; dim < shape.size(); ++dim) bytes *= shape[dim];
  return static_cast<std::uint64_t>(bytes);
}

std::string shown(const std::set<std::string>& lines) {
  std::vector<std::string> first;
  for (const std::string& line : lines) {
    if (first.size() < kMostShown) first.push_back(line);
  }
  const std::size_t more = lines.size() - first.size();
  return join(first) + (more == 0 ? "" : " ... and " + std::to_string(more) + " more");
}

// Finds out where each tensor of the module is in the files, and what does not fit.
class Search {
 public:
  Search(const ModelFolder& model, const std::vector<Member>& members, const HfOptions& options)
      : options_(options) {
    for (std::size_t file = 0; file < model.files.size(); ++file) {
      for (const FileTensor& tensor : model.files[file].header.tensors) {
        const std::uint64_t begin = model.files[file].data_begin + tensor.begin;
        there_[tensor.name] = {&tensor, {file, begin, 0, tensor.bytes()}};
      }
    }
    for (const Member& member : members) {
      for (const std::string& name : member.names) here_[name] = member.tensor;
    }
  }

  void find(const Member& member) {
    for (const std::string& name : member.names) {
      const Meaning meaning = meaning_of(name, options_);
      const bool is_there = std::ranges::all_of(
          meaning.theirs, [&](const std::string& one) { return there_.contains(one); });
      const bool has_others = std::ranges::all_of(
          meaning.ours, [&](const std::string& one) { return here_.contains(one); });
      if (!is_there || !has_others) continue;
      take(name, member.tensor, meaning);
      return;
    }
    if (!matches_any(options_.without, member.names.front())) missing_.insert(member.names.front());
  }

  // UsageError unless all fits.
  std::vector<SourcedTensor> result(const std::string& folder) && {
    std::set<std::string> extra;
    for (const auto& [name, one] : there_) {
      if (!used_.contains(name) && !matches_any(options_.ignored, name)) extra.insert(name);
    }
    if (missing_.empty() && extra.empty() && wrong_.empty()) return std::move(tensors_);
    UsageError error("the weights of a folder do not fit the module");
    std::move(error).fact("folder", folder);
    if (!missing_.empty()) std::move(error).fact("missing", shown(missing_));
    if (!extra.empty()) std::move(error).fact("extra", shown(extra));
    if (!wrong_.empty()) std::move(error).fact("wrong", shown(wrong_));
    throw std::move(error).hint(
        "names says what weights are called in the files; without and ignored pass over some");
  }

 private:
  struct There {
    const FileTensor* tensor = nullptr;
    FilePiece place;
  };

  void take(const std::string& name, const at::Tensor& tensor, const Meaning& meaning) {
    std::vector<Shape> ours, theirs;
    std::vector<FilePiece> places;
    for (const std::string& one : meaning.ours) ours.push_back(here_.at(one).sizes().vec());
    for (const std::string& one : meaning.theirs) {
      used_.insert(one);
      theirs.push_back(there_.at(one).tensor->shape);
      places.push_back(there_.at(one).place);
    }
    const FileTensor& first = *there_.at(meaning.theirs.front()).tensor;
    const std::string both =
        name + " (" + to_string(first) + " in the files, " +
        to_string(dense(TensorMeta(tensor.sizes().vec(), dtype_of(tensor.scalar_type())))) +
        " here)";
    const Shape& mine = ours[meaning.index];
    const bool are_alike =
        std::ranges::all_of(ours, [&](const Shape& one) { return have_alike_rows(one, mine); }) &&
        std::ranges::all_of(theirs, [&](const Shape& one) { return have_alike_rows(one, mine); }) &&
        row_ranges(ours).back().end == row_ranges(theirs).back().end;
    if (!are_alike) {
      wrong_.insert(both + ", another shape");
    } else if (const std::string why = why_not(tensor, meaning); !why.empty()) {
      wrong_.insert(both + ", " + why);
    } else {
      const DType dtype = *first.dtype->dtype;
      tensors_.push_back({tensor, scalar_type_of(dtype),
                          pieces_of(row_ranges(ours)[meaning.index], row_ranges(theirs), places,
                                    row_bytes_of(mine, dtype))});
    }
  }

  // Why its elements cannot become ours; empty: they can.
  std::string why_not(const at::Tensor& tensor, const Meaning& meaning) const {
    const DType ours = dtype_of(tensor.scalar_type());
    const FileDType* type = there_.at(meaning.theirs.front()).tensor->dtype;
    for (const std::string& one : meaning.theirs) {
      if (there_.at(one).tensor->dtype != type) return "joined with one of another type";
    }
    if (!type->dtype || !libtorch_has(*type->dtype)) return "which libtorch lacks";
    if (*type->dtype == ours) return "";
    if (type->bits <= 8) return "quantized";
    if (is_floating(*type->dtype) && is_floating(ours)) return "";
    return "another type";
  }

  const HfOptions& options_;
  std::map<std::string, There> there_;
  std::map<std::string, at::Tensor> here_;
  std::set<std::string> used_, missing_, wrong_;
  std::vector<SourcedTensor> tensors_;
};

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
bool is_left_out(const std::string& name, const Meaning& meaning, const HfOptions& options) {
  const bool is_without = matches_any(options.without, name);
  for (const std::string& one : meaning.ours) {
    if (matches_any(options.without, one) == is_without) continue;
    throw UsageError("weights that are joined in files are left out in part")
        .fact("weight", in_quotes(name))
        .fact("with", in_quotes(one))
        .hint("let without match all of them, or none");
  }
  return is_without;
}

Export plan_export(const std::vector<Member>& members, const HfOptions& options) {
  std::map<std::string, at::Tensor> here;  // under the names by which they are written
  for (const Member& member : members) here[member.names.front()] = member.tensor;
  Export plan;
  for (const Member& member : members) {
    const std::string& name = member.names.front();
    const Meaning meaning = meaning_of(name, options);
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

void load_hf(torch::nn::Module& module, const std::string& folder, const DeviceMesh& mesh,
             const HfOptions& options) {
  check_names(options);
  const CommLabel label("load_hf");
  const Group group = World::of(mesh).group();
  const std::shared_ptr<FileLayer> files = disk_files();
  std::string bytes;
  together(group, [&] {
    if (group.index() == 0) bytes = model_folder_bytes(*files, folder);
  });
  const ModelFolder model = parse_model_folder(broadcast_text(group, bytes, 0));
  std::vector<SourcedTensor> tensors;
  together(group, [&] {
    const std::vector<Member> members = members_of(module);
    Search search(model, members, options);
    for (const Member& member : members) search.find(member);
    tensors = std::move(search).result(folder);
  });
  std::vector<SourceFile> sources;
  for (const ModelFile& file : model.files) {
    sources.push_back({folder + "/" + file.name, file.size});
  }
  read_tensors(group, *files, sources, tensors);
}

void export_hf(torch::nn::Module& module, const std::string& folder, const DeviceMesh& mesh,
               const HfOptions& options) {
  check_names(options);
  const CommLabel label("export_hf");
  const World world = World::of(mesh);
  const Group group = world.group();
  const std::shared_ptr<FileLayer> files = disk_files();
  const std::string path = folder + ".tmp";
  Export plan;
  FilePlan planned;
  together(group, [&] {
    plan = plan_export(members_of(module), options);
    FilePlanOptions how;
    how.stem = "model";
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

}  // namespace tegula
