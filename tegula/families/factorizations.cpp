// Factorizations of one matrix that is cut. Its columns are cut, and panels of columns are factored
// from the left to the right, each by its owner, as LAPACK factors blocks; what is sent is what the
// ranks to its right need to bring their columns up to date. Of an LU factorization that is the
// panel below its diagonal, of a Cholesky factorization what lies below the diagonal block:
// together less than half of the matrix. A matrix whose rows are cut sends them first, once.
#include <ATen/ATen.h>

#include <algorithm>

#include "tegula/bridge/torch_types.h"
#include "tegula/families/call_tensors.h"
#include "tegula/families/operand_tiles.h"
#include "tegula/families/recipes.h"
#include "tegula/families/recut.h"
#include "tegula/families/totals.h"
#include "tegula/operators/call.h"
#include "tegula/payload/guards.h"
#include "tegula/redistribute/dim_exchange.h"

namespace tegula::inner::families {
namespace {

// The columns of a matrix that this rank has, in their order with those of the others.
struct Columns {
  DTensorSpec spec;
  World world;
  Group group;
  std::vector<std::int64_t> sizes;  // per rank of the group
  std::size_t here;
  at::Tensor tile;  // changed in place

  std::int64_t rows() const { return spec.shape()[0]; }
  std::int64_t begin_of(std::size_t rank) const {
    std::int64_t begin = 0;
    for (std::size_t k = 0; k < rank; ++k) begin += sizes[k];
    return begin;
  }
  std::int64_t begin() const { return begin_of(here); }
  // As libtorch gives factors: columns lie in memory one after the other.
  at::Tensor result() const {
    const TensorMeta meta(spec.shape(), {1, std::max<std::int64_t>(rows(), 1)},
                          spec.meta().dtype());
    return result_of_tile(tile, spec.with_meta(meta), world);
  }
  at::Tensor on_all(const at::Tensor& plain) const { return replicated(plain, spec.mesh(), world); }
};

Columns columns_of(const at::Tensor& matrix) {
  const at::Tensor paid = with_sum_paid(matrix);
  const at::Tensor cut = is_cut(paid, 1) ? paid : cut_along(paid, 1);
  const Payload& payload = *payload_in(cut);
  const DTensorSpec spec = payload.spec();
  return {spec,
          payload.world(),
          group_along(payload.world(), spec.mesh(), spec.dim_cuts()[1]),
          shard_sizes(payload, 1),
          static_cast<std::size_t>(shard_here(payload, 1)),
          payload.resolved_tile().clone(at::MemoryFormat::Contiguous)};
}

// One matrix of the types that LAPACK has, one dim of which is cut by one axis.
bool is_cut_matrix(const Call& call) {
  const at::Tensor& a = tensor_at(call.arguments(), 0);
  const at::ScalarType type = a.scalar_type();
  const bool has_type = type == at::kFloat || type == at::kDouble || type == at::kComplexFloat ||
                        type == at::kComplexDouble;
  return has_tiles(call) && has_type && a.dim() == 2 && a.numel() > 0 && only_cut_dim(a) &&
         !StrictMode::is_on();
}

// The first code that is not 0, in the order of the columns: LAPACK's.
at::Tensor first_code(const Columns& columns, std::int64_t here) {
  const at::Tensor codes = columns.group.all_gather(at::full({1}, here, at::kLong), 0);
  for (std::int64_t k = 0; k < codes.numel(); ++k) {
    const std::int64_t code = codes[k].item<std::int64_t>();
    if (code != 0) return at::scalar_tensor(code, at::kInt);
  }
  return at::scalar_tensor(0, at::kInt);
}

void check_codes(const at::Tensor& code, const char* name) {
  if (code.item<std::int64_t>() != 0) at::_linalg_check_errors(code, name, /*is_matrix=*/true);
}

// LU ----------------------------------------------------------------------------------------------

struct LU {
  Columns columns;
  at::Tensor pivots;  // plain, counted from 1
  at::Tensor code;    // plain
};

// Exchanges rows as the pivots say, one after the other; these are counted from 1, in the rows.
void exchange_rows(const at::Tensor& rows, const at::Tensor& pivots) {
  if (rows.numel() == 0) return;
  const at::Tensor order = at::arange(rows.size(0), at::kLong);
  auto places = order.accessor<std::int64_t, 1>();
  const auto wanted = pivots.accessor<std::int32_t, 1>();
  for (std::int64_t k = 0; k < pivots.size(0); ++k) std::swap(places[k], places[wanted[k] - 1]);
  rows.copy_(rows.index_select(0, order));
}

// The elements below the diagonal of the first columns, as many as there are pivots.
struct Below {
  std::int64_t rows, columns;

  at::Tensor places() const { return at::tril_indices(rows, columns, -1); }
  at::Tensor packed(const at::Tensor& panel) const {
    const at::Tensor at = places();
    return panel.index({at[0], at[1]});
  }
  // With ones on the diagonal.
  at::Tensor unpacked(const at::Tensor& elements) const {
    const at::Tensor at = places();
    at::Tensor lower = at::zeros({rows, columns}, elements.options());
    lower.fill_diagonal_(1);
    lower.index_put_({at[0], at[1]}, elements);
    return lower;
  }
};

// Brings the columns to the right of a panel up to date.
void eliminate(const at::Tensor& rows, const at::Tensor& lower) {
  const std::int64_t count = lower.size(1);
  const at::Tensor top = rows.narrow(0, 0, count);
  top.copy_(at::linalg_solve_triangular(lower.narrow(0, 0, count), top, /*upper=*/false,
                                        /*left=*/true, /*unitriangular=*/true));
  const std::int64_t rest = rows.size(0) - count;
  if (rest > 0) rows.narrow(0, count, rest).sub_(lower.narrow(0, count, rest).matmul(top));
}

// One panel: factored by its owner, told to all.
at::Tensor panel_of_lu(Columns& columns, std::size_t owner, std::int64_t& code) {
  const std::int64_t first = columns.begin_of(owner);
  const std::int64_t rest = columns.rows() - first;
  const std::int64_t count = std::min(rest, columns.sizes[owner]);
  const int root = static_cast<int>(owner);
  const at::Tensor rows = columns.tile.narrow(0, first, rest);
  at::Tensor pivots = at::empty({count}, at::kInt);
  if (columns.here == owner) {
    const auto [factors, found, info] = at::linalg_lu_factor_ex(rows);
    rows.copy_(factors);
    pivots = found.contiguous();
    if (const auto failed = info.item<std::int64_t>(); failed != 0) code = first + failed;
  }
  pivots = columns.group.broadcast(pivots, root);
  if (columns.here != owner) exchange_rows(rows, pivots);
  const bool is_last = first + columns.sizes[owner] == columns.spec.shape()[1];
  if (!is_last) {
    const Below below{rest, count};
    const at::Tensor own = columns.here == owner
                               ? below.packed(rows)
                               : at::empty({below.places().size(1)}, columns.tile.options());
    const at::Tensor elements = columns.group.broadcast(own, root);
    if (columns.here > owner && columns.tile.numel() > 0) {
      eliminate(rows, below.unpacked(elements));
    }
  }
  return pivots + first;
}

LU lu_of(const at::Tensor& matrix) {
  LU lu{columns_of(matrix), {}, {}};
  Columns& columns = lu.columns;
  std::vector<at::Tensor> pivots;
  std::int64_t code = 0;
  for (std::size_t owner = 0; owner < columns.sizes.size(); ++owner) {
    if (columns.sizes[owner] == 0 || columns.begin_of(owner) >= columns.rows()) continue;
    pivots.push_back(panel_of_lu(columns, owner, code));
  }
  lu.pivots = at::cat(pivots).to(at::kInt);
  lu.code = first_code(columns, code);
  return lu;
}

// (A, pivot, check_errors) -> LU, pivots, info
Recipe make_lu_factor(const Call& call) {
  if (!is_cut_matrix(call) || !call.arguments()[1].toBool()) return nullptr;
  return [](Arguments a) -> Values {
    const LU lu = lu_of(tensor_at(a, 0));
    if (a[2].toBool()) check_codes(lu.code, "torch.linalg.lu_factor_ex");
    return {lu.columns.result(), lu.columns.on_all(lu.pivots), lu.columns.on_all(lu.code)};
  };
}

// This rank's part of the diagonal.
at::Tensor diagonal_here(const Columns& columns) { return columns.tile.diagonal(-columns.begin()); }

at::Tensor parity_of(const at::Tensor& pivots) {
  const at::Tensor moved = pivots.ne(at::arange(1, pivots.numel() + 1, at::kInt)).sum();
  return moved.remainder(2).mul(-2).add(1);  // 1 or -1
}

// What all ranks' numbers make, plain.
at::Tensor product_of_all(const Columns& columns, const at::Tensor& number) {
  return columns.group.all_gather(number.reshape({1}), 0).prod();
}
at::Tensor sum_of_all(const Columns& columns, const at::Tensor& number) {
  return columns.group.all_gather(number.reshape({1}), 0).sum();
}

bool is_square(const Call& call) {
  const at::Tensor& a = tensor_at(call.arguments(), 0);
  return a.size(0) == a.size(1);
}

// Whose factorization libtorch gives beside a determinant.
at::Tensor factored_for_determinant(const at::Tensor& a) {
  return a.is_contiguous() && !a.is_complex() ? a.mT() : a;
}

// (A) -> determinant, LU, pivots
Recipe make_det(const Call& call) {
  if (!is_cut_matrix(call) || !is_square(call)) return nullptr;
  return [](Arguments a) -> Values {
    const LU lu = lu_of(factored_for_determinant(tensor_at(a, 0)));
    const at::Tensor product = product_of_all(lu.columns, diagonal_here(lu.columns).prod());
    const at::Tensor det = product * parity_of(lu.pivots).to(product.scalar_type());
    return {lu.columns.on_all(det), lu.columns.result(), lu.columns.on_all(lu.pivots)};
  };
}

// (A) -> sign, logarithm of what it is the sign of, LU, pivots
Recipe make_slogdet(const Call& call) {
  if (!is_cut_matrix(call) || !is_square(call)) return nullptr;
  return [](Arguments a) -> Values {
    const LU lu = lu_of(factored_for_determinant(tensor_at(a, 0)));
    const at::Tensor diagonal = diagonal_here(lu.columns);
    const at::Tensor product = product_of_all(lu.columns, diagonal.sgn().prod());
    const at::Tensor logarithm = sum_of_all(lu.columns, diagonal.abs().log().sum());
    const at::Tensor sign = product * parity_of(lu.pivots).to(product.scalar_type());
    return {lu.columns.on_all(sign), lu.columns.on_all(logarithm), lu.columns.result(),
            lu.columns.on_all(lu.pivots)};
  };
}

// (A, pivot) -> P, L, U
Recipe make_lu(const Call& call) {
  if (!is_cut_matrix(call) || !call.arguments()[1].toBool()) return nullptr;
  return [](Arguments a) -> Values {
    const LU lu = lu_of(tensor_at(a, 0));
    const at::Tensor factors = lu.columns.result();
    const std::int64_t rows = factors.size(0), count = std::min(rows, factors.size(1));
    const at::Tensor lower =
        factors.narrow(1, 0, count).clone(at::MemoryFormat::Contiguous).tril(-1);
    const at::Tensor upper = factors.narrow(0, 0, count).clone(at::MemoryFormat::Contiguous).triu();
    const auto permutation =
        std::get<0>(at::lu_unpack(at::empty({rows, count}, lu.columns.tile.options()), lu.pivots,
                                  /*unpack_data=*/false));
    return {lu.columns.on_all(permutation), lower.fill_diagonal_(1), upper};
  };
}

// Cholesky ----------------------------------------------------------------------------------------

struct Cholesky {
  Columns columns;
  at::Tensor code;  // plain
};

// Of the lower triangle.
Cholesky cholesky_of(const at::Tensor& matrix) {
  Cholesky made{columns_of(matrix), {}};
  Columns& columns = made.columns;
  std::int64_t code = 0;
  for (std::size_t owner = 0; owner < columns.sizes.size(); ++owner) {
    const std::int64_t first = columns.begin_of(owner), count = columns.sizes[owner];
    const std::int64_t rest = columns.rows() - first - count;
    if (count == 0) continue;
    at::Tensor below = at::empty({rest, count}, columns.tile.options());
    if (columns.here == owner) {
      const at::Tensor block = columns.tile.narrow(0, first, count);
      const auto [lower, info] = at::linalg_cholesky_ex(block);
      block.copy_(lower);
      if (const auto failed = info.item<std::int64_t>(); failed != 0) code = first + failed;
      if (rest > 0) {
        const at::Tensor rows = columns.tile.narrow(0, first + count, rest);
        below = at::linalg_solve_triangular(lower.mH(), rows, /*upper=*/true, /*left=*/false);
        below = below.contiguous();
        rows.copy_(below);
      }
    }
    if (rest == 0) continue;
    below = columns.group.broadcast(below, static_cast<int>(owner));
    const std::int64_t size = columns.sizes[columns.here];
    if (columns.here <= owner || size == 0) continue;
    const std::int64_t begin = columns.begin(), skipped = begin - first - count;
    columns.tile.narrow(0, begin, columns.rows() - begin)
        .sub_(below.narrow(0, skipped, rest - skipped).matmul(below.narrow(0, skipped, size).mH()));
  }
  columns.tile.tril_(-columns.begin());
  made.code = first_code(columns, code);
  return made;
}

// The factor, of the upper triangle if that is asked for, and the code.
std::pair<at::Tensor, Cholesky> factor_of(const at::Tensor& a, bool is_upper) {
  Cholesky made = cholesky_of(is_upper ? a.mH() : a);
  const at::Tensor lower = made.columns.result();
  return {is_upper ? lower.mH().clone() : lower, std::move(made)};
}

bool is_cut_square(const Call& call) { return is_cut_matrix(call) && is_square(call); }

// (self, upper, check_errors) -> L, info
Recipe make_cholesky_with_code(const Call& call) {
  if (!is_cut_square(call)) return nullptr;
  return [](Arguments a) -> Values {
    const auto [factor, made] = factor_of(tensor_at(a, 0), a[1].toBool());
    if (a[2].toBool()) check_codes(made.code, "torch.linalg.cholesky_ex");
    return {factor, made.columns.on_all(made.code)};
  };
}

// (self, upper)
Recipe make_cholesky(const Call& call) {
  if (!is_cut_square(call)) return nullptr;
  return [](Arguments a) -> Values {
    const auto [factor, made] = factor_of(tensor_at(a, 0), a[1].toBool());
    check_codes(made.code, "cholesky");
    return {factor};
  };
}

// An exponential's gradient: the upper right block of the exponential of [[A^H, grad], [0, A^H]].
// Matrices of a batch stay together.
Recipe make_matrix_exp_backward(const Call& call) {
  const at::Tensor& self = tensor_at(call.arguments(), 0);
  const at::Tensor& grad = tensor_at(call.arguments(), 1);
  const bool is_batch = self.dim() == 3 && self.numel() > 0 && self.sizes() == grad.sizes() &&
                        self.scalar_type() == grad.scalar_type();
  if (!is_batch || !has_tiles(call) || !is_any_spread(call) || StrictMode::is_on()) return nullptr;
  return [](Arguments a) -> Values {
    const auto by_matrix = [](const at::Tensor& tensor) {
      return is_spread(tensor) && !is_cut(tensor, 0) ? cut_along(with_sum_paid(tensor), 0) : tensor;
    };
    const at::Tensor transposed = by_matrix(tensor_at(a, 0)).mH();
    const at::Tensor of_result = by_matrix(tensor_at(a, 1));
    const std::int64_t n = transposed.size(-1);
    const at::Tensor above = at::cat({transposed, of_result}, -1);
    const at::Tensor below = at::cat({at::zeros_like(of_result), transposed}, -1);
    const at::Tensor whole = at::linalg_matrix_exp(at::cat({above, below}, -2));
    return {whole.narrow(-2, 0, n).narrow(-1, n, n).clone(at::MemoryFormat::Contiguous)};
  };
}

}  // namespace

const RecipeTable& factorization_recipes() {
  static const RecipeTable table = {
      {"linalg_lu_factor_ex", make_lu_factor},
      {"linalg_lu", make_lu},
      {"_linalg_det", make_det},
      {"_linalg_slogdet", make_slogdet},
      {"linalg_cholesky_ex", make_cholesky_with_code},
      {"cholesky", make_cholesky},
      {"matrix_exp_backward", make_matrix_exp_backward},
  };
  return table;
}

}  // namespace tegula::inner::families
