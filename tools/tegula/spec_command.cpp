#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ostream>

#include "tegula/base/table.h"
#include "tegula/base/text.h"
#include "tegula/spec/slices.h"
#include "tools/tegula/commands.h"
#include "tools/tegula/drawing.h"

namespace tegula::cli {
namespace {

constexpr std::int64_t kUsualRanks = 32;
constexpr std::int64_t kMostIntervalsListed = 16;

// "0:5", "0:3, 8:11", or the first few of many.
std::string intervals_text(const DimCut& cut, const Coordinate& at) {
  if (cut.most_intervals() > kMostIntervalsListed * kMostIntervalsListed) {
    return counted(cut.local_size(at), "element", "elements") + " in many blocks";
  }
  std::vector<Interval> intervals = cut.intervals(at);
  const auto count = static_cast<std::int64_t>(intervals.size());
  if (count == 1) return to_string(intervals);
  if (count <= kMostIntervalsListed) return "(" + to_string(intervals) + ")";
  intervals.resize(static_cast<std::size_t>(kMostIntervalsListed));
  return "(" + to_string(intervals) + ", ... " + std::to_string(count - kMostIntervalsListed) +
         " more)";
}

std::string slice_text(const DTensorSpec& spec, const Coordinate& at) {
  std::vector<std::string> texts;
  for (const DimCut& cut : spec.dim_cuts()) texts.push_back(intervals_text(cut, at));
  return "[" + join(texts) + "]";
}

void print_slices(const DTensorSpec& spec, std::int64_t shown, std::ostream& out) {
  const DeviceMesh& mesh = spec.mesh();
  std::vector<std::string> head{"rank"};
  for (const MeshAxis& axis : mesh.axes()) head.push_back(axis.name);
  head.insert(head.end(), {"slice", "local shape", "bytes"});
  Table table(head);
  for (std::int64_t index = 0; index < shown; ++index) {
    const Coordinate at = mesh.coordinate_at(index);
    std::vector<std::string> row{std::to_string(mesh.rank_at(at))};
    for (std::int64_t coordinate : at) row.push_back(std::to_string(coordinate));
    const Shape shape = local_shape(spec, at);
    const std::int64_t bytes =
        TensorMeta(shape, spec.meta().dtype()).numel() * size_of(spec.meta().dtype());
    row.insert(row.end(), {slice_text(spec, at), bracketed(shape), std::to_string(bytes)});
    table.add(std::move(row));
  }
  table.print(out);
}

Colour colour_of_terminal() {
  return isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr ? Colour::Ansi
                                                                          : Colour::Plain;
}

}  // namespace

int show_spec(const SpecCall& call, std::ostream& out) {
  const DTensorSpec spec = parse_spec(call.text);
  const DeviceMesh& mesh = spec.mesh();
  out << "spec    " << spec << '\n';
  out << "whole   " << counted(spec.meta().numel(), "element", "elements");
  if (mesh.fiber_count() > 1)
    out << "; in each of " << mesh.fiber_count() << " fibers, of which this is the first";
  out << "\n\n";
  const std::int64_t shown = call.all ? mesh.size() : std::min(mesh.size(), kUsualRanks);
  print_slices(spec, shown, out);
  if (shown < mesh.size())
    out << "... and " << mesh.size() - shown << " ranks more (--all lists them)\n";
  const std::string picture = draw(spec, colour_of_terminal());
  if (!picture.empty()) out << '\n' << picture;
  return 0;
}

}  // namespace tegula::cli
