// Linear algebra: matrices are the last two dims and stay whole; the dims before them are batches,
// which libtorch computes one by one. Columns of right-hand sides are independent of each other.
//
// Where the op is asked to throw for a matrix that is singular, there is no rule: a rank would
// judge its own matrices only.
#include <algorithm>
#include <numeric>

#include "tegula/ops/families.h"
#include "tegula/rules/signatures.h"

namespace tegula::inner::families {
namespace {

// How a matrix lies in memory.
enum class Order { Rows, Columns };

void lay_out(Result& result, Order order) {
  result.layout = ResultLayout::RowMajor;
  const std::size_t dims = result.term.factors.size();
  if (order == Order::Rows || dims < 2) return;
  result.memory_order.resize(dims);
  std::iota(result.memory_order.begin(), result.memory_order.end(), 0);
  std::swap(result.memory_order[dims - 1], result.memory_order[dims - 2]);
}

// The text, with an order for each result. `throws`: the argument that asks for errors.
SignatureOf batched(RuleText text, std::vector<Order> orders,
                    std::optional<std::size_t> throws = {}) {
  return [form = text.form(), orders = std::move(orders),
          throws](const OpSchema& schema) -> std::optional<Signature> {
    if (throws && schema.flag(*throws)) return std::nullopt;
    std::optional<Signature> signature = signature_of(form, schema);
    for (std::size_t r = 0; signature && r < orders.size(); ++r) {
      lay_out(signature->results[r], orders[r]);
    }
    return signature;
  };
}

// One of two rules, by a flag.
SignatureOf by_flag(std::size_t flag, const SignatureOf& if_true, const SignatureOf& if_false) {
  return [=](const OpSchema& schema) {
    return schema.flag(flag) ? if_true(schema) : if_false(schema);
  };
}

// Results whose sizes are not those of operands ---------------------------------------------------

// The batches, and these dims.
Result of_batches(const Term& batches, const Ints& sizes, Order order = Order::Rows) {
  Result result{batches};
  for (std::int64_t size : sizes) {
    result.term.factors.push_back(kNoFactor);
    result.term.sizes.push_back(size);
  }
  lay_out(result, order);
  return result;
}

// What stands for a result that nobody asked for.
Result no_result() { return {{{kNoFactor}, {0}}}; }

// A call whose first operand are matrices [m, n].
struct OneMatrix {
  Signature signature;
  Term batches;
  std::int64_t m, n, shorter;
};

// The form's result are the batches; results are made of these.
std::optional<OneMatrix> one_matrix(const OpSchema& schema, const RuleForm& form) {
  std::optional<Signature> signature = signature_of(form, schema);
  if (!signature) return std::nullopt;
  const Shape& shape = schema.spec(0).shape();
  const std::int64_t m = shape[shape.size() - 2];
  const std::int64_t n = shape.back();
  Term batches = signature->results.front().term;
  return OneMatrix{std::move(*signature), std::move(batches), m, n, std::min(m, n)};
}

std::optional<OneMatrix> one_matrix(const OpSchema& schema) {
  static constexpr RuleText text = "~...m!n! -> ...";
  return one_matrix(schema, text.form());
}

// (A, mode) -> Q, R
std::optional<Signature> qr(const OpSchema& schema) {
  std::optional<OneMatrix> a = one_matrix(schema);
  if (!a) return std::nullopt;
  const bool is_complete = schema.text(1) == "complete";
  const std::int64_t k = is_complete ? a->m : a->shorter;
  a->signature.results = {
      schema.text(1) == "r" ? no_result() : of_batches(a->batches, {a->m, k}, Order::Columns),
      of_batches(a->batches, {k, a->n}, Order::Columns)};
  return std::move(a->signature);
}

// (A, full_matrices, compute_uv, driver) -> U, S, Vh
std::optional<Signature> svd(const OpSchema& schema) {
  std::optional<OneMatrix> a = one_matrix(schema);
  if (!a) return std::nullopt;
  const bool is_full = schema.flag(1);
  const bool has_vectors = schema.flag(2);
  const Result values = of_batches(a->batches, {a->shorter});
  const Result left = of_batches(a->batches, {a->m, is_full ? a->m : a->shorter}, Order::Columns);
  const Result right = of_batches(a->batches, {is_full ? a->n : a->shorter, a->n}, Order::Columns);
  a->signature.results = {has_vectors ? left : no_result(), values,
                          has_vectors ? right : no_result()};
  return std::move(a->signature);
}

// (A, UPLO, compute_v) -> values, vectors
std::optional<Signature> eigh(const OpSchema& schema) {
  std::optional<OneMatrix> a = one_matrix(schema);
  if (!a) return std::nullopt;
  a->signature.results = {
      of_batches(a->batches, {a->n}),
      schema.flag(2) ? of_batches(a->batches, {a->m, a->n}, Order::Columns) : no_result()};
  return std::move(a->signature);
}

// (self) -> reflectors, their factors
std::optional<Signature> geqrf(const OpSchema& schema) {
  std::optional<OneMatrix> a = one_matrix(schema);
  if (!a) return std::nullopt;
  a->signature.results = {of_batches(a->batches, {a->m, a->n}, Order::Columns),
                          of_batches(a->batches, {a->shorter})};
  return std::move(a->signature);
}

// (A, pivot, check_errors) -> LU, pivots, info
std::optional<Signature> lu_factor(const OpSchema& schema) {
  std::optional<OneMatrix> a = one_matrix(schema);
  if (!a || schema.flag(2)) return std::nullopt;
  a->signature.results = {of_batches(a->batches, {a->m, a->n}, Order::Columns),
                          of_batches(a->batches, {a->shorter}), of_batches(a->batches, {})};
  return std::move(a->signature);
}

std::vector<Result> lu_parts(const OneMatrix& a) {
  return {of_batches(a.batches, {a.m, a.m}), of_batches(a.batches, {a.m, a.shorter}),
          of_batches(a.batches, {a.shorter, a.n})};
}

// (A, pivot) -> P, L, U
std::optional<Signature> lu(const OpSchema& schema) {
  std::optional<OneMatrix> a = one_matrix(schema);
  if (!a) return std::nullopt;
  a->signature.results = lu_parts(*a);
  return std::move(a->signature);
}

// (LU, pivots, unpack_data, unpack_pivots) -> P, L, U
std::optional<Signature> lu_unpack(const OpSchema& schema) {
  static constexpr RuleText text = "~...m!n!, ~...k! -> ...";
  std::optional<OneMatrix> a = one_matrix(schema, text.form());
  if (!a) return std::nullopt;
  a->signature.results = lu_parts(*a);
  if (!schema.flag(2)) a->signature.results[1] = a->signature.results[2] = no_result();
  if (!schema.flag(3)) a->signature.results[0] = no_result();
  return std::move(a->signature);
}

// Systems of equations --------------------------------------------------------------------------

// Whether right-hand sides are vectors, one per matrix.
bool are_vectors(const Shape& a, const Shape& b) {
  return b.size() == 1 || (b.size() + 1 == a.size() && std::equal(b.begin(), b.end(), a.begin()));
}

// (A, B, left, check_errors) -> X, LU, pivots, info. What is known of A has its batches only.
std::optional<Signature> solve(const OpSchema& schema) {
  static constexpr RuleText with_matrix = "~...m!n!, ~...p!q! -> ...";
  static constexpr RuleText with_vector = "~...m!n!, ~...p! -> ...";
  if (schema.flag(3) || schema.spec(1).ndim() == 0) return std::nullopt;
  const Shape& b = schema.spec(1).shape();
  const bool is_vector = are_vectors(schema.spec(0).shape(), b);
  std::optional<OneMatrix> a = one_matrix(schema, (is_vector ? with_vector : with_matrix).form());
  if (!a) return std::nullopt;
  Signature& signature = a->signature;
  Term of_a = signature.operands.front().term;
  of_a.sizes.resize(of_a.sizes.size() - 2);
  of_a.factors.resize(of_a.factors.size() - 2);
  for (Factor factor : a->batches.factors) {
    if (!dim_of(of_a, factor)) signature.is_whole[static_cast<std::size_t>(factor)] = true;
  }
  const Ints of_b = is_vector ? Ints{b.back()} : Ints{b[b.size() - 2], b.back()};
  signature.results = {of_batches(a->batches, of_b, schema.flag(2) ? Order::Columns : Order::Rows),
                       of_batches(of_a, {a->m, a->n}, Order::Columns), of_batches(of_a, {a->n}),
                       of_batches(of_a, {})};
  return std::move(signature);
}

bool have_same_batches(const Shape& a, const Shape& b) {
  return a.size() == b.size() && a.size() >= 2 && std::equal(a.begin(), a.end() - 2, b.begin());
}

// (A, B, rcond, driver) -> X, residuals, rank, singular values; by the driver that gives neither
// residuals nor singular values.
std::optional<Signature> least_squares(const OpSchema& schema) {
  static constexpr RuleText text = "~...m!n!, ~...p!q! -> ...";
  if (!schema.is_none(3) && schema.text(3) != "gelsy") return std::nullopt;
  const Shape& b = schema.spec(1).shape();
  if (!have_same_batches(schema.spec(0).shape(), b)) return std::nullopt;
  std::optional<OneMatrix> matrix = one_matrix(schema, text.form());
  if (!matrix) return std::nullopt;
  matrix->signature.results = {of_batches(matrix->batches, {matrix->n, b.back()}, Order::Columns),
                               no_result(), of_batches(matrix->batches, {}), no_result()};
  return std::move(matrix->signature);
}

constexpr Order kRows = Order::Rows;
constexpr Order kColumns = Order::Columns;

void add_factorizations(RuleTable& rules) {
  const char* const a = "f32[8, 6, 4, 4]";
  const auto with = [&](const char* more) { return std::string(a) + more; };
  rules.add("linalg_inv_ex", "...mn -> ...mn, ...",
            batched("~...m!n! -> ...mn, ...", {kColumns, kRows}, 1), with(", check_errors=false"));
  rules.add("linalg_cholesky_ex", "...mn -> ...mn, ...",
            batched("~...m!n! -> ...mn, ...", {kColumns, kRows}, 2),
            with(", upper=false, check_errors=false"));
  rules.add("linalg_ldl_factor_ex", "...mn -> ...mn, ...n, ...",
            batched("~...m!n! -> ...mn, ...n, ...", {kColumns, kRows, kRows}, 2),
            with(", hermitian=false, check_errors=false"));
  for (const char* op : {"cholesky", "cholesky_inverse"}) {
    rules.add(op, "...mn -> ...mn", batched("~...m!n! -> ...mn", {kColumns}), a);
  }
  rules.add("linalg_matrix_exp", "...mn -> ...mn", batched("~...m!n! -> ...mn", {kRows}), a);
  rules.add("_linalg_det", "...mn -> ..., ...mn, ...n",
            batched("~...m!n! -> ..., ...mn, ...n", {kRows, kColumns, kRows}), a);
  rules.add("_linalg_slogdet", "...mn -> ..., ..., ...mn, ...n",
            batched("~...m!n! -> ..., ..., ...mn, ...n", {kRows, kRows, kColumns, kRows}), a);
  rules.add("linalg_eig", "...mn -> ...n, ...mn",
            batched("~...m!n! -> ...n, ...mn", {kRows, kColumns}), a);
  rules.add("_linalg_eigvals", "...mn -> ...n", batched("~...m!n! -> ...n", {kRows}), a);
  rules.add("linalg_pinv.atol_rtol_tensor", "...mn -> ...nm",
            batched("~...m!n!, ~..., ~... -> ...nm", {kRows}), a);
  rules.add("linalg_qr", "...mn -> ...mk, ...kn", qr, with(", mode=reduced"));
  rules.add("_linalg_svd", "...mn -> ...mk, ...k, ...kn", svd,
            with(", full_matrices=false, compute_uv=true"));
  rules.add("_linalg_eigh", "...mn -> ...n, ...mn", eigh, with(", UPLO=L, compute_v=true"));
  rules.add("geqrf", "...mn -> ...mn, ...k", geqrf, a);
  rules.add("linalg_lu_factor_ex", "...mn -> ...mn, ...k, ...", lu_factor,
            with(", pivot=true, check_errors=false"));
  rules.add("linalg_lu", "...mn -> ...mm, ...mk, ...kn", lu, with(", pivot=true"));
  rules.add("lu_unpack", "...mn, ...k -> ...mm, ...mk, ...kn", lu_unpack,
            "f32[8, 6, 4, 4], i32[8, 6, 4], unpack_data=true, unpack_pivots=true");
}

void add_solutions(RuleTable& rules) {
  const std::string a = "f32[8, 6, 4, 4]";
  const std::string b = "f32[8, 6, 4, 2]";
  const std::string pivots = "i32[8, 6, 4]";
  rules.add("_linalg_solve_ex", "...mn, ...nk -> ...nk, ...mn, ...n, ...", solve,
            a + ", " + b + ", left=true, check_errors=false");
  rules.add("linalg_lstsq", "...mn, ...mk -> ...nk", least_squares, a + ", " + b);
  rules.add("linalg_lu_solve", "...mn, ...n, ...nk -> ...nk",
            by_flag(3, batched("~...m!n! * ~...n! * ...n!k -> ...nk", {kColumns}),
                    batched("~...m!n! * ~...n! * ...kn! -> ...kn", {kRows})),
            a + ", " + pivots + ", " + b + ", left=true");
  rules.add("linalg_ldl_solve", "...mn, ...n, ...nk -> ...nk",
            batched("~...m!n! * ~...n! * ...n!k -> ...nk", {kColumns}),
            a + ", " + pivots + ", " + b);
  rules.add("cholesky_solve", "...nk, ...mn -> ...nk",
            batched("...n!k * ~...m!n! -> ...nk", {kColumns}), b + ", " + a);
  rules.add("linalg_solve_triangular", "...mn, ...nk -> ...nk",
            by_flag(3, batched("~...m!n! * ...n!k -> ...nk", {kColumns}),
                    batched("~...m!n! * ...kn! -> ...kn", {kColumns})),
            a + ", " + b + ", upper=true, left=true");
  rules.add("triangular_solve", "...nk, ...mn -> ...nk, ...mn",
            batched("~...n!k!, ~...m!n! -> ...nk, ...mn", {kColumns, kColumns}), b + ", " + a);
  rules.add("linalg_householder_product", "...mn, ...k -> ...mn",
            batched("~...m!n!, ~...k! -> ...mn", {kColumns}), a + ", f32[8, 6, 4]");
  rules.add("ormqr", "...mk, ...j, ...pq -> ...pq",
            batched("~...m!k! * ~...j! * ...p!q! -> ...pq", {kColumns}),
            a + ", f32[8, 6, 4], " + b);
}

// (grad, x1, x2, p, distances) -> of x1
std::optional<Signature> distances_backward(const OpSchema& schema) {
  static const SignatureOf rule = batched("...pr * ~...pm * ~...rm * ~...pr -> ...pm", {kRows});
  if (!have_same_batches(schema.spec(1).shape(), schema.spec(2).shape())) return std::nullopt;
  return rule(schema);
}

// Each row of one with each row of the other.
void add_distances(RuleTable& rules) {
  rules.add("_cdist_forward", "...pm, ...rm -> ...pr",
            batched("~...pm!, ~...rm! -> ...pr", {kRows}), "f32[8, 6, 4], f32[8, 2, 4], p=2");
  rules.add("_euclidean_dist", "...pm, ...rm -> ...pr",
            batched("~...pm!, ~...rm! -> ...pr", {kRows}), "f32[8, 6, 4], f32[8, 2, 4]");
  rules.add("_cdist_backward", "...pr, ...pm, ...rm, ...pr -> ...pm", distances_backward,
            "f32[8, 6, 2], f32[8, 6, 4], f32[8, 2, 4], p=2, cdist=f32[8, 6, 2]");
}

}  // namespace

void add_matrices(RuleTable& rules) {
  add_factorizations(rules);
  add_solutions(rules);
  add_distances(rules);
}

}  // namespace tegula::inner::families
