// The idea: with j = r * columns + c and k = p + rows * q, the transform over j is one over r, a
// turn of each number by c * p / n, and one over c, which gives the matrix of p and q. Each of the
// two works within a dim, so the cut moves from rows to columns, back to rows, and to columns once
// more to have the result in order. Reals are taken in pairs for complex numbers, half as many.
#include "tegula/families/vector_transforms.h"

#include <ATen/ATen.h>

#include <cmath>
#include <numbers>

#include "tegula/families/recut.h"
#include "tegula/families/totals.h"

namespace tegula::inner::families {
namespace {

double sign_of(Direction direction) { return direction == Direction::Forward ? -1 : 1; }

// Each element, at the places of the tile given, times exp(+-2 pi i * place / n).
at::Tensor turned(const at::Tensor& x, const at::Tensor& places, std::int64_t n,
                  Direction direction) {
  const Payload& payload = *payload_in(x);
  const double full_turn = sign_of(direction) * 2 * std::numbers::pi / static_cast<double>(n);
  const at::Tensor angles = places.remainder(n).to(at::kDouble).mul_(full_turn);
  const at::Tensor turns = at::complex(angles.cos(), angles.sin()).to(x.scalar_type());
  return outer_tensor(payload.resolved_tile().mul(turns), payload.spec(), payload.world());
}

at::Tensor dense_copy(const at::Tensor& x) { return x.clone(at::MemoryFormat::Contiguous); }

// Of a matrix whose rows are cut: the vector in its order.
at::Tensor transformed_matrix(at::Tensor x, Direction direction) {
  const bool is_forward = direction == Direction::Forward;
  const std::int64_t n = x.numel();
  x = at::_fft_c2c(dense_copy(cut_along(x, 1)), {0}, 0, is_forward);
  const at::Tensor columns = positions_along(*payload_in(x), 1);
  const at::Tensor rows = at::arange(x.size(0), columns.options()).unsqueeze(1);
  x = turned(dense_copy(x), rows * columns.reshape({1, -1}), n, direction);
  x = at::_fft_c2c(dense_copy(cut_along(x, 0)), {1}, 0, is_forward);
  return dense_copy(cut_along(dense_copy(x.t()), 0)).reshape({n});
}

at::Tensor places_in(const at::Tensor& vector) {
  return positions_along(*payload_in(vector), 0).reshape({-1});
}

// The numbers at 0 and at the end have no imaginary part: what is given there does not count.
at::Tensor with_real_ends(const at::Tensor& half) {
  const Payload& payload = *payload_in(half);
  const at::Tensor places = places_in(half);
  const at::Tensor is_end = at::logical_or(places.eq(0), places.eq(half.size(0) - 1));
  const at::Tensor tile = payload.resolved_tile();
  const at::Tensor ends = at::real(tile).to(tile.scalar_type());
  return outer_tensor(at::where(is_end, ends, tile), payload.spec(), payload.world());
}

at::Tensor mirrored(const at::Tensor& vector) { return at::conj_physical(at::flip(vector, {0})); }

}  // namespace

std::optional<MatrixShape> shape_for_transform(const at::Tensor& vector, std::int64_t elements) {
  const std::optional<std::size_t> axis = only_axis_along(vector, 0);
  if (vector.dim() != 1 || !axis || elements < 1) return std::nullopt;
  const std::int64_t ranks = payload_in(vector)->spec().mesh().axes()[*axis].size;
  std::optional<MatrixShape> found;
  for (std::int64_t rows = ranks; rows * rows <= elements; ++rows) {
    if (elements % rows != 0) continue;
    const bool is_even = rows % ranks == 0 && (elements / rows) % ranks == 0;
    const bool was_even = found && found->rows % ranks == 0 && found->columns % ranks == 0;
    if (is_even || !was_even) found = MatrixShape{rows, elements / rows};
  }
  return found;
}

at::Tensor transformed_vector(const at::Tensor& complex, MatrixShape shape, Direction direction) {
  const at::Tensor runs = dense_copy(cut_by_units(complex, 0, shape.columns));
  return transformed_matrix(runs.view({shape.rows, shape.columns}), direction);
}

at::Tensor transformed_reals(const at::Tensor& reals, MatrixShape shape) {
  const std::int64_t n = reals.size(0);
  const at::Tensor runs = dense_copy(cut_by_units(reals, 0, 2 * shape.columns));
  const at::Tensor pairs = at::view_as_complex(runs.view({shape.rows, shape.columns, 2}));
  const at::Tensor once = transformed_matrix(pairs, Direction::Forward);
  const at::Tensor around = at::cat({once, once.narrow(0, 0, 1)});
  const at::Tensor mirror = mirrored(around);
  // those of the even elements, and of the odd ones
  const at::Tensor even = (around + mirror).mul(0.5);
  const at::Tensor odd = (around - mirror).mul(c10::complex<double>(0, -0.5));
  return even + turned(dense_copy(odd), places_in(odd), n, Direction::Forward);
}

at::Tensor transformed_to_reals(const at::Tensor& half, MatrixShape shape) {
  const std::int64_t pairs = shape.rows * shape.columns;
  const at::Tensor given = with_real_ends(dense_copy(half));
  const at::Tensor mirror = mirrored(given);
  const at::Tensor odd = (given - mirror).mul(c10::complex<double>(0, 1));
  const at::Tensor both =
      (given + mirror) + turned(dense_copy(odd), places_in(odd), 2 * pairs, Direction::Backward);
  const at::Tensor complex =
      transformed_vector(both.narrow(0, 0, pairs), shape, Direction::Backward);
  return at::view_as_real(complex).reshape({2 * pairs});
}

}  // namespace tegula::inner::families
