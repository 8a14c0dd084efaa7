// The idea: every rank describes what it has, one line each; lines of one name have to agree.
#include "tegula/io/inventory.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <set>

#include "tegula/base/error.h"
#include "tegula/base/text.h"
#include "tegula/bridge/torch_types.h"
#include "tegula/comm/together.h"
#include "tegula/files/crc32c.h"
#include "tegula/tensor/dtensor.h"

namespace tegula::inner {
namespace {

constexpr char kBetweenParts = '\x1f';
constexpr std::string_view kPlain = "plain ";

void check_name(const std::string& name) {
  const bool is_fine = !name.empty() && std::ranges::none_of(name, [](char c) {
    return static_cast<unsigned char>(c) < 0x20;
  });
  if (is_fine) return;
  throw UsageError("a name in a state is empty or has characters that do not print")
      .fact("name", in_quotes(name));
}

std::vector<std::string> split(const std::string& text, char mark) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find(mark, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// Row-major bytes of a plain tensor.
std::uint32_t checksum_of(const at::Tensor& tensor) {
  const at::Tensor dense =
      tensor.detach().resolve_conj().resolve_neg().to(host_device()).contiguous();
  return crc32c({static_cast<const std::byte*>(dense.const_data_ptr()), dense.nbytes()});
}

// Name, type and shape, and where it is: lines of all ranks that have it are the same.
std::string line_of(const StateTensor& entry, const World& world) {
  const NamedTensor named = described(entry);
  std::string place;
  if (is_dtensor(entry.tensor)) {
    place = to_string(spec_of(entry.tensor));
  } else {
    place = std::string(kPlain) + std::to_string(world.size() == 1 ? 0 : checksum_of(entry.tensor));
  }
  return named.name + kBetweenParts + to_string(TensorMeta(named.shape, named.dtype)) +
         kBetweenParts + place;
}

std::string line_of(const NamedValue& value) {
  check_name(value.name);
  return value.name + kBetweenParts + to_string(value.value);
}

std::string lines_of(const Saved& saved, const World& world) {
  std::string lines;
  for (const StateTensor& tensor : saved.tensors) lines += "t" + line_of(tensor, world) + "\n";
  for (const NamedValue& value : saved.values) lines += "v" + line_of(value) + "\n";
  return lines;
}

std::string own_lines_of(const Saved& saved) {
  std::string lines;
  for (const NamedValue& value : saved.per_rank) lines += "r" + line_of(value) + "\n";
  for (const NamedValue& value : saved.perhaps_same) lines += "s" + line_of(value) + "\n";
  return lines;
}

void check_twice(const std::vector<std::string>& lines) {
  std::set<std::string> names;
  for (const std::string& line : lines) {
    const std::string name = line.substr(1, line.find(kBetweenParts) - 1);
    if (names.insert(line.front() + name).second) continue;
    throw UsageError("two things of a state have one name").fact("name", in_quotes(name));
  }
}

// One line per name, from the first rank that has it.
class Merge {
 public:
  void add(int rank, const std::string& text) {
    const std::vector<std::string> lines = split(text, '\n');
    check_twice(lines);
    for (const std::string& line : lines) {
      const std::string key = line.substr(0, line.find(kBetweenParts));
      const auto [found, is_new] = lines_.try_emplace(key, Line{rank, line});
      if (!is_new && found->second.text != line) refuse(key.substr(1), found->second, rank, line);
    }
  }

  Inventory result() const {
    Inventory inventory;
    for (const auto& [key, line] : lines_) {
      const std::vector<std::string> parts = split(line.text.substr(1), kBetweenParts);
      if (key.front() == 'v') {
        inventory.values[parts[0]] = parse_file_value(parts[1]);
        continue;
      }
      const TensorMeta meta = parse_tensor_meta(parts[1]);
      inventory.tensors.push_back({parts[0], meta.dtype(), meta.shape()});
      if (parts[2].starts_with(kPlain)) inventory.plain[parts[0]] = line.rank;
    }
    return inventory;
  }

 private:
  struct Line {
    int rank;
    std::string text;
  };

  [[noreturn]] static void refuse(const std::string& name, const Line& one, int rank,
                                  const std::string& other) {
    const auto shown = [](const std::string& line) {
      const std::vector<std::string> parts = split(line.substr(1), kBetweenParts);
      if (parts.size() < 3) return parts[1];
      return parts[2].starts_with(kPlain)
                 ? parts[1] + ", plain, checksum " + parts[2].substr(kPlain.size())
                 : parts[2];
    };
    throw UsageError("ranks have different things under one name of a state")
        .fact("name", in_quotes(name))
        .fact("rank " + std::to_string(one.rank), shown(one.text))
        .fact("rank " + std::to_string(rank), shown(other))
        .hint(
            "distribute a tensor that differs; add a value of each rank's own by add_per_rank; "
            "give the parts of a pipeline names of their own");
  }

  std::map<std::string, Line> lines_;  // by kind and name
};

void merge_own(const std::vector<std::string>& texts, std::map<std::string, FileValue>& values) {
  const bool is_same =
      std::ranges::all_of(texts, [&](const std::string& text) { return text == texts.front(); });
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    for (const std::string& line : split(texts[rank], '\n')) {
      const std::vector<std::string> parts = split(line.substr(1), kBetweenParts);
      const bool is_of_rank = line.front() == 's' && !is_same;
      const std::string name = is_of_rank ? parts[0] + "@rank=" + std::to_string(rank) : parts[0];
      const FileValue value = parse_file_value(parts[1]);
      const auto [found, is_new] = values.try_emplace(name, value);
      if (is_new || (line.front() == 's' && is_same)) continue;
      throw UsageError("two things of a state have one name").fact("name", in_quotes(name));
    }
  }
}

}  // namespace

NamedTensor described(const StateTensor& entry) {
  check_name(entry.name);
  const bool is_dense = is_dtensor(entry.tensor) || entry.tensor.layout() == at::kStrided;
  if (!is_dense || entry.tensor.is_meta()) {
    throw UsageError("a checkpoint holds dense tensors with values")
        .fact("tensor", in_quotes(entry.name))
        .fact("is", entry.tensor.is_meta() ? "on the meta device" : "sparse");
  }
  return {entry.name, dtype_of(entry.tensor.scalar_type()), entry.tensor.sizes().vec()};
}

Inventory take_inventory(const World& world, const Saved& saved) {
  const Group group = world.group();
  std::string lines, own;
  together(group, [&] {
    lines = lines_of(saved, world);
    own = own_lines_of(saved);
  });
  const std::vector<std::string> texts = gather_unless_same(group, lines);
  Merge merge;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    merge.add(static_cast<int>(rank), texts[rank]);
  }
  Inventory inventory = merge.result();
  merge_own(gather_texts(group, own), inventory.values);
  return inventory;
}

}  // namespace tegula::inner
