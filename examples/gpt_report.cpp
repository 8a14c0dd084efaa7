#include "gpt_report.h"

#include <tegula/base/table.h>
#include <tegula/base/text.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

namespace gpt {
namespace {

using namespace tegula;

std::string in_digits(const char* format, double value) {
  char text[48];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string in_bytes(double bytes) {
  if (bytes < 1e3) return in_digits("%.0f B", bytes);
  if (bytes < 1e6) return in_digits("%.1f kB", bytes / 1e3);
  return in_digits(bytes < 1e8 ? "%.2f MB" : "%.0f MB", bytes / 1e6);
}

report::Amount amount(std::int64_t bytes) {
  return {static_cast<double>(bytes), in_bytes(static_cast<double>(bytes))};
}

report::Section losses_of(const Record& record) {
  const std::size_t checked = record.alone.size();
  const std::vector<double> first(record.losses.begin(),
                                  record.losses.begin() + static_cast<std::ptrdiff_t>(checked));
  const std::size_t averaged = record.losses.size() > 200 ? 20 : 1;
  const std::string ranks =
      counted(static_cast<std::int64_t>(record.memory.size()), "rank", "ranks");
  return {"Loss",
          "One rank with plain tensors repeats the first " + std::to_string(checked) +
              " steps: its losses differ by at most " + in_digits("%.1e", record.difference) +
              ", relative to them (allowed: " + in_digits("%.0e", record.tolerance) + ").",
          {report::LineChart{"All steps", "step", "loss", {{ranks, record.losses, averaged}}},
           report::LineChart{"The first steps, distributed and alone",
                             "step",
                             "loss",
                             {{ranks, first}, {"one rank, plain tensors", record.alone}}}}};
}

// The last axis runs across, all others down.
std::int64_t columns_of(const DeviceMesh& mesh) { return mesh.axes().back().size; }

report::Grid grid_of(const DeviceMesh& mesh) {
  report::Grid grid{"mesh " + to_string(mesh), "", mesh.axes().back().name, {}};
  for (std::size_t i = 0; i + 1 < mesh.ndim(); ++i) {
    grid.rows += (i == 0 ? "" : ", ") + mesh.axes()[i].name;
  }
  const std::vector<std::int64_t> ranks = mesh.ranks();
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i % static_cast<std::size_t>(columns_of(mesh)) == 0) grid.cells.emplace_back();
    grid.cells.back().push_back("rank " + std::to_string(ranks[i]));
  }
  return grid;
}

// What one rank holds of the first two dims; a vector is a column.
std::vector<report::Rectangle> held_at(const DTensorSpec& spec, const Coordinate& coordinate) {
  const TensorSlice slice = slice_at(spec, coordinate);
  const auto along = [&](std::size_t dim) {
    if (dim < slice.size()) return slice[dim];
    return std::vector<Interval>{{0, 1}};
  };
  const auto fraction = [&](std::size_t dim, std::int64_t at) {
    const std::int64_t size = dim < slice.size() ? spec.shape()[dim] : 1;
    return static_cast<double>(at) / static_cast<double>(std::max<std::int64_t>(size, 1));
  };
  std::vector<report::Rectangle> held;
  for (const Interval& rows : along(0)) {
    for (const Interval& columns : along(1)) {
      held.push_back({fraction(0, rows.begin), fraction(1, columns.begin), fraction(0, rows.end()),
                      fraction(1, columns.end())});
    }
  }
  return held;
}

std::int64_t elements_at(const DTensorSpec& spec, const Coordinate& coordinate) {
  std::int64_t count = 1;
  for (const std::int64_t size : local_shape(spec, coordinate)) count *= size;
  return count;
}

// Four times the elements are twice as long on paper: small ones stay visible.
double on_paper(const DTensorSpec& spec, std::size_t dim) {
  if (dim >= spec.shape().size()) return 6;
  return std::clamp(2.2 * std::sqrt(static_cast<double>(spec.shape()[dim])), 8.0, 50.0);
}

report::CutMatrix matrix_of(const std::string& name, const DTensorSpec& spec) {
  const DeviceMesh& mesh = spec.mesh();
  report::CutMatrix matrix{{name}, {}, on_paper(spec, 0), on_paper(spec, 1), {}};
  std::int64_t most = 0;
  for (std::int64_t i = 0; i < mesh.size(); ++i) {
    const Coordinate coordinate = mesh.coordinate_at(i);
    if (i % columns_of(mesh) == 0) matrix.held.emplace_back();
    matrix.held.back().push_back(held_at(spec, coordinate));
    most = std::max(most, elements_at(spec, coordinate));
  }
  const std::int64_t all = spec.meta().numel();
  matrix.notes = {to_string(spec.meta()) + " as " + to_string(spec.placements()),
                  most == all ? "whole on every rank"
                              : in_digits("%.0f%% on each rank", 100.0 * static_cast<double>(most) /
                                                                     static_cast<double>(all))};
  return matrix;
}

// "blocks.0.up.weight" -> "blocks.*.up.weight"
std::string without_numbers(const std::string& name) {
  std::string result;
  for (const char c : name) {
    if (c < '0' || c > '9') {
      result += c;
    } else if (result.ends_with('.')) {
      result += '*';
    } else if (!result.ends_with(".*")) {
      result += c;
    }
  }
  return result;
}

// Parameters of equal specs are drawn once, and blocks that are alike are named once.
report::Section holders_of(const Record& record) {
  report::CutMatrices pictures{grid_of(record.batch.mesh()),
                               {matrix_of("a batch of characters", record.batch)}};
  std::map<std::uint64_t, std::size_t> drawn;
  for (const auto& [name, spec] : record.parameters) {
    const std::string shown = without_numbers(name);
    const auto [known, is_new] = drawn.emplace(spec.id(), pictures.matrices.size());
    if (is_new) {
      pictures.matrices.push_back(matrix_of(shown, spec));
      continue;
    }
    std::vector<std::string>& names = pictures.matrices[known->second].names;
    if (std::find(names.begin(), names.end(), shown) == names.end()) names.push_back(shown);
  }
  return {"Who holds what",
          "Each tensor once per rank, arranged as the mesh is; what the rank holds of it is "
          "filled. Dim 0 runs "
          "down, dim 1 across. R: replicated along that axis, S(0): cut along dim 0, S(1): along "
          "dim 1.",
          {pictures}};
}

std::string call_of(const CommEntry& entry) {
  std::string text(name_of(entry.kind));
  std::replace(text.begin(), text.end(), '_', '-');
  if (entry.reduction) text += " " + std::string(name_of(*entry.reduction));
  return text;
}

report::Section communication_of(const Record& record) {
  const auto steps = static_cast<double>(record.losses.size());
  std::map<std::string, std::int64_t> by_axis;
  report::Table table{{"axis", "call", "for", "calls per step", "bytes per step", "ms per step"},
                      {}};
  double seconds = 0;
  for (const CommTotal& total : by_bytes(record.communication)) {
    const CommEntry& entry = total.entry;
    by_axis[entry.axis + ": " + call_of(entry)] += entry.bytes;
    seconds += entry.seconds;
    table.rows.push_back({entry.axis, call_of(entry), entry.op,
                          in_digits("%.3g", static_cast<double>(total.calls) / steps),
                          in_thousands(std::llround(static_cast<double>(entry.bytes) / steps)),
                          in_digits("%.3f", 1e3 * entry.seconds / steps)});
  }
  report::BarChart bars{"Bytes in a step, by axis and kind of call", {"bytes"}, {}};
  for (const auto& [name, bytes] : by_axis) {
    const std::string text = in_bytes(static_cast<double>(bytes) / steps);
    bars.bars.push_back({name, {{static_cast<double>(bytes) / steps, text}}, text});
  }
  std::string lead = "What rank 0 gives to collectives while it trains.";
  if (bars.bars.empty()) return {"Communication", "One rank alone sends nothing.", {}};
  lead += " They hold it up for " + in_digits("%.0f%%", 100 * seconds / record.seconds) +
          " of the time, waiting for the other ranks included.";
  return {"Communication", lead, {bars, table}};
}

report::Section memory_of(const Record& record) {
  report::BarChart bars{
      "Bytes of tiles", {"parameters", "gradients", "state of the optimizer"}, {}};
  report::Table table{{"rank", "parameters", "expected", "gradients", "expected",
                       "state of the optimizer", "expected", "peak of the process"},
                      {}};
  const auto add_bar = [&](const std::string& name, const RankMemory& memory) {
    bars.bars.push_back(
        {name,
         {amount(memory.parameters), amount(memory.gradients), amount(memory.state)},
         amount(memory.parameters + memory.gradients + memory.state).text});
  };
  for (std::size_t rank = 0; rank < record.memory.size(); ++rank) {
    const RankMemory& held = record.memory[rank];
    const MemoryBytes& expected = record.expected.ranks.at(rank);
    add_bar("rank " + std::to_string(rank), held);
    table.rows.push_back({std::to_string(rank), in_thousands(held.parameters),
                          in_thousands(expected.parameters), in_thousands(held.gradients),
                          in_thousands(expected.gradients), in_thousands(held.state),
                          in_thousands(expected.state), amount(held.peak).text});
  }
  const MemoryBytes& alone = record.expected_alone.ranks.front();
  add_bar("one rank alone", {alone.parameters, alone.gradients, alone.state, 0});
  return {"Memory",
          "What each rank's tiles take after the last step, and what the specs let expect; the "
          "peak is that of the "
          "whole process, libtorch's own code and the activations included.",
          {bars, table}};
}

std::vector<report::Figure> figures_of(const Record& record) {
  double seconds = 0;
  for (const CommTotal& total : record.communication) seconds += total.entry.seconds;
  std::int64_t peak = 0;
  for (const RankMemory& memory : record.memory) peak = std::max(peak, memory.peak);
  return {{record.difference <= record.tolerance ? "the same" : "NOT THE SAME",
           "losses as on one rank"},
          {in_digits("%.2f", record.losses.back()), "loss at the end"},
          {in_thousands(std::llround(record.tokens / record.seconds)), "characters per second"},
          {in_digits("%.0f%%", 100 * seconds / record.seconds), "of the time communicating"},
          {in_digits("%.0f%%", 100.0 * static_cast<double>(record.expected.fullest().parameters) /
                                   static_cast<double>(record.expected_alone.fullest().parameters)),
           "of the parameters on a rank"},
          {amount(peak).text, "peak of the fullest process"}};
}

}  // namespace

report::Page page_of(const Record& record) {
  return {"A small GPT on the mesh " + to_string(record.batch.mesh()),
          "Trained on text, character by character, for " +
              counted(static_cast<std::int64_t>(record.losses.size()), "step", "steps") +
              ": data parallel over dp, tensor parallel over tp.",
          figures_of(record),
          {losses_of(record),
           holders_of(record),
           communication_of(record),
           memory_of(record),
           {"What it writes now",
            "Characters drawn one after the other from the model.",
            {report::Verbatim{record.sample}}}}};
}

}  // namespace gpt
