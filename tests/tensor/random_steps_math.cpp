// Steps that compute: pointwise, products, reductions, scans and norms.
#include "tests/tensor/random_steps.h"

namespace tegula::test {
namespace {

using OptionalStep = std::optional<Step>;

// ---- pointwise ----

struct Unary {
  const char* name;
  at::Tensor (*run)(const at::Tensor&);
  std::vector<double> kinks;
  Saves saves;
};

const std::vector<Unary>& unaries() {
  using T = at::Tensor;
  static const std::vector<Unary> list = {
      {"relu", [](const T& x) { return x.relu(); }, {0}, Saves::Everything},
      {"tanh", [](const T& x) { return x.tanh(); }, {}, Saves::Everything},
      {"sigmoid", [](const T& x) { return x.sigmoid(); }, {}, Saves::Everything},
      {"gelu", [](const T& x) { return at::gelu(x); }, {}, Saves::Everything},
      {"silu", [](const T& x) { return at::silu(x); }, {}, Saves::Everything},
      {"softplus", [](const T& x) { return at::softplus(x); }, {}, Saves::Everything},
      {"leaky_relu", [](const T& x) { return at::leaky_relu(x, 0.1); }, {0}, Saves::Everything},
      {"clamp(-2, 2).exp",
       [](const T& x) { return x.clamp(-2, 2).exp(); },
       {-2, 2},
       Saves::Everything},
      {"clamp(-1, 1.5)", [](const T& x) { return x.clamp(-1, 1.5); }, {-1, 1.5}, Saves::Everything},
      {"clamp_min(-0.3)", [](const T& x) { return x.clamp_min(-0.3); }, {-0.3}, Saves::Everything},
      {"abs", [](const T& x) { return x.abs(); }, {0}, Saves::Everything},
      {"square", [](const T& x) { return x.square(); }, {}, Saves::Everything},
      {"sqrt of 1 + square",
       [](const T& x) { return (1 + x.square()).sqrt(); },
       {},
       Saves::Everything},
      {"3 * ", [](const T& x) { return 3 * x; }, {}, Saves::Nothing},
      {"0.5 - ", [](const T& x) { return 0.5 - x; }, {}, Saves::Nothing},
      {"/ 4", [](const T& x) { return x / 4; }, {}, Saves::Nothing},
      {"neg", [](const T& x) { return x.neg(); }, {}, Saves::Nothing},
      {"times a plain number",
       [](const T& x) { return x * at::scalar_tensor(0.75); },
       {},
       Saves::Nothing},
      {"add(1.25)", [](const T& x) { return x + 1.25; }, {}, Saves::Nothing},
  };
  return list;
}

OptionalStep unary(Pool& pool) {
  const Unary& op = pool.random.pick(unaries());
  const auto x = pool.pick_float_or_none();
  if (!x) return {};
  for (double kink : op.kinks) {
    if (!is_apart(pool.plain(*x), kink)) return {};
  }
  return one_result(op.name, {*x}, "", op.saves,
                    [run = op.run](const Tensors& t) { return run(t[0]); });
}

// A shape that broadcasts against the given one, and is not larger.
Shape broadcasting(Random& random, at::IntArrayRef shape) {
  Shape result = shape.vec();
  result.erase(result.begin(),
               result.begin() + random.between(0, static_cast<std::int64_t>(result.size())));
  for (std::int64_t& size : result) {
    if (random.one_in(3)) size = 1;
  }
  return result;
}

bool broadcast(at::IntArrayRef a, at::IntArrayRef b) {
  for (std::size_t i = 1; i <= std::min(a.size(), b.size()); ++i) {
    const std::int64_t left = a[a.size() - i];
    const std::int64_t right = b[b.size() - i];
    if (left != right && left != 1 && right != 1) return false;
  }
  return true;
}

// Another value to compute with; a new leaf if there is none, or at times.
std::size_t partner(Pool& pool, std::size_t value) {
  const Shape shape = pool.plain(value).sizes().vec();
  const auto found =
      pool.pick_shaped([&](at::IntArrayRef other) { return broadcast(shape, other); });
  if (found && *found != value && !pool.random.one_in(5)) return *found;
  return pool.add_leaf(broadcasting(pool.random, shape));
}

OptionalStep binary(Pool& pool) {
  const auto a = pool.pick_float_or_none();
  if (!a) return {};
  const std::size_t b = partner(pool, *a);
  switch (pool.random.between(0, 7)) {
    case 0:
      return one_result("add", {*a, b}, "", Saves::Nothing,
                        [](const Tensors& t) { return t[0] + t[1]; });
    case 1:
      return one_result("sub", {*a, b}, "alpha=0.5", Saves::Nothing,
                        [](const Tensors& t) { return at::sub(t[0], t[1], 0.5); });
    case 2:
      return one_result("mul", {*a, b}, "", Saves::Everything,
                        [](const Tensors& t) { return t[0] * t[1]; });
    case 3:
      return one_result("a / (1 + b * b)", {*a, b}, "", Saves::Everything,
                        [](const Tensors& t) { return t[0] / (1 + t[1] * t[1]); });
    case 4:
      if (!is_apart(pool.plain(*a), pool.plain(b))) return {};
      return one_result("maximum", {*a, b}, "", Saves::Everything,
                        [](const Tensors& t) { return at::maximum(t[0], t[1]); });
    case 5:
      return one_result("lerp", {*a, b}, "0.3", Saves::Everything,
                        [](const Tensors& t) { return at::lerp(t[0], t[1], 0.3); });
    case 6:
      return one_result("addcmul(a, b, b)", {*a, b}, "", Saves::Everything,
                        [](const Tensors& t) { return at::addcmul(t[0], t[1], t[1]); });
    default:
      return one_result("hypot(a, 1 + b * b)", {*a, b}, "", Saves::Everything,
                        [](const Tensors& t) { return at::hypot(t[0], 1 + t[1] * t[1]); });
  }
}

OptionalStep comparison(Pool& pool) {
  const auto a = pool.pick_float();
  if (!a) return {};
  if (pool.random.one_in(2)) {
    if (!is_apart(pool.plain(*a), 0.1)) return {};
    return one_result("gt 0.1", {*a}, "", Saves::Nothing,
                      [](const Tensors& t) { return t[0] > 0.1; });
  }
  const std::size_t b = partner(pool, *a);
  if (!is_apart(pool.plain(*a), pool.plain(b))) return {};
  return one_result("le", {*a, b}, "", Saves::Nothing,
                    [](const Tensors& t) { return t[0] <= t[1]; });
}

OptionalStep where_greater(Pool& pool) {
  const auto a = pool.pick_float();
  if (!a) return {};
  const std::size_t b = partner(pool, *a);
  if (!is_apart(pool.plain(*a), pool.plain(b))) return {};
  return one_result("where(a > b, a * a, b)", {*a, b}, "", Saves::Everything,
                    [](const Tensors& t) { return at::where(t[0] > t[1], t[0] * t[0], t[1]); });
}

OptionalStep where_mask(Pool& pool) {
  const auto mask = pool.pick([](const Value& value) { return value.plain.dtype() == at::kBool; });
  if (!mask) return {};
  const auto a = pool.pick_shaped(
      [&](at::IntArrayRef shape) { return broadcast(shape, pool.plain(*mask).sizes()); });
  if (!a) return {};
  if (pool.random.one_in(2)) {
    return one_result("where", {*mask, *a}, "-0.5", Saves::Nothing,
                      [](const Tensors& t) { return at::where(t[0], t[1], -0.5); });
  }
  return one_result("where", {*mask, *a}, "-v", Saves::Nothing,
                    [](const Tensors& t) { return at::where(t[0].logical_not(), t[1], -t[1]); });
}

OptionalStep to_float(Pool& pool) {
  const auto x = pool.pick([](const Value& value) { return !value.plain.is_floating_point(); });
  if (!x) return {};
  return one_result("to(f64)", {*x}, "", Saves::Nothing,
                    [](const Tensors& t) { return t[0].to(at::kDouble); });
}

// ---- products ----

OptionalStep matmul(Pool& pool) {
  const auto a = pool.pick_float(1);
  if (!a) return {};
  const std::int64_t inner = pool.plain(*a).size(-1);
  const auto fits = [&](at::IntArrayRef shape) {
    return shape.size() == 1 || shape.size() == 2 ? shape[0] == inner : false;
  };
  auto b = pool.pick_shaped(fits);
  if (!b || pool.random.one_in(4)) b = pool.add_leaf({inner, pool.random.between(1, 5)});
  return one_result("matmul", {*a, *b}, "", Saves::Everything,
                    [](const Tensors& t) { return at::matmul(t[0], t[1]); });
}

OptionalStep own_product(Pool& pool) {
  const auto a = pool.pick_float(2);
  if (!a) return {};
  return one_result("matmul(a, a^T)", {*a}, "", Saves::Everything,
                    [](const Tensors& t) { return at::matmul(t[0], t[0].transpose(-1, -2)); });
}

OptionalStep bmm(Pool& pool) {
  const auto a = pool.pick_shaped([](at::IntArrayRef shape) { return shape.size() == 3; });
  if (!a) return {};
  const at::Tensor& left = pool.plain(*a);
  const auto b = pool.add_leaf({left.size(0), left.size(2), pool.random.between(1, 4)});
  return one_result("bmm", {*a, b}, "", Saves::Everything,
                    [](const Tensors& t) { return at::bmm(t[0], t[1]); });
}

OptionalStep linear(Pool& pool) {
  const auto x = pool.pick_float(1);
  if (!x) return {};
  const std::int64_t out = pool.random.between(1, 6);
  const auto w = pool.add_leaf({out, pool.plain(*x).size(-1)});
  if (pool.random.one_in(2)) {
    return one_result("linear", {*x, w}, "", Saves::Everything,
                      [](const Tensors& t) { return at::linear(t[0], t[1]); });
  }
  const auto bias = pool.add_leaf({out});
  return one_result("linear", {*x, w, bias}, "", Saves::Everything,
                    [](const Tensors& t) { return at::linear(t[0], t[1], t[2]); });
}

OptionalStep addmm(Pool& pool) {
  const auto x = pool.pick_shaped([](at::IntArrayRef shape) { return shape.size() == 2; });
  if (!x) return {};
  const std::int64_t out = pool.random.between(1, 6);
  const auto w = pool.add_leaf({pool.plain(*x).size(1), out});
  const auto bias = pool.add_leaf({out});
  return one_result("addmm", {bias, *x, w}, "beta=0.5, alpha=2", Saves::Everything,
                    [](const Tensors& t) { return at::addmm(t[0], t[1], t[2], 0.5, 2); });
}

OptionalStep outer(Pool& pool) {
  const auto a = pool.pick_shaped([](at::IntArrayRef shape) { return shape.size() == 1; });
  const auto b = pool.pick_shaped([](at::IntArrayRef shape) { return shape.size() == 1; });
  if (!a || !b) return {};
  return one_result("einsum i,j->ji", {*a, *b}, "", Saves::Everything,
                    [](const Tensors& t) { return at::einsum("i,j->ji", {t[0], t[1]}); });
}

// ---- reductions ----

// Some dims of the value, ascending; at least one unless it has none.
Shape some_dims(Random& random, std::int64_t dims) {
  Shape result;
  for (std::int64_t dim = 0; dim < dims; ++dim) {
    if (random.one_in(2)) result.push_back(random.one_in(4) ? dim - dims : dim);
  }
  if (result.empty() && dims > 0) result.push_back(random.between(0, dims - 1));
  return result;
}

// Whether no value is so small that rounding decides whether it is zero.
bool is_clear_of_zero(const at::Tensor& values) {
  const at::Tensor sizes = values.detach().abs();
  return at::logical_or(sizes == 0, sizes > 1e-6).all().item<bool>();
}

OptionalStep reduction(Pool& pool) {
  const auto x = pool.pick_float(1);
  if (!x) return {};
  const Shape dims = some_dims(pool.random, pool.dim(*x));
  const bool keep = pool.random.one_in(2);
  const std::string attributes = "dim=" + text_of(dims) + (keep ? ", keepdim" : "");
  const auto step = [&](const char* name, Saves saves, const OneResult& run) {
    return one_result(name, {*x}, attributes, saves, run);
  };
  switch (pool.random.between(0, 6)) {
    case 0:
      return step("sum", Saves::Nothing, [=](const Tensors& t) { return t[0].sum(dims, keep); });
    case 1:
      return step("mean", Saves::Nothing, [=](const Tensors& t) { return t[0].mean(dims, keep); });
    case 2:
      if (!is_distinct(pool.plain(*x))) return {};
      return step("amax", Saves::Everything,
                  [=](const Tensors& t) { return t[0].amax(dims, keep); });
    case 3:
      if (!is_distinct(pool.plain(*x))) return {};
      return step("amin", Saves::Everything,
                  [=](const Tensors& t) { return t[0].amin(dims, keep); });
    case 4:
      return step("var of 0 correction", Saves::Everything,
                  [=](const Tensors& t) { return t[0].var(dims, 0, keep); });
    case 5:
      if (pool.plain(*x).detach().norm(2, dims).min().item<double>() < 1e-2) return {};
      return step("norm", Saves::Everything,
                  [=](const Tensors& t) { return t[0].norm(2, dims, keep); });
    default:
      return step("logsumexp", Saves::Everything,
                  [=](const Tensors& t) { return t[0].logsumexp(dims, keep); });
  }
}

OptionalStep sum_or_softmax(Pool& pool) {
  const auto x = pool.pick_float_or_none(1);
  if (!x) return {};
  if (pool.random.one_in(2))
    return one_result("sum", {*x}, "dim=0", Saves::Nothing,
                      [](const Tensors& t) { return t[0].sum(0); });
  return one_result("softmax", {*x}, "dim=-1", Saves::Everything,
                    [](const Tensors& t) { return t[0].softmax(-1); });
}

OptionalStep whole_reduction(Pool& pool) {
  const auto x = pool.pick_float();
  if (!x) return {};
  const auto step = [&](const char* name, Saves saves, const OneResult& run) {
    return one_result(name, {*x}, "", saves, run);
  };
  switch (pool.random.between(0, 5)) {
    case 0:
      return step("sum", Saves::Nothing, [](const Tensors& t) { return t[0].sum(); });
    case 1:
      return step("mean", Saves::Nothing, [](const Tensors& t) { return t[0].mean(); });
    case 2:
      if (!is_distinct(pool.plain(*x))) return {};
      return step("max", Saves::Everything, [](const Tensors& t) { return t[0].max(); });
    case 3:
      if (!is_clear_of_zero(pool.plain(*x))) return {};
      return step("prod", Saves::Everything, [](const Tensors& t) { return t[0].prod(); });
    case 4:
      if (!is_distinct(pool.plain(*x))) return {};
      return step("argmax", Saves::Everything, [](const Tensors& t) { return t[0].argmax(); });
    default:
      if (pool.plain(*x).numel() < 2) return {};
      return step("var", Saves::Everything, [](const Tensors& t) { return t[0].var(); });
  }
}

OptionalStep along_one_dim(Pool& pool) {
  const auto x = pool.pick_float(1);
  if (!x) return {};
  const std::int64_t dim = pool.random.between(0, pool.dim(*x) - 1);
  const bool keep = pool.random.one_in(2);
  const at::Tensor& plain = pool.plain(*x);
  const auto step = [&](const char* name, Saves saves, const OneResult& run) {
    return one_result(name, {*x}, "dim=" + std::to_string(dim) + (keep ? ", keepdim" : ""), saves,
                      run);
  };
  switch (pool.random.between(0, 9)) {
    case 0:
      return step("cumsum", Saves::Nothing, [=](const Tensors& t) { return t[0].cumsum(dim); });
    case 1:
      if (!is_clear_of_zero(plain)) return {};
      return step("cumprod", Saves::Everything,
                  [=](const Tensors& t) { return t[0].cumprod(dim); });
    case 2:
      return step("softmax", Saves::Everything,
                  [=](const Tensors& t) { return t[0].softmax(dim); });
    case 3:
      return step("log_softmax", Saves::Everything,
                  [=](const Tensors& t) { return t[0].log_softmax(dim); });
    case 4:
      if (!is_clear_of_zero(plain)) return {};
      return step("prod", Saves::Everything,
                  [=](const Tensors& t) { return t[0].prod(dim, keep); });
    case 5:
      if (!is_distinct(plain)) return {};
      return step("argmin", Saves::Everything,
                  [=](const Tensors& t) { return t[0].argmin(dim, keep); });
    case 6:
      return step("logcumsumexp", Saves::Everything,
                  [=](const Tensors& t) { return t[0].logcumsumexp(dim); });
    case 7: {
      if (!is_distinct(plain)) return {};
      Step both = step("max", Saves::Everything, nullptr);
      both.run = [=](const Tensors& t) {
        const auto [values, places] = t[0].max(dim, keep);
        return Tensors{values, places};
      };
      return both;
    }
    case 8: {
      if (!is_distinct(plain)) return {};
      Step both = step("cummax", Saves::Everything, nullptr);
      both.run = [=](const Tensors& t) {
        const auto [values, places] = t[0].cummax(dim);
        return Tensors{values, places};
      };
      return both;
    }
    default:
      if (!is_apart(plain, 0.2)) return {};
      return step("any(x > 0.2)", Saves::Nothing,
                  [=](const Tensors& t) { return (t[0] > 0.2).any(dim, keep); });
  }
}

OptionalStep layer_norm(Pool& pool) {
  const auto x = pool.pick_float(1);
  if (!x) return {};
  const std::int64_t kept = pool.random.between(0, pool.dim(*x) - 1);
  const Shape normalized = pool.plain(*x).sizes().slice(static_cast<std::size_t>(kept)).vec();
  if (pool.random.one_in(2)) {
    return one_result("layer_norm", {*x}, text_of(normalized), Saves::Everything,
                      [=](const Tensors& t) { return at::layer_norm(t[0], normalized); });
  }
  const auto weight = pool.add_leaf(normalized);
  const auto bias = pool.add_leaf(normalized);
  return one_result("layer_norm", {*x, weight, bias}, text_of(normalized), Saves::Everything,
                    [=](const Tensors& t) { return at::layer_norm(t[0], normalized, t[1], t[2]); });
}

}  // namespace

const std::vector<StepKind>& pointwise_steps() {
  static const std::vector<StepKind> kinds = {unary,      unary,         binary,     binary,
                                              comparison, where_greater, where_mask, to_float};
  return kinds;
}

const std::vector<StepKind>& product_steps() {
  static const std::vector<StepKind> kinds = {matmul, matmul, own_product, bmm,
                                              linear, addmm,  outer};
  return kinds;
}

const std::vector<StepKind>& reduction_steps() {
  static const std::vector<StepKind> kinds = {reduction,       reduction,     whole_reduction,
                                              whole_reduction, along_one_dim, along_one_dim,
                                              along_one_dim,   layer_norm,    sum_or_softmax};
  return kinds;
}

}  // namespace tegula::test
