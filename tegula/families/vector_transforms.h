// Fourier transforms of one vector that is cut: there is no other dim to move the cut to, so the
// vector becomes a matrix. Each transform sends all elements three times, and nothing is gathered.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace tegula::inner::families {

// A vector of rows * columns elements.
struct MatrixShape {
  std::int64_t rows, columns;
};

// The squarest shape whose rows and columns can both be cut over the ranks that have a part of the
// vector; `elements` is how many complex numbers it is taken for. None if there is no such shape,
// if the tensor is no vector, or is not cut, or by several axes.
std::optional<MatrixShape> shape_for_transform(const at::Tensor& vector, std::int64_t elements);

enum class Direction { Forward, Backward };

// Not scaled. A complex vector to a complex vector.
at::Tensor transformed_vector(const at::Tensor& complex, MatrixShape shape, Direction direction);
// Forward: 2 * rows * columns reals to the numbers at 0 ... rows * columns, those at the negative
// frequencies being their conjugates.
at::Tensor transformed_reals(const at::Tensor& reals, MatrixShape shape);
// Backward, the other way round.
at::Tensor transformed_to_reals(const at::Tensor& half, MatrixShape shape);

}  // namespace tegula::inner::families
