// The idea: each rank compares its own wants with the checkpoint's index; what does not fit becomes
// lines of text, which the ranks exchange and sort, so that all throw the same report.
#include "tegula/io/fit.h"

#include <algorithm>
#include <map>
#include <set>

#include "tegula/base/error.h"
#include "tegula/base/text.h"
#include "tegula/bridge/torch_types.h"
#include "tegula/comm/together.h"
#include "tegula/files/rename.h"
#include "tegula/io/inventory.h"
#include "tegula/tensor/dtensor.h"
#include "tegula/tensor/name_patterns.h"

namespace tegula::inner {
namespace {

constexpr std::size_t kMostShown = 12;

// A checkpoint by the names of the state.
struct Index {
  std::map<std::string, FilePlace> tensors;
  std::map<std::string, StateValue> values;
};

Index index_of(const Contents& contents, const Renames& renames) {
  Index index;
  const auto check_new = [](bool is_new, const std::string& name) {
    if (is_new) return;
    throw UsageError("renaming gives two things of a checkpoint one name")
        .fact("name", in_quotes(name));
  };
  for (std::size_t file = 0; file < contents.headers.size(); ++file) {
    for (const FileTensor& tensor : contents.headers[file].tensors) {
      const std::string name = renamed(tensor.name, renames);
      check_new(index.tensors.try_emplace(name, FilePlace{file, &tensor}).second, name);
    }
  }
  for (const auto& [old, value] : contents.manifest.values) {
    const std::string name = renamed(old, renames);
    check_new(index.values.try_emplace(name, value).second, name);
  }
  return index;
}

Present present_in(const Index& index) {
  Present present;
  for (const auto& [name, place] : index.tensors) present.tensors[name] = place.tensor;
  present.values = index.values;
  return present;
}

bool is_asked(const std::string& name, const LoadOptions& options) {
  return options.only.empty() || std::ranges::any_of(options.only, [&](const std::string& one) {
           return matches(one, name);
         });
}

// What does not fit, one line each, under its heading.
class Problems {
 public:
  void add(const std::string& heading, const std::string& line) { lines_.insert({heading, line}); }
  std::string text() const {
    std::string text;
    for (const auto& [heading, line] : lines_) text += heading + '\x1f' + line + '\n';
    return text;
  }
  void add_text(const std::string& text) {
    std::size_t begin = 0;
    while (begin < text.size()) {
      const std::size_t end = text.find('\n', begin);
      const std::string line = text.substr(begin, end - begin);
      const std::size_t middle = line.find('\x1f');
      lines_.insert({line.substr(0, middle), line.substr(middle + 1)});
      begin = end + 1;
    }
  }
  std::vector<std::string> under(const std::string& heading) const {
    std::vector<std::string> lines;
    for (const auto& [one, line] : lines_) {
      if (one == heading) lines.push_back(line);
    }
    return lines;
  }
  std::vector<std::string> headings() const {
    std::set<std::string> names;
    for (const auto& [heading, line] : lines_) names.insert(heading);
    return {names.begin(), names.end()};
  }

 private:
  std::set<std::pair<std::string, std::string>> lines_;
};

std::string shown(std::vector<std::string> lines) {
  const std::size_t more = lines.size() - std::min(lines.size(), kMostShown);
  lines.resize(lines.size() - more);
  std::string text = join(lines);
  return more == 0 ? text : text + " ... and " + std::to_string(more) + " more";
}

void fit_tensor(const StateTensor& want, const Index& index, const LoadOptions& options, Fit& fit,
                Problems& problems) {
  const NamedTensor here = described(want);
  const auto found = index.tensors.find(want.name);
  if (found == index.tensors.end()) {
    problems.add("missing", want.name);
    return;
  }
  const FileTensor& there = *found->second.tensor;
  const std::string both = want.name + " (" + to_string(there) + " in the checkpoint, " +
                           to_string(TensorMeta(here.shape, here.dtype)) + " here)";
  const std::optional<DType> type = there.dtype->dtype;
  if (!type || !libtorch_has(*type)) {
    problems.add("dtype", both + ", which this libtorch lacks");
  } else if (*type != here.dtype && !options.cast) {
    problems.add("dtype", both);
  }
  if (there.shape != here.shape) problems.add("shape", both);
  if (is_dtensor(want.tensor) && spec_of(want.tensor).is_partial()) {
    problems.add("partial", want.name + " (" + to_string(spec_of(want.tensor)) + ")");
  }
  fit.tensors.push_back({want.tensor, found->second});
}

void fit_value(const Wants::Value& want, const Index& index, Fit& fit, Problems& problems) {
  const auto found = index.values.find(want.name);
  if (found == index.values.end()) {
    problems.add("missing", want.name);
  } else if (found->second.index() != want.like.index()) {
    problems.add("kind", want.name + " (" + kind_of(found->second) + " in the checkpoint, " +
                             kind_of(want.like) + " here)");
  } else {
    fit.values.push_back({found->second, want.set});
  }
}

// Names that some rank has a place for.
std::set<std::string> known_names(const Group& group, const Wants& wants) {
  std::set<std::string> mine(wants.known.begin(), wants.known.end());
  for (const StateTensor& one : wants.tensors) mine.insert(one.name);
  for (const Wants::Value& one : wants.values) mine.insert(one.name);
  const std::vector<std::string> sorted(mine.begin(), mine.end());
  std::set<std::string> names;
  for (const std::string& text : gather_unless_same(group, join(sorted, "\n"))) {
    std::size_t begin = 0;
    while (begin < text.size()) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      names.insert(text.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  return names;
}

[[noreturn]] void refuse(const Problems& problems, const std::string& path) {
  UsageError error("a checkpoint does not fit the state");
  std::move(error).fact("path", path);
  for (const std::string& heading : problems.headings()) {
    std::move(error).fact(heading, shown(problems.under(heading)));
  }
  throw std::move(error).hint(
      "strict = false leaves what is missing as it is; renames, only and cast help with others");
}

}  // namespace

Fit fit_together(const Group& group, const State& state, const Contents& contents,
                 const std::string& path, const LoadOptions& options) {
  const Index index = index_of(contents, options.renames);
  const Present present = present_in(index);
  Wants wants;
  Fit fit;
  Problems problems;
  together(group, [&] {
    for (const std::shared_ptr<StatePart>& part : state.parts()) part->list_wants(present, wants);
    std::erase_if(wants.tensors, [&](const auto& one) { return !is_asked(one.name, options); });
    std::erase_if(wants.values, [&](const auto& one) { return !is_asked(one.name, options); });
    std::erase_if(wants.finish, [&](const auto& one) { return !is_asked(one.name, options); });
    for (const std::string& line : wants.problems) problems.add("problem", line);
    for (const StateTensor& one : wants.tensors) fit_tensor(one, index, options, fit, problems);
    for (const Wants::Value& one : wants.values) fit_value(one, index, fit, problems);
  });
  const std::set<std::string> known = known_names(group, wants);
  const auto note_extra = [&](const auto& names) {
    for (const auto& [name, what] : names) {
      if (is_asked(name, options) && !known.contains(name)) problems.add("extra", name);
    }
  };
  note_extra(index.tensors);
  note_extra(index.values);
  const std::string text = problems.text();
  for (const std::string& other : gather_unless_same(group, text)) problems.add_text(other);
  fit.missing = problems.under("missing");
  fit.extra = problems.under("extra");
  std::vector<std::string> headings = problems.headings();
  if (!options.strict) {
    std::erase(headings, "missing");
    std::erase(headings, "extra");
  }
  if (!headings.empty()) refuse(problems, path);
  std::ranges::stable_sort(fit.tensors, {}, [](const Fit::Tensor& one) {
    return std::pair(one.place.file, one.place.tensor);
  });
  fit.finish = std::move(wants.finish);
  return fit;
}

}  // namespace tegula::inner
