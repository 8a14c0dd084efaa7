// The idea: a weight of ours is a run of rows of what files have, joined. So it is a list of pieces
// of files, by which it is read like any other tensor (tensor_reader.h).
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
#include "tegula/comm/together.h"
#include "tegula/files/model_folder.h"
#include "tegula/io/hf_weights.h"
#include "tegula/io/tensor_reader.h"

namespace tegula {

using namespace inner;

namespace {

constexpr std::size_t kMostShown = 12;

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
  Search(const ModelFolder& model, const std::vector<ModuleMember>& members,
         const HfOptions& options)
      : options_(options) {
    for (std::size_t file = 0; file < model.files.size(); ++file) {
      for (const FileTensor& tensor : model.files[file].header.tensors) {
        const std::uint64_t begin = model.files[file].data_begin + tensor.begin;
        there_[tensor.name] = {&tensor, {file, begin, 0, tensor.bytes()}};
      }
    }
    for (const ModuleMember& member : members) {
      for (const std::string& name : member.names) here_[name] = member.tensor;
    }
  }

  void find(const ModuleMember& member) {
    for (const std::string& name : member.names) {
      const HfMeaning meaning = meaning_of(name, options_);
      const bool is_there = std::ranges::all_of(
          meaning.theirs, [&](const std::string& one) { return there_.contains(one); });
      const bool has_others = std::ranges::all_of(
          meaning.ours, [&](const std::string& one) { return here_.contains(one); });
      if (!is_there || !has_others) continue;
      take(name, member.tensor, meaning);
      for (const std::string& alias : member.names) {
        for (const std::string& one : meaning_of(alias, options_).theirs) used_.insert(one);
      }
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

  void take(const std::string& name, const at::Tensor& tensor, const HfMeaning& meaning) {
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
  std::string why_not(const at::Tensor& tensor, const HfMeaning& meaning) const {
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

}  // namespace

void inner::load_hf_members(const std::vector<ModuleMember>& members, const std::string& folder,
                            const World& world, const HfOptions& options) {
  check_names(options);
  const CommLabel label("load_hf");
  const Group group = world.group();
  const std::shared_ptr<FileLayer> files = disk_files();
  std::string bytes;
  together(group, [&] {
    if (group.index() == 0) bytes = model_folder_bytes(*files, folder);
  });
  const ModelFolder model = parse_model_folder(broadcast_text(group, bytes, 0));
  std::vector<SourcedTensor> tensors;
  together(group, [&] {
    Search search(model, members, options);
    for (const ModuleMember& member : members) search.find(member);
    tensors = std::move(search).result(folder);
  });
  std::vector<SourceFile> sources;
  for (const ModelFile& file : model.files) {
    sources.push_back({folder + "/" + file.name, file.size});
  }
  read_tensors(group, *files, sources, tensors);
}

void load_hf(torch::nn::Module& module, const std::string& folder, const DeviceMesh& mesh,
             const HfOptions& options) {
  load_hf_members(members_of(module), folder, World::of(mesh), options);
}

}  // namespace tegula
