// Steps that write values that exist, themselves or through views.
#include "tests/tensor/random_steps.h"

namespace tegula::test {
namespace {

using OptionalStep = std::optional<Step>;

bool can_be_written(const Pool& pool, const Value& value) {
  if (!value.plain.is_floating_point() || !pool.is_writable[value.family]) return false;
  // to libtorch a view of what later came to require grad is a leaf until it is used
  for (const at::Tensor& side : {value.plain, value.distributed}) {
    if (side.requires_grad() && side.is_leaf()) return false;
  }
  for (std::int64_t dim = 0; dim < value.plain.dim(); ++dim) {
    if (value.plain.stride(dim) == 0 && value.plain.size(dim) > 1) return false;
  }
  return true;
}

// Writes a view of the first operand. Values of the second one have at least one dim and any size;
// as many as needed are taken.
struct RandomWrite {
  std::string text;
  std::function<void(const at::Tensor& view, const at::Tensor& other)> run;
};

RandomWrite random_write(Random& random) {
  // one number, so that it fits every shape, with a gradient of its own
  const auto one = [](const at::Tensor& other) { return other.flatten().select(0, 0); };
  switch (random.between(0, 9)) {
    case 0:
      return {".add_(other)", [=](const at::Tensor& x, const at::Tensor& y) { x.add_(one(y)); }};
    case 1:
      return {".mul_(tanh(other))",
              [=](const at::Tensor& x, const at::Tensor& y) { x.mul_(one(y).tanh()); }};
    case 2:
      return {".copy_(other)", [=](const at::Tensor& x, const at::Tensor& y) { x.copy_(one(y)); }};
    case 3:
      return {".zero_()", [](const at::Tensor& x, const at::Tensor&) { x.zero_(); }};
    case 4:
      return {".fill_(0.7)", [](const at::Tensor& x, const at::Tensor&) { x.fill_(0.7); }};
    case 5:
      return {".mul_(-0.5)", [](const at::Tensor& x, const at::Tensor&) { x.mul_(-0.5); }};
    case 6:
      return {".add_(1)", [](const at::Tensor& x, const at::Tensor&) { x.add_(1); }};
    case 7:
      return {".masked_fill_(range, 0.2)", [](const at::Tensor& x, const at::Tensor&) {
                x.masked_fill_(at::ones_like(x, at::TensorOptions(at::kBool)), 0.2);
              }};
    case 8:
      return {".add_(rows of other)",
              [](const at::Tensor& x, const at::Tensor& y) { x.add_(y.sum().expand(x.sizes())); }};
    default:
      return {".fill_(other)", [=](const at::Tensor& x, const at::Tensor& y) { x.fill_(one(y)); }};
  }
}

// Up to three views, one of the other.
struct RandomViews {
  std::string text;
  std::vector<RandomView> views;

  at::Tensor of(at::Tensor tensor) const {
    for (const RandomView& view : views) tensor = view.of(tensor);
    return tensor;
  }
};

RandomViews random_views(Random& random, const at::Tensor& plain) {
  RandomViews result;
  at::Tensor reached = plain.detach();
  for (std::int64_t count = random.between(0, 3);
       count > 0 && reached.dim() > 0 && reached.numel() > 0; --count) {
    result.views.push_back(random_view(random, reached.sizes()));
    result.text += result.views.back().text;
    reached = result.views.back().of(reached);
  }
  return result;
}

// Two writes to views of a copy, which is read afterwards, as is the last view.
OptionalStep write_to_clone(Pool& pool) {
  const auto source = pool.pick_float(1);
  const auto other = pool.pick_float(1);
  if (!source || !other) return {};
  const at::Tensor copy = pool.plain(*source).detach().clone();
  const RandomViews first = random_views(pool.random, copy);
  const RandomViews second = random_views(pool.random, copy);
  const RandomWrite write = random_write(pool.random);
  const RandomWrite overwrite = random_write(pool.random);
  const std::string name = "v" + std::to_string(*source) + ".clone()";
  return Step{name + ", it" + first.text + write.text + ", it" + second.text + overwrite.text +
                  ", other = v" + std::to_string(*other),
              {*source, *other},
              [=](const Tensors& t) {
                const at::Tensor base = t[0].clone();
                const at::Tensor view = first.of(base);
                write.run(view, t[1]);
                overwrite.run(second.of(base), t[1]);
                return Tensors{base, view};
              },
              Saves::Others};
}

// A write through views; the base is read by the check that follows.
OptionalStep write_through_views(Pool& pool) {
  const auto base = pool.pick([&](const Value& value) { return can_be_written(pool, value); });
  if (!base) return {};
  const auto other = pool.pick([&](const Value& value) {
    return value.plain.is_floating_point() && value.plain.dim() > 0 && value.plain.numel() > 0 &&
           value.family != pool.values[*base].family;
  });
  if (!other) return {};
  const RandomViews views = random_views(pool.random, pool.plain(*base));
  const RandomWrite write = random_write(pool.random);
  return Step{"v" + std::to_string(*base) + views.text + write.text + ", other = v" +
                  std::to_string(*other),
              {*base, *other},
              [=](const Tensors& t) {
                write.run(views.of(t[0]), t[1]);
                return Tensors{};
              },
              Saves::Others,
              true};
}

OptionalStep write_like(Pool& pool) {
  const auto base = pool.pick([&](const Value& value) { return can_be_written(pool, value); });
  if (!base) return {};
  const Shape shape = pool.plain(*base).sizes().vec();
  const auto other = pool.pick([&](const Value& value) {
    return value.plain.is_floating_point() && value.plain.sizes() == shape &&
           value.family != pool.values[*base].family;
  });
  const std::size_t source = other ? *other : pool.add_leaf(shape);
  Step step{"", {*base, source}, nullptr, Saves::Others, true};
  const auto set = [&](const char* name, const auto& run) {
    step.text = call_text(name, step.operands);
    step.run = [run](const Tensors& t) {
      run(t[0], t[1]);
      return Tensors{};
    };
  };
  switch (pool.random.between(0, 4)) {
    case 0:
      set("add_", [](const at::Tensor& x, const at::Tensor& y) { x.add_(y, 0.5); });
      break;
    case 1:
      set("mul_, tanh", [](const at::Tensor& x, const at::Tensor& y) { x.mul_(y.tanh()); });
      break;
    case 2:
      set("copy_", [](const at::Tensor& x, const at::Tensor& y) { x.copy_(y); });
      break;
    case 3:
      if (!is_apart(pool.plain(source), 0)) return {};
      set("masked_fill_, y > 0, 0.4",
          [](const at::Tensor& x, const at::Tensor& y) { x.masked_fill_(y > 0, 0.4); });
      break;
    default:
      set("sub_ of a transposed view", [](const at::Tensor& x, const at::Tensor& y) {
        if (x.dim() < 2) return;
        x.transpose(0, 1).sub_(y.transpose(0, 1));
      });
  }
  return step;
}

// One part of a tensor is copied to another.
OptionalStep write_own_part(Pool& pool) {
  const auto base = pool.pick([&](const Value& value) {
    return can_be_written(pool, value) && value.plain.dim() > 0 && value.plain.numel() > 0 &&
           value.plain.size(0) > 1;
  });
  if (!base) return {};
  const std::int64_t half = pool.plain(*base).size(0) / 2;
  Step step{call_text("x[:n] = x[-n:]", {*base}, std::to_string(half)),
            {*base},
            [=](const Tensors& t) {
              t[0].narrow(0, 0, half).copy_(t[0].narrow(0, t[0].size(0) - half, half));
              return Tensors{};
            },
            Saves::Nothing,
            true};
  return step;
}

OptionalStep index_put(Pool& pool) {
  const auto base = pool.pick([&](const Value& value) {
    return can_be_written(pool, value) && value.plain.dim() > 0 && value.plain.numel() > 0;
  });
  if (!base) return {};
  const Shape shape = pool.plain(*base).sizes().vec();
  at::Tensor places = random_places(pool.random, {1}, shape[0]);
  const auto index = pool.add_constant(places);
  Shape row = shape;
  row[0] = 1;
  const auto values = pool.add_leaf(row);
  const bool adds = pool.random.one_in(2);
  Step step{call_text(adds ? "index_put_, accumulate" : "index_put_", {*base, index, values}),
            {*base, index, values},
            [=](const Tensors& t) {
              at::Tensor x = t[0];
              x.index_put_({t[1]}, t[2], adds);
              return Tensors{};
            },
            Saves::Others,
            true};
  return step;
}

OptionalStep copied(Pool& pool) {
  const auto x = pool.pick_float_or_none();
  if (!x) return {};
  return one_result("clone", {*x}, "", Saves::Nothing,
                    [](const Tensors& t) { return t[0].clone(); });
}

}  // namespace

const std::vector<StepKind>& writing_steps() {
  static const std::vector<StepKind> kinds = {
      write_to_clone,      write_to_clone, write_through_views,
      write_through_views, write_like,     write_like,
      write_own_part,      index_put,      copied};
  return kinds;
}

}  // namespace tegula::test
