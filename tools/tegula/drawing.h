// Draws who holds which part of a tensor, as boxes with the ranks in them.
#pragma once

#include <string>

#include "tegula/spec/dtensor_spec.h"

namespace tegula::cli {

enum class Colour { Plain, Ansi };

// Rows of the picture are the first dim that is cut, columns the second; a tensor that is cut along
// one dim is one row or column of boxes. Empty if more than two dims are cut or there are too many
// boxes to be readable.
//
//        0  3  6 7
//     0  ┌──┬──┬─┐
//        │0 │1 │2│
//     5  ├──┼──┼─┤
//        │3 │4 │5│
//     10 └──┴──┴─┘
std::string draw(const DTensorSpec& spec, Colour colour);

}  // namespace tegula::cli
