// Steps that rearrange: views, joins, indexing and sorting.
#include "tests/tensor/random_steps.h"

namespace tegula::test {
namespace {

using OptionalStep = std::optional<Step>;

// ---- views ----

// A shape of as many elements.
Shape regrouped(Random& random, std::int64_t elements) {
  Shape shape;
  for (std::int64_t factor = 2; elements > 1; ++factor) {
    while (elements % factor == 0) {
      elements /= factor;
      if (!shape.empty() && random.one_in(2)) {
        random.pick(std::vector<std::int64_t*>{&shape.front(), &shape.back()})[0] *= factor;
      } else {
        shape.push_back(factor);
      }
    }
  }
  if (random.one_in(4)) shape.push_back(1);
  if (shape.empty()) shape.push_back(1);
  random.shuffle(shape);
  return shape;
}

OptionalStep one_view(Pool& pool) {
  const auto x = pool.pick(
      [](const Value& value) { return value.plain.dim() > 0 && value.plain.numel() > 0; });
  if (!x) return {};
  const RandomView view = random_view(pool.random, pool.plain(*x).sizes());
  return Step{"v" + std::to_string(*x) + view.text,
              {*x},
              [=](const Tensors& t) { return Tensors{view.of(t[0])}; },
              Saves::Nothing};
}

OptionalStep reshape(Pool& pool) {
  const auto x = pool.pick_float();
  if (!x) return {};
  const Shape shape = regrouped(pool.random, pool.plain(*x).numel());
  if (pool.plain(*x).is_contiguous() && pool.random.one_in(2)) {
    return one_result("view", {*x}, text_of(shape), Saves::Nothing,
                      [=](const Tensors& t) { return t[0].view(shape); });
  }
  return one_result("reshape", {*x}, text_of(shape), Saves::Nothing,
                    [=](const Tensors& t) { return t[0].reshape(shape); });
}

OptionalStep flatten(Pool& pool) {
  const auto x = pool.pick_float(2);
  if (!x) return {};
  const std::int64_t first = pool.random.between(0, pool.dim(*x) - 2);
  return one_result("flatten", {*x}, text_of({first, first + 1}), Saves::Nothing,
                    [=](const Tensors& t) { return t[0].flatten(first, first + 1); });
}

OptionalStep permute(Pool& pool) {
  const auto x = pool.pick_float_or_none(2);
  if (!x) return {};
  Shape dims;
  for (std::int64_t dim = 0; dim < pool.dim(*x); ++dim) dims.push_back(dim);
  pool.random.shuffle(dims);
  // contiguous() copies or not as the strides say, and results of local_map have strides of their
  // own: where the two sides would differ, so would what a write reaches
  const bool are_alike = pool.plain(*x).permute(dims).is_contiguous() ==
                         pool.values[*x].distributed.permute(dims).is_contiguous();
  const bool dense = pool.random.one_in(3) && are_alike;
  return one_result(dense ? "permute, contiguous" : "permute", {*x}, text_of(dims), Saves::Nothing,
                    [=](const Tensors& t) {
                      const at::Tensor view = t[0].permute(dims);
                      return dense ? view.contiguous() : view;
                    });
}

OptionalStep expand(Pool& pool) {
  const auto x = pool.pick_float();
  if (!x || pool.dim(*x) > 3) return {};
  Shape shape = pool.plain(*x).sizes().vec();
  for (std::int64_t& size : shape) {
    if (size == 1) size = pool.random.between(1, 3);
  }
  if (pool.random.one_in(2)) shape.insert(shape.begin(), pool.random.between(1, 3));
  return one_result("expand", {*x}, text_of(shape), Saves::Everything,
                    [=](const Tensors& t) { return t[0].expand(shape); });
}

// All results count: they are joined again, in another order.
OptionalStep pieces(Pool& pool) {
  const auto x = pool.pick_float(1);
  if (!x) return {};
  const std::int64_t dim = pool.random.between(0, pool.dim(*x) - 1);
  const std::int64_t size = pool.plain(*x).size(dim);
  const std::int64_t part = pool.random.between(1, size);
  Step step{"", {*x}, nullptr, Saves::Everything};
  const std::string text = "dim=" + std::to_string(dim);
  switch (pool.random.between(0, 3)) {
    case 0:
      step.text = call_text("split", {*x}, std::to_string(part) + ", " + text);
      step.run = [=](const Tensors& t) { return t[0].split(part, dim); };
      break;
    case 1:
      step.text = call_text("chunk", {*x}, std::to_string(part) + ", " + text);
      step.run = [=](const Tensors& t) { return t[0].chunk(part, dim); };
      break;
    case 2:
      step.text = call_text("split_with_sizes", {*x}, text_of({part, size - part}) + ", " + text);
      step.run = [=](const Tensors& t) {
        return Tensors{at::cat(t[0].split_with_sizes({part, size - part}, dim), dim).tanh()};
      };
      break;
    default:
      step.text = call_text("unbind", {*x}, text);
      step.run = [=](const Tensors& t) { return t[0].unbind(dim); };
  }
  return step;
}

// Views that say of each element what it is. Complex numbers and bits come and go within the step,
// so that what is kept are numbers.
OptionalStep read_otherwise(Pool& pool) {
  const auto x = pool.pick_float(1);
  if (!x) return {};
  const bool is_even = pool.plain(*x).numel() % 2 == 0;
  const std::int64_t kind = pool.random.between(0, is_even ? 4 : 0);
  const auto pairs = [](const at::Tensor& t) {
    return at::view_as_complex(t.reshape({-1, 2}).contiguous());
  };
  switch (kind) {
    case 1:
      return one_result(
          "real and imag of view_as_complex", {*x}, "", Saves::Everything,
          [=](const Tensors& t) { return at::real(pairs(t[0])) * 2 + at::imag(pairs(t[0])); });
    case 2:
      return one_result("imag of conj of view_as_complex", {*x}, "", Saves::Everything,
                        [=](const Tensors& t) { return at::imag(pairs(t[0]).conj()) * 1.5; });
    case 3:
      return one_result("view_as_real of view_as_complex", {*x}, "", Saves::Everything,
                        [=](const Tensors& t) { return at::view_as_real(pairs(t[0])).clone(); });
    case 4:
      return one_result("view_as_real of the square of view_as_complex", {*x}, "",
                        Saves::Everything, [=](const Tensors& t) {
                          const at::Tensor z = pairs(t[0]);
                          return at::view_as_real(z * z.conj());
                        });
    default:
      return one_result("_neg_view", {*x}, "", Saves::Everything,
                        [](const Tensors& t) { return at::_neg_view(t[0]) * 1.0; });
  }
}

// The bits of whole numbers, which are the same however they were added up.
OptionalStep bits(Pool& pool) {
  const auto x = pool.pick_float(2);
  if (!x || !is_apart(at::remainder(pool.plain(*x).detach() * 4, 1), 0.5)) return {};
  const std::int64_t dim = pool.random.between(0, pool.dim(*x) - 1);
  const at::ScalarType type =
      pool.random.pick(std::vector<at::ScalarType>{at::kLong, at::kInt, at::kByte});
  return one_result(std::string("bits of a sum of whole numbers as ") + c10::toString(type), {*x},
                    "dim=" + std::to_string(dim), Saves::Everything, [=](const Tensors& t) {
                      const at::Tensor whole = (t[0].detach() * 4).round().abs();  // no -0
                      return whole.sum(dim).contiguous().view(type).clone();
                    });
}

// ---- joins and rearrangements ----

OptionalStep cat(Pool& pool) {
  const auto a = pool.pick_float_or_none(1);
  if (!a) return {};
  const Shape shape = pool.plain(*a).sizes().vec();
  const std::int64_t dim = pool.random.between(0, pool.dim(*a) - 1);
  const auto fits = [&](const Value& value) {
    Shape same = value.plain.sizes().vec();
    if (!value.plain.is_floating_point() || same.size() != shape.size()) return false;
    same[static_cast<std::size_t>(dim)] = shape[static_cast<std::size_t>(dim)];
    return same == shape;
  };
  const std::size_t b = *pool.pick(fits);
  Shape more = shape;
  more[static_cast<std::size_t>(dim)] = pool.random.between(1, 3);
  const std::size_t c = pool.random.one_in(2) ? pool.add_leaf(more) : *pool.pick(fits);
  return one_result("cat", {*a, b, c}, "dim=" + std::to_string(dim), Saves::Nothing,
                    [=](const Tensors& t) { return at::cat(t, dim); });
}

OptionalStep stack(Pool& pool) {
  const auto a = pool.pick_float();
  if (!a || pool.dim(*a) > 3) return {};
  const Shape shape = pool.plain(*a).sizes().vec();
  const std::size_t b =
      *pool.pick_shaped([&](at::IntArrayRef other) { return other == at::IntArrayRef(shape); });
  const std::int64_t dim = pool.random.between(0, pool.dim(*a));
  return one_result("stack", {*a, b}, "dim=" + std::to_string(dim), Saves::Nothing,
                    [=](const Tensors& t) { return at::stack(t, dim); });
}

OptionalStep rearranged(Pool& pool) {
  const auto x = pool.pick_float(1);
  if (!x) return {};
  const std::int64_t dim = pool.random.between(0, pool.dim(*x) - 1);
  const std::int64_t count = pool.random.between(-2, 3);
  const std::string text = "dim=" + std::to_string(dim);
  switch (pool.random.between(0, 4)) {
    case 0:
      return one_result("flip", {*x}, text, Saves::Nothing,
                        [=](const Tensors& t) { return t[0].flip({dim}); });
    case 1:
      return one_result("roll", {*x}, std::to_string(count) + ", " + text, Saves::Nothing,
                        [=](const Tensors& t) { return t[0].roll({count}, {dim}); });
    case 2:
      if (pool.dim(*x) < 2) return {};
      return one_result("tril", {*x}, std::to_string(count), Saves::Nothing,
                        [=](const Tensors& t) { return t[0].tril(count); });
    case 3:
      return one_result("pad", {*x}, "[1, 2] = 0.5", Saves::Nothing,
                        [=](const Tensors& t) { return at::constant_pad_nd(t[0], {1, 2}, 0.5); });
    default:
      return one_result("repeat_interleave", {*x}, "2, " + text, Saves::Nothing,
                        [=](const Tensors& t) { return t[0].repeat_interleave(2, dim); });
  }
}

// ---- indexing ----

OptionalStep lookup(Pool& pool) {
  const auto x = pool.pick_float(1);
  if (!x) return {};
  Random& random = pool.random;
  const std::int64_t dim = random.between(0, pool.dim(*x) - 1);
  const Shape shape = pool.plain(*x).sizes().vec();
  const std::int64_t size = pool.plain(*x).size(dim);
  const std::string text = "dim=" + std::to_string(dim);
  switch (random.between(0, 4)) {
    case 0: {
      const auto places = pool.add_constant(random_places(random, {random.between(1, 5)}, size));
      return one_result("index_select", {*x, places}, text, Saves::Nothing,
                        [=](const Tensors& t) { return t[0].index_select(dim, t[1]); });
    }
    case 1: {
      Shape like = shape;
      like[static_cast<std::size_t>(dim)] = random.between(1, 4);
      const auto places = pool.add_constant(random_places(random, like, size));
      return one_result("gather", {*x, places}, text, Saves::Everything,
                        [=](const Tensors& t) { return t[0].gather(dim, t[1]); });
    }
    case 2: {
      const auto places =
          pool.add_constant(random_places(random, {2, random.between(1, 3)}, shape[0]));
      return one_result("x[i]", {*x, places}, "", Saves::Nothing,
                        [](const Tensors& t) { return t[0].index({t[1]}); });
    }
    case 3: {
      if (pool.dim(*x) < 2) return {};
      const auto i = pool.add_constant(random_places(random, {3}, shape[0]));
      const auto j = pool.add_constant(random_places(random, {2, 1}, shape[1]));
      return one_result("x[i, j]", {*x, i, j}, "", Saves::Nothing,
                        [](const Tensors& t) { return t[0].index({t[1], t[2]}); });
    }
    default: {
      const auto places = pool.add_constant(random_places(random, {2, 2}, shape[0]));
      if (pool.dim(*x) != 2) return {};
      return one_result("embedding", {*x, places}, "", Saves::Nothing,
                        [](const Tensors& t) { return at::embedding(t[0], t[1]); });
    }
  }
}

OptionalStep masked(Pool& pool) {
  const auto x = pool.pick_float(1);
  if (!x || !is_apart(pool.plain(*x), 0.3)) return {};
  switch (pool.random.between(0, 2)) {
    case 0:
      return one_result("masked_fill(x, x > 0.3, -1)", {*x}, "", Saves::Nothing,
                        [](const Tensors& t) { return t[0].masked_fill(t[0] > 0.3, -1); });
    case 1:
      return one_result("x[x > 0.3]", {*x}, "", Saves::Nothing,
                        [](const Tensors& t) { return t[0].index({t[0] > 0.3}); });
    default:
      return one_result("masked_select(x, x < 0.3)", {*x}, "", Saves::Everything,
                        [](const Tensors& t) { return t[0].masked_select(t[0] < 0.3); });
  }
}

OptionalStep scattered(Pool& pool) {
  const auto x = pool.pick_float(1);
  if (!x) return {};
  const std::int64_t dim = pool.random.between(0, pool.dim(*x) - 1);
  Shape shape = pool.plain(*x).sizes().vec();
  const std::int64_t size = pool.plain(*x).size(dim);
  const std::int64_t count = pool.random.between(1, 4);
  const std::string text = "dim=" + std::to_string(dim);
  if (pool.random.one_in(2)) {
    const auto places = pool.add_constant(random_places(pool.random, {count}, size));
    shape[static_cast<std::size_t>(dim)] = count;
    const auto source = pool.add_leaf(shape);
    return one_result("index_add", {*x, places, source}, text, Saves::Everything,
                      [=](const Tensors& t) { return t[0].index_add(dim, t[1], t[2]); });
  }
  const auto source = pool.add_leaf(shape);
  const auto places = pool.add_constant(random_places(pool.random, shape, size));
  return one_result("scatter_add", {*x, places, source}, text, Saves::Nothing,
                    [=](const Tensors& t) { return t[0].scatter_add(dim, t[1], t[2]); });
}

OptionalStep sorted(Pool& pool) {
  const auto x = pool.pick_float(1);
  if (!x || !is_distinct(pool.plain(*x))) return {};
  const std::int64_t dim = pool.random.between(0, pool.dim(*x) - 1);
  const bool descending = pool.random.one_in(2);
  const std::int64_t count = pool.random.between(1, pool.plain(*x).size(dim));
  Step step{"", {*x}, nullptr, Saves::Nothing};
  if (pool.random.one_in(2)) {
    step.text =
        call_text(descending ? "sort, descending" : "sort", {*x}, "dim=" + std::to_string(dim));
    step.run = [=](const Tensors& t) {
      const auto [values, places] = t[0].sort(dim, descending);
      return Tensors{values, places};
    };
  } else {
    step.text = call_text(descending ? "topk" : "topk, smallest", {*x}, text_of({count, dim}));
    step.run = [=](const Tensors& t) {
      const auto [values, places] = t[0].topk(count, dim, descending);
      return Tensors{values, places};
    };
  }
  return step;
}

}  // namespace

const std::vector<StepKind>& view_steps() {
  static const std::vector<StepKind> kinds = {one_view, one_view, reshape,        flatten, permute,
                                              expand,   pieces,   read_otherwise, bits};
  return kinds;
}

const std::vector<StepKind>& indexing_steps() {
  static const std::vector<StepKind> kinds = {cat,    stack,  rearranged, lookup,
                                              lookup, masked, scattered,  sorted};
  return kinds;
}

}  // namespace tegula::test
