// Printing and reading of meshes; device_mesh.h shows the forms.
#include <limits>
#include <ostream>

#include "tegula/base/error.h"
#include "tegula/base/text.h"
#include "tegula/mesh/mesh_state.h"

namespace tegula {

using namespace inner;

namespace {

constexpr std::string_view kForm = "\"dp=2, tp=4\"";
constexpr std::size_t kShortestRun = 3;

std::string backend_text(const AxisBackend& backend) {
  if (backend == AxisBackend{}) return "";
  std::string text = "@" + backend.name;
  if (backend.options.empty()) return text;
  std::vector<std::string> options;
  for (const auto& [key, value] : backend.options) options.push_back(key + "=" + value);
  return text + "{" + join(options) + "}";
}

AxisBackend read_backend(Scanner& scan) {
  AxisBackend backend;
  if (!scan.accept("@")) return backend;
  if (!scan.next_is("{")) backend.name = scan.identifier();
  if (!scan.accept("{") || scan.accept("}")) return backend;
  do {
    const std::string key = scan.identifier();
    scan.expect("=");
    backend.options[key] = scan.word();
  } while (scan.accept(","));
  scan.expect("}");
  return backend;
}

// 4:8 for 4, 5, 6, 7. No number comes after the greatest, which therefore ends no range.
std::string ranks_text(const std::vector<std::int64_t>& ranks) {
  std::vector<std::string> texts;
  for (std::size_t begin = 0; begin < ranks.size();) {
    std::size_t end = begin + 1;
    const auto is_next = [&](std::int64_t rank) {
      return rank - 1 == ranks[end - 1] && rank < std::numeric_limits<std::int64_t>::max();
    };
    while (end < ranks.size() && is_next(ranks[end])) ++end;
    if (end - begin < kShortestRun) end = begin + 1;
    texts.push_back(end == begin + 1
                        ? std::to_string(ranks[begin])
                        : std::to_string(ranks[begin]) + ":" + std::to_string(ranks[end - 1] + 1));
    begin = end;
  }
  return "[" + join(texts) + "]";
}

// Of a mesh of so many ranks. A range that is longer is not written out.
std::vector<std::int64_t> read_ranks(Scanner& scan, std::int64_t size) {
  std::vector<std::int64_t> ranks;
  scan.expect("[");
  if (scan.accept("]")) return ranks;
  do {
    const std::int64_t begin = scan.integer();
    if (!scan.accept(":")) {
      ranks.push_back(begin);
      continue;
    }
    const std::int64_t end = scan.integer();
    if (begin < 0 || end < begin) scan.fail("a range of ranks such as 4:8 before this");
    if (end - begin > size - static_cast<std::int64_t>(ranks.size())) {
      throw UsageError("a mesh of " + counted(size, "rank", "ranks") +
                       " cannot be laid over a longer range of them")
          .fact("range", std::to_string(begin) + ":" + std::to_string(end))
          .hint("list as many ranks as the sizes multiply to");
    }
    for (std::int64_t rank = begin; rank < end; ++rank) ranks.push_back(rank);
  } while (scan.accept(","));
  scan.expect("]");
  return ranks;
}

// One axis as it is written: its layout is given only if it has to be.
struct WrittenAxis {
  MeshAxis axis;
  std::optional<Layout> layout;
};

WrittenAxis read_axis(Scanner& scan) {
  WrittenAxis written;
  written.axis.name = scan.identifier();
  scan.expect("=");
  const IntTuple shape = read_int_tuple(scan);
  if (scan.accept(":")) {
    written.layout = coalesce(Layout(shape, read_int_tuple(scan)));
    written.axis.size = written.layout->size();
  } else if (shape.is_int()) {
    written.axis.size = shape.value();
  } else {
    scan.fail("\":\" and strides");
  }
  written.axis.backend = read_backend(scan);
  return written;
}

std::vector<WrittenAxis> read_axes(Scanner& scan) {
  std::vector<WrittenAxis> axes;
  const bool parenthesized = scan.accept("(");
  do {
    axes.push_back(read_axis(scan));
  } while (scan.accept(","));
  if (parenthesized) scan.expect(")");
  return axes;
}

// A device type is a word before the parenthesis: "cuda (dp=2)".
std::string read_device_type(Scanner& scan) {
  Scanner ahead = scan;
  if (ahead.next_is("(") || ahead.at_end()) return "cpu";
  std::string word = ahead.word();
  if (!ahead.next_is("(")) return "cpu";
  scan = ahead;
  return word;
}

DeviceMesh read_root(Scanner& scan) {
  std::string device_type = read_device_type(scan);
  std::vector<MeshAxis> axes;
  for (WrittenAxis& written : read_axes(scan)) {
    if (written.layout) scan.fail("\"of\" and a root, since an axis is given with strides,");
    axes.push_back(std::move(written.axis));
  }
  std::vector<std::int64_t> ranks;
  if (scan.accept_word("over")) {
    ranks = read_ranks(scan, inner::check_sizes(axes));
    if (ranks.empty())
      throw UsageError("a mesh cannot be laid over no ranks").hint("list its ranks: over [0, 1]");
  }
  return DeviceMesh(std::move(axes), std::move(ranks), std::move(device_type));
}

UsageError no_such_axis(const MeshAxis& axis, const DeviceMesh& root) {
  return UsageError("the root has no axis " + axis.name + "=" + std::to_string(axis.size))
      .fact("root", to_string(root))
      .hint("an axis that is none of the root's needs its strides: " + axis.name + "=" +
            std::to_string(axis.size) + ":1");
}

}  // namespace

std::string to_string(const DeviceMesh& mesh) {
  const DeviceMesh root = mesh.root();
  const bool is_root = mesh == root;
  std::vector<std::string> texts;
  for (std::size_t index = 0; index < mesh.ndim(); ++index) {
    const MeshAxis& axis = mesh.axes()[index];
    const Layout& layout = mesh.state_->layouts[index];
    bool of_root = false;
    for (std::size_t i = 0; i < root.ndim(); ++i) {
      of_root |= root.axes()[i] == axis && root.state_->layouts[i] == layout;
    }
    texts.push_back(axis.name + "=" + (of_root ? std::to_string(axis.size) : to_string(layout)) +
                    backend_text(of_root && !is_root ? AxisBackend{} : axis.backend));
  }
  std::string text = "(" + join(texts) + ")";
  if (!is_root) return text + " of " + to_string(root);
  const DeviceMesh::Root& facts = *mesh.state_->root;
  if (facts.device_type != "cpu") text = facts.device_type + " " + text;
  if (!facts.ranks.empty()) text += " over " + ranks_text(facts.ranks);
  return text;
}

std::ostream& operator<<(std::ostream& out, const DeviceMesh& mesh) {
  return out << to_string(mesh);
}

DeviceMesh parse_mesh(Scanner& scan) {
  Scanner ahead = scan;
  if (!ahead.accept("(")) return read_root(scan);
  ahead = scan;
  const std::vector<WrittenAxis> written = read_axes(ahead);
  if (!ahead.accept_word("of")) return read_root(scan);
  scan = ahead;
  const DeviceMesh root = read_root(scan);
  std::vector<MeshAxis> axes;
  std::vector<Layout> layouts;
  for (const WrittenAxis& one : written) {
    if (one.layout) {
      axes.push_back(one.axis);
      layouts.push_back(*one.layout);
      continue;
    }
    std::size_t index = 0;
    while (index < root.ndim() && root.axes()[index].name != one.axis.name) ++index;
    if (index == root.ndim() || root.axes()[index].size != one.axis.size)
      throw no_such_axis(one.axis, root);
    axes.push_back(root.axes()[index]);
    layouts.push_back(root.state_->layouts[index]);
  }
  return root.over_root(std::move(axes), std::move(layouts));
}

DeviceMesh parse_mesh(std::string_view text) {
  Scanner scan(text, "a mesh", kForm);
  DeviceMesh mesh = parse_mesh(scan);
  scan.expect_end();
  return mesh;
}

}  // namespace tegula
