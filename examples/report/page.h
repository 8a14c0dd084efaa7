// A report as one HTML file that needs nothing beside it: no script, no network, light or dark as
// the reader has it. Values in, text out: nothing here knows what is reported.
//
//   std::ofstream("report.html") << report::to_html({"Title", "What it is", figures, sections});
#pragma once

#include <cstddef>
#include <string>
#include <variant>
#include <vector>

namespace report {

// A number for large print: {"1.73", "loss at the end"}.
struct Figure {
  std::string value;
  std::string caption;
};

// values[i] stands at x = i + 1. What jumps up and down is drawn thin behind its mean over the last
// `averaged_over` values; 1: as it is.
struct Series {
  std::string name;
  std::vector<double> values;
  std::size_t averaged_over = 1;
};
// Later series are drawn dashed over earlier ones, so that lines that coincide are both seen.
struct LineChart {
  std::string title;
  std::string x;
  std::string y;
  std::vector<Series> series;
};

struct Amount {
  double value = 0;
  std::string text;  // "1.2 MB"
};
struct Bar {
  std::string name;
  std::vector<Amount> parts;  // one per part of the chart; they add up
  std::string total;
};
// Horizontal bars from zero. With one part there is no legend.
struct BarChart {
  std::string title;
  std::vector<std::string> parts;
  std::vector<Bar> bars;
};

// Cells by row and column, one colour each.
struct Grid {
  std::string title;
  std::string rows;  // what the rows are: "dp"
  std::string columns;
  std::vector<std::vector<std::string>> cells;
};
// A part of a matrix, in fractions of it.
struct Rectangle {
  double top = 0;
  double left = 0;
  double bottom = 1;
  double right = 1;
};
// A matrix once per cell of the grid, each with what that cell holds filled in its colour.
struct CutMatrix {
  std::vector<std::string> names;  // a line each: matrices that are cut alike are drawn once
  std::vector<std::string> notes;  // lines below them
  double height = 1;               // of the matrix; its width says the shape
  double width = 1;
  std::vector<std::vector<std::vector<Rectangle>>> held;  // by row and column of the grid
};
struct CutMatrices {
  Grid grid;
  std::vector<CutMatrix> matrices;
};

// Columns whose cells all begin with a digit are aligned to the right.
struct Table {
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;
};

// A text in which blanks and line ends count.
struct Verbatim {
  std::string text;
};

using Content = std::variant<LineChart, BarChart, CutMatrices, Table, Verbatim>;

struct Section {
  std::string title;
  std::string lead;
  std::vector<Content> contents;
};

struct Page {
  std::string title;
  std::string lead;
  std::vector<Figure> figures;
  std::vector<Section> sections;
};

std::string to_html(const Page& page);

}  // namespace report
