// The line charts and pictures of a report as SVG, coloured by the classes and variables of its
// style.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "page.h"

namespace report {

// & < > " as HTML has them.
std::string escaped(std::string_view text);

// The class that has this colour of the style; there are eight, in turn.
std::string color(std::size_t index);

std::string to_svg(const LineChart& chart);
std::string to_svg(const Grid& grid);
// The matrix as every cell of the grid has it.
std::string to_svg(const CutMatrix& matrix);

}  // namespace report
