#include "svg.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace report {
namespace {

constexpr double kChartWidth = 480, kChartHeight = 290;

// Two digits after the point, none that say nothing.
std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", value);
  std::string result(text);
  result.erase(result.find_last_not_of('0') + 1);
  if (result.back() == '.') result.pop_back();
  return result;
}

// <name a="1" b="x">, values as they are
using Attributes = std::vector<std::pair<std::string_view, std::string>>;
std::string element(std::string_view name, const Attributes& attributes,
                    const std::string& content = {}) {
  std::string text = "<" + std::string(name);
  for (const auto& [key, value] : attributes) text += " " + std::string(key) + "=\"" + value + "\"";
  return text + ">" + content + "</" + std::string(name) + ">";
}

std::string words(double x, double y, std::string_view kind, const std::string& text) {
  return element("text", {{"x", number(x)}, {"y", number(y)}, {"class", std::string(kind)}},
                 escaped(text));
}

std::string picture(double width, double height, std::string_view kind, const std::string& title,
                    const std::string& content) {
  return element("svg",
                 {{"viewBox", "0 0 " + number(width) + " " + number(height)},
                  {"class", std::string(kind)},
                  {"style", "max-width:" + number(width) + "px"},
                  {"role", "img"},
                  {"aria-label", escaped(title)}},
                 content);
}

// Round numbers that cover the interval, about `count` of them.
std::vector<double> ticks(double low, double high, int count) {
  const double rough = std::max(high - low, 1e-9) / count;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) {
      step = factor * power;
      break;
    }
  }
  const double first = std::floor(low / step) * step;
  std::vector<double> result{first};
  for (int i = 1; result.back() < high - 1e-9 && i <= 2 * count + 2; ++i) {
    result.push_back(first + i * step);
  }
  return result;
}

std::vector<double> averaged(const Series& series) {
  std::vector<double> result;
  double sum = 0;
  for (std::size_t i = 0; i < series.values.size(); ++i) {
    sum += series.values[i];
    if (i >= series.averaged_over) sum -= series.values[i - series.averaged_over];
    result.push_back(sum / static_cast<double>(std::min(i + 1, series.averaged_over)));
  }
  return result;
}

// Where the values of a line chart stand on paper.
struct Paper {
  double left = 36, right = kChartWidth - 8, top = 34, bottom = kChartHeight - 42;
  double most_x = 1;
  std::vector<double> marks;  // of the values' axis, from one end to the other

  double x(double step) const {
    return left + (right - left) * (most_x > 1 ? (step - 1) / (most_x - 1) : 0.5);
  }
  double y(double value) const {
    return bottom - (bottom - top) * (value - marks.front()) / (marks.back() - marks.front());
  }

  std::string line(const std::vector<double>& values, const std::string& kind) const {
    std::string points;
    for (std::size_t i = 0; i < values.size(); ++i) {
      points +=
          (i == 0 ? "" : " ") + number(x(static_cast<double>(i + 1))) + "," + number(y(values[i]));
    }
    return element("polyline", {{"class", kind}, {"points", points}});
  }
};

Paper paper_for(const LineChart& chart) {
  Paper paper;
  double low = INFINITY, high = -INFINITY;
  for (const Series& series : chart.series) {
    paper.most_x = std::max(paper.most_x, static_cast<double>(series.values.size()));
    for (const double value : series.values) {
      low = std::min(low, value);
      high = std::max(high, value);
    }
  }
  if (!std::isfinite(high - low)) low = 0, high = 1;
  paper.marks = ticks(low, std::max(high, low + 0.01), 5);
  return paper;
}

std::string axes_of(const LineChart& chart, const Paper& paper) {
  std::string text;
  for (const double at : paper.marks) {
    const std::string y = number(paper.y(at));
    text += element("line", {{"class", at == paper.marks.front() ? "axis" : "grid"},
                             {"x1", number(paper.left)},
                             {"x2", number(paper.right)},
                             {"y1", y},
                             {"y2", y}});
    text += words(paper.left - 8, paper.y(at) + 4, "tick end", number(at));
  }
  for (const double at : ticks(0, paper.most_x, 5)) {
    if (at < 1 || at > paper.most_x || at != std::floor(at)) continue;
    const bool is_last = paper.x(at) > paper.right - 10;
    text += words(paper.x(at), paper.bottom + 18, is_last ? "tick end" : "tick middle", number(at));
  }
  text += words((paper.left + paper.right) / 2, paper.bottom + 36, "label middle", chart.x);
  return text + words(0, 14, "label", chart.y);
}

// The first of several lines is broad, so that others are seen on it.
std::string look_of(std::size_t index, std::size_t count) {
  return color(index) + (index > 0 ? " dashed" : count > 1 ? " broad" : "");
}

std::string legend(const std::vector<std::string>& names, double left, double y) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    text += element("line", {{"class", "line " + look_of(i, names.size())},
                             {"x1", number(left)},
                             {"x2", number(left + 22)},
                             {"y1", number(y - 4)},
                             {"y2", number(y - 4)}});
    text += words(left + 28, y, "key", names[i]);
    left += 48 + 7.2 * static_cast<double>(names[i].size());
  }
  return text;
}

// Columns that show, when pointed at, the values there.
std::string readings(const LineChart& chart, const Paper& paper) {
  const double columns = std::min(paper.most_x, 100.0);
  const double width = (paper.right - paper.left) / columns;
  std::string text;
  for (double column = 0; column < columns; ++column) {
    const auto at = static_cast<std::size_t>(
        columns > 1 ? std::round(column * (paper.most_x - 1) / (columns - 1)) : 0);
    std::string shown = chart.x + " " + std::to_string(at + 1);
    for (const Series& series : chart.series) {
      if (at < series.values.size()) shown += "\n" + series.name + " " + number(series.values[at]);
    }
    text += element("rect",
                    {{"class", "reading"},
                     {"x", number(paper.left + column * width)},
                     {"y", number(paper.top)},
                     {"width", number(width)},
                     {"height", number(paper.bottom - paper.top)}},
                    element("title", {}, escaped(shown)));
  }
  return text;
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

std::string color(std::size_t index) {
  constexpr std::size_t kColors = 8;
  return "c" + std::to_string(index % kColors + 1);
}

std::string to_svg(const LineChart& chart) {
  const Paper paper = paper_for(chart);
  std::vector<std::string> names;
  std::string lines;
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    const Series& series = chart.series[i];
    const std::string look = look_of(i, chart.series.size());
    names.push_back(series.name);
    if (series.averaged_over > 1) {
      lines += paper.line(series.values, "thin " + look);
      names.back() += ", mean of " + std::to_string(series.averaged_over);
    }
    lines += paper.line(averaged(series), "line " + look);
  }
  return picture(
      kChartWidth, kChartHeight, "chart", chart.title,
      axes_of(chart, paper) + legend(names, paper.left + 30, 14) + lines + readings(chart, paper));
}

std::string to_svg(const Grid& grid) {
  constexpr double kSide = 56, kGap = 4, kLeft = 52, kTop = 34;
  std::string text;
  std::size_t count = 0, columns = 1;
  for (std::size_t row = 0; row < grid.cells.size(); ++row) {
    const double y = kTop + static_cast<double>(row) * (kSide + kGap);
    text += words(kLeft - 10, y + kSide / 2 + 4, "tick end", grid.rows + " " + std::to_string(row));
    columns = std::max(columns, grid.cells[row].size());
    for (std::size_t column = 0; column < grid.cells[row].size(); ++column) {
      const double x = kLeft + static_cast<double>(column) * (kSide + kGap);
      if (row == 0) {
        text += words(x + kSide / 2, kTop - 12, "tick middle",
                      grid.columns + " " + std::to_string(column));
      }
      text += element("rect", {{"class", "tint " + color(count++)},
                               {"x", number(x)},
                               {"y", number(y)},
                               {"width", number(kSide)},
                               {"height", number(kSide)},
                               {"rx", "6"}});
      text += words(x + kSide / 2, y + kSide / 2 + 4, "on-tint middle", grid.cells[row][column]);
    }
  }
  const double width = kLeft + static_cast<double>(columns) * (kSide + kGap);
  const double height = kTop + static_cast<double>(grid.cells.size()) * (kSide + kGap);
  return picture(width, height, "grid-of-ranks", grid.title, text);
}

std::string to_svg(const CutMatrix& matrix) {
  constexpr double kGap = 5;
  std::string text;
  std::size_t count = 0, columns = 1;
  for (std::size_t row = 0; row < matrix.held.size(); ++row) {
    const double y = 1 + static_cast<double>(row) * (matrix.height + kGap);
    columns = std::max(columns, matrix.held[row].size());
    for (std::size_t column = 0; column < matrix.held[row].size(); ++column) {
      const double x = 1 + static_cast<double>(column) * (matrix.width + kGap);
      for (const Rectangle& part : matrix.held[row][column]) {
        text += element("rect", {{"class", "fill " + color(count)},
                                 {"x", number(x + part.left * matrix.width)},
                                 {"y", number(y + part.top * matrix.height)},
                                 {"width", number((part.right - part.left) * matrix.width)},
                                 {"height", number((part.bottom - part.top) * matrix.height)}});
      }
      text += element("rect", {{"class", "outline"},
                               {"x", number(x)},
                               {"y", number(y)},
                               {"width", number(matrix.width)},
                               {"height", number(matrix.height)}});
      ++count;
    }
  }
  const double width = 2 - kGap + static_cast<double>(columns) * (matrix.width + kGap);
  const double height = 2 - kGap + static_cast<double>(matrix.held.size()) * (matrix.height + kGap);
  return picture(width, height, "cut", matrix.names.empty() ? "" : matrix.names.front(), text);
}

}  // namespace report
