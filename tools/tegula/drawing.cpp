// The idea: each mesh axis cuts one dim only, so the boxes form a grid: its lines are the ends of
// all intervals of the two dims, and the owners of a box are the owners of its first element.
#include "tools/tegula/drawing.h"

#include <algorithm>
#include <optional>
#include <set>

#include "tegula/spec/slices.h"

namespace tegula::cli {
namespace {

constexpr std::size_t kMostColumns = 12;
constexpr std::size_t kMostRows = 16;
constexpr std::int64_t kMostShards = 256;
constexpr std::size_t kMostRanksNamed = 4;
constexpr std::size_t kLeastWidth = 3;

// The places where a new interval begins, and the end of the dim.
std::vector<std::int64_t> lines_of(const DimCut& cut) {
  std::set<std::int64_t> lines{0, cut.size()};
  for (const Share& share : cut.owners({0, cut.size()})) lines.insert(share.whole.begin);
  return {lines.begin(), lines.end()};
}

std::string label_of(const std::vector<OwnedBox>& boxes) {
  std::string label;
  for (std::size_t index = 0; index < boxes.size() && index < kMostRanksNamed; ++index) {
    label += (index == 0 ? "" : " ") + std::to_string(boxes[index].rank);
  }
  if (boxes.size() > kMostRanksNamed)
    label += " +" + std::to_string(boxes.size() - kMostRanksNamed);
  return label;
}

struct Grid {
  std::vector<std::int64_t> row_lines;
  std::vector<std::int64_t> column_lines;
  std::vector<std::vector<std::string>> labels;
  std::vector<std::size_t> widths;  // of the columns
};

std::string coloured(const std::string& text, const std::string& label, Colour colour) {
  if (colour == Colour::Plain || label.empty()) return text;
  static constexpr int kColours[] = {36, 33, 32, 35, 34, 31, 96, 93, 92, 95, 94, 91};
  const std::size_t pick = std::stoul(label) % std::size(kColours);
  return "\033[" + std::to_string(kColours[pick]) + "m" + text + "\033[0m";
}

std::string rule(const Grid& grid, const char* left, const char* middle, const char* right) {
  std::string line = left;
  for (std::size_t column = 0; column < grid.widths.size(); ++column) {
    if (column > 0) line += middle;
    for (std::size_t i = 0; i < grid.widths[column]; ++i) line += "─";
  }
  return line + right;
}

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

std::string render(const Grid& grid, Colour colour) {
  std::size_t margin = 0;
  for (std::int64_t line : grid.row_lines) margin = std::max(margin, std::to_string(line).size());
  const std::string indent(margin + 1, ' ');
  std::string text = indent;
  for (std::size_t column = 0; column < grid.widths.size(); ++column) {
    text += padded(std::to_string(grid.column_lines[column]), grid.widths[column] + 1);
  }
  text += std::to_string(grid.column_lines.back()) + "\n";
  for (std::size_t row = 0; row < grid.labels.size(); ++row) {
    text += padded(std::to_string(grid.row_lines[row]), margin + 1);
    text +=
        (row == 0 ? rule(grid, "┌", "┬", "┐") : rule(grid, "├", "┼", "┤")) + "\n" + indent + "│";
    for (std::size_t column = 0; column < grid.widths.size(); ++column) {
      const std::string& label = grid.labels[row][column];
      text += coloured(padded(label, grid.widths[column]), label, colour) + "│";
    }
    text += "\n";
  }
  return text + padded(std::to_string(grid.row_lines.back()), margin + 1) +
         rule(grid, "└", "┴", "┘") + "\n";
}

// The dims that rows and columns of boxes stand for, where there is more than one.
struct Axes {
  std::optional<std::size_t> rows;
  std::optional<std::size_t> columns;
};

std::optional<Axes> choose_axes(const DTensorSpec& spec) {
  Axes axes;
  if (spec.ndim() == 1) {
    axes.columns = 0;
  } else if (spec.shard_order().size() > 2) {
    return std::nullopt;
  }
  for (const ShardOrderEntry& entry : spec.shard_order()) {
    const auto dim = static_cast<std::size_t>(entry.dim);
    const DimCut& cut = spec.dim_cuts()[dim];
    if (cut.shard_count() > kMostShards || cut.most_intervals() > kMostShards) return std::nullopt;
    const bool as_rows = spec.ndim() > 1 && (dim == 0 || &entry != &spec.shard_order().back());
    (as_rows ? axes.rows : axes.columns) = dim;
  }
  return axes;
}

void label_boxes(const DTensorSpec& spec, const Axes& axes, Grid& grid) {
  grid.widths.assign(grid.column_lines.size() - 1, kLeastWidth);
  for (std::size_t row = 0; row + 1 < grid.row_lines.size(); ++row) {
    grid.labels.emplace_back();
    for (std::size_t column = 0; column + 1 < grid.column_lines.size(); ++column) {
      Box first(static_cast<std::size_t>(spec.ndim()), Interval{0, 1});
      if (axes.rows) first[*axes.rows] = {grid.row_lines[row], 1};
      if (axes.columns) first[*axes.columns] = {grid.column_lines[column], 1};
      grid.labels.back().push_back(label_of(owners(spec, first)));
      grid.widths[column] = std::max({grid.widths[column], grid.labels.back().back().size(),
                                      std::to_string(grid.column_lines[column]).size()});
    }
  }
}

}  // namespace

std::string draw(const DTensorSpec& spec, Colour colour) {
  if (spec.ndim() == 0 || spec.meta().numel() == 0) return "";
  const std::optional<Axes> axes = choose_axes(spec);
  if (!axes) return "";
  Grid grid;
  grid.row_lines = axes->rows ? lines_of(spec.dim_cuts()[*axes->rows])
                              : std::vector<std::int64_t>{0, spec.ndim() > 1 ? spec.shape()[0] : 1};
  grid.column_lines = axes->columns ? lines_of(spec.dim_cuts()[*axes->columns])
                                    : std::vector<std::int64_t>{0, spec.shape()[1]};
  if (grid.row_lines.size() > kMostRows + 1 || grid.column_lines.size() > kMostColumns + 1)
    return "";
  label_boxes(spec, *axes, grid);
  return render(grid, colour);
}

}  // namespace tegula::cli
