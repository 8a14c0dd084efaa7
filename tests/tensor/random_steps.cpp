#include "tests/tensor/random_steps.h"

#include <ATen/CPUGeneratorImpl.h>

#include <cmath>
#include <stdexcept>

#include "tegula/tensor/dtensor.h"

namespace tegula::test {
namespace {

constexpr double kApart = 1e-6;

}  // namespace

std::string text_of(at::IntArrayRef numbers) {
  std::string text;
  for (std::int64_t number : numbers) text += (text.empty() ? "" : ", ") + std::to_string(number);
  return "[" + text + "]";
}

std::string call_text(const std::string& name, const std::vector<std::size_t>& operands,
                      const std::string& attributes) {
  std::string text;
  for (std::size_t operand : operands)
    text += (text.empty() ? "v" : ", v") + std::to_string(operand);
  if (!attributes.empty()) text += ", " + attributes;
  return name + "(" + text + ")";
}

Step one_result(const std::string& name, const std::vector<std::size_t>& operands,
                const std::string& attributes, Saves saves, const OneResult& run) {
  return {call_text(name, operands, attributes), operands,
          [run](const Tensors& tensors) { return Tensors{run(tensors)}; }, saves};
}

std::optional<std::size_t> Pool::pick(const std::function<bool(const Value&)>& fits) {
  std::vector<std::size_t> fitting;
  for (std::size_t index = 0; index < values.size(); ++index) {
    if (fits(values[index])) fitting.push_back(index);
  }
  if (fitting.empty()) return std::nullopt;
  const auto last = static_cast<std::int64_t>(fitting.size()) - 1;
  const std::int64_t place = std::max(random.between(0, last), random.between(0, last));
  return fitting[static_cast<std::size_t>(place)];
}

std::optional<std::size_t> Pool::pick_float(std::int64_t dims) {
  return pick([&](const Value& value) {
    return value.plain.is_floating_point() && value.plain.dim() >= dims && value.plain.numel() > 0;
  });
}

std::optional<std::size_t> Pool::pick_float_or_none(std::int64_t dims) {
  return pick([&](const Value& value) {
    return value.plain.is_floating_point() && value.plain.dim() >= dims;
  });
}

std::optional<std::size_t> Pool::pick_shaped(const std::function<bool(at::IntArrayRef)>& fits) {
  return pick([&](const Value& value) {
    return value.plain.is_floating_point() && value.plain.numel() > 0 && fits(value.plain.sizes());
  });
}

std::size_t Pool::add(const at::Tensor& plain, const at::Tensor& distributed) {
  std::size_t family = is_writable.size();
  for (const Value& value : values) {
    if (value.plain.is_alias_of(plain)) family = value.family;
  }
  if (family == is_writable.size()) is_writable.push_back(true);
  values.push_back({plain, distributed, family});
  return values.size() - 1;
}

at::Tensor Pool::random_numbers(const Shape& shape) {
  return at::randn(
      shape,
      at::detail::createCPUGenerator(static_cast<std::uint64_t>(random.between(0, 1'000'000'000))),
      at::TensorOptions(at::kDouble));
}

namespace {

// The part of a value that rank `k` of `ranks` holds: none of them holds the value, all of them
// together do.
at::Tensor part_of(const at::Tensor& value, ReduceOp op, std::int64_t k, std::int64_t ranks) {
  const auto count = static_cast<double>(ranks);
  const bool is_first = k == 0;
  const at::Tensor is_mine =
      at::remainder(at::arange(value.numel(), at::kLong), ranks).eq(k).reshape(value.sizes());
  switch (op) {
    case ReduceOp::Sum:
      return value * (is_first ? 1 - 0.75 * (count - 1) : 0.75);
    case ReduceOp::Avg:
      return value * (is_first ? 1 - 0.75 * (count - 1) : 0.75) * count;
    case ReduceOp::Product:
      return is_first ? value * std::pow(2.0, count - 1) : at::full_like(value, 0.5);
    case ReduceOp::Max:
      return at::where(is_mine, value, value - 0.5);
    case ReduceOp::Min:
      return at::where(is_mine, value, value + 0.5);
    case ReduceOp::Band:
    case ReduceOp::Bor:
    case ReduceOp::Bxor:
      break;
  }
  throw std::logic_error("numbers are not reduced by their bits here");
}

// The tile that this rank holds, cut out of a plain tensor and given back as its own; of what is
// owed, a part.
at::Tensor by_from_local(const at::Tensor& plain, const DeviceMesh& mesh,
                         const RandomPlace& place) {
  const Coordinate at = *mesh.coordinate_of(World::of(mesh).rank());
  Placements without_owed = place.placements;
  for (Placement& placement : without_owed) {
    if (owed_reduction(placement)) placement = Replicate();
  }
  at::Tensor tile =
      to_local(distribute_tensor(plain, mesh, without_owed, {std::nullopt, place.order})).clone();
  for (std::size_t axis = 0; axis < mesh.ndim(); ++axis) {
    if (const auto owed = owed_reduction(place.placements[axis])) {
      tile = part_of(tile, *owed, at[axis], mesh.axes()[axis].size);
    }
  }
  FromLocalOptions options;
  options.order = place.order;
  return from_local(tile, mesh, place.placements, options);
}

// Only the data of one rank counts; the others have something else.
at::Tensor by_source(const at::Tensor& plain, const DeviceMesh& mesh, const RandomPlace& place,
                     std::int64_t source) {
  const std::int64_t rank = World::of(mesh).rank();
  const std::int64_t fiber = *mesh.fiber_of(rank);
  const bool is_source = mesh.rank_at(mesh.coordinate_at(source), fiber) == rank;
  const at::Tensor mine = is_source ? plain.clone() : plain + 100.0 * static_cast<double>(rank + 1);
  return distribute_tensor(mine, mesh, place.placements, {source, place.order});
}

}  // namespace

std::size_t Pool::add_leaf(const Shape& shape) {
  const at::Tensor plain = random_numbers(shape);
  // a tensor on a part of the mesh counts as replicated over the rest
  const DeviceMesh of_leaf = random.one_in(6) ? part : mesh;
  const RandomPlace place = random_place(random, of_leaf, shape, Owed::Allowed);
  const bool from_tiles = random.one_in(3);
  const std::int64_t source = random.between(-2, of_leaf.size() - 1);  // -1, -2: all have the data
  const auto placed = [&] {
    if (from_tiles) return by_from_local(plain, of_leaf, place);
    if (source >= 0) return by_source(plain, of_leaf, place, source);
    return distribute_tensor(plain.clone(), of_leaf, place.placements, {std::nullopt, place.order});
  };
  const at::Tensor distributed = placed();
  const bool requires_grad = !random.one_in(4);
  if (requires_grad) {
    plain.requires_grad_();
    distributed.requires_grad_();
  }
  const std::size_t index = add(plain, distributed);
  if (requires_grad) leaves.push_back(index);
  is_writable[values[index].family] = false;
  const std::string origin = source < 0 ? "" : ", from rank " + std::to_string(source);
  lines.push_back("v" + std::to_string(index) + " = leaf" + (from_tiles ? ", from tiles" : origin) +
                  (requires_grad ? ", requires grad" : "") + "\n      " +
                  to_string(spec_of(distributed)));
  return index;
}

std::size_t Pool::add_constant(const at::Tensor& plain) {
  const RandomPlace place = random_place(random, mesh, plain.sizes(),
                                         plain.is_floating_point() ? Owed::Allowed : Owed::Never);
  const at::Tensor distributed =
      distribute_tensor(plain.clone(), mesh, place.placements, {std::nullopt, place.order});
  const std::size_t index = add(plain, distributed);
  is_writable[values[index].family] = false;
  std::string text = "v" + std::to_string(index) + " = constant";
  if (!plain.is_floating_point()) {
    const at::Tensor numbers = plain.to(at::kLong).contiguous();
    text += " " +
            text_of({numbers.data_ptr<std::int64_t>(), static_cast<std::size_t>(numbers.numel())});
  }
  lines.push_back(text + "\n      " + to_string(spec_of(distributed)));
  return index;
}

bool is_apart(const at::Tensor& values, double kink) {
  if (values.numel() == 0) return true;
  return (values.detach() - kink).abs().min().item<double>() > kApart;
}

bool is_apart(const at::Tensor& a, const at::Tensor& b) {
  return is_apart(a.detach() - b.detach(), 0);
}

bool is_distinct(const at::Tensor& values) {
  if (values.numel() < 2) return true;
  const at::Tensor sorted = std::get<0>(values.detach().flatten().sort());
  return sorted.diff().min().item<double>() > kApart;
}

at::Tensor random_places(Random& random, const Shape& shape, std::int64_t below) {
  at::Tensor places = at::empty(shape, at::kLong);
  for (std::int64_t i = 0; i < places.numel(); ++i) {
    places.data_ptr<std::int64_t>()[i] = random.between(0, below - 1);
  }
  return places;
}

RandomView random_view(Random& random, at::IntArrayRef shape) {
  const auto dims = static_cast<std::int64_t>(shape.size());
  const std::int64_t dim = random.between(0, dims - 1);
  const std::int64_t other = random.between(0, dims - 1);
  const std::int64_t size = shape[static_cast<std::size_t>(dim)];
  const std::int64_t start = random.between(0, size - 1);
  const std::int64_t length = random.between(1, size - start);
  const std::int64_t step = random.between(1, 3);
  const auto text = [](const std::string& name, at::IntArrayRef numbers) {
    return "." + name + text_of(numbers);
  };
  switch (random.between(0, 7)) {
    case 0:
      return {text("select", {dim, start}),
              [=](const at::Tensor& x) { return x.select(dim, start); }};
    case 1:
      return {text("transpose", {dim, other}),
              [=](const at::Tensor& x) { return x.transpose(dim, other); }};
    case 2:
      return {text("slice", {dim, start, start + length, step}),
              [=](const at::Tensor& x) { return x.slice(dim, start, start + length, step); }};
    case 3:
      return {text("unsqueeze", {dim}), [=](const at::Tensor& x) { return x.unsqueeze(dim); }};
    case 4:
      return {".squeeze()", [=](const at::Tensor& x) { return x.squeeze(); }};
    case 5: {
      // the strides may not allow a view; a slice does as well
      if (dim + 1 < dims && random.one_in(2)) {
        return {text("flatten or narrow", {dim, dim + 1, start, length}), [=](const at::Tensor& x) {
                  return x.is_contiguous() ? x.flatten(dim, dim + 1) : x.narrow(dim, start, length);
                }};
      }
      const std::int64_t inner = size % 2 == 0 ? 2 : (size % 3 == 0 ? 3 : 1);
      return {text("unflatten", {dim, size / inner, inner}),
              [=](const at::Tensor& x) { return x.unflatten(dim, {size / inner, inner}); }};
    }
    case 6: {
      if (dim == other) break;
      return {text("diagonal", {0, dim, other}),
              [=](const at::Tensor& x) { return x.diagonal(0, dim, other); }};
    }
    default:
      break;
  }
  return {text("narrow", {dim, start, length}),
          [=](const at::Tensor& x) { return x.narrow(dim, start, length); }};
}

std::optional<Step> random_step(Pool& pool) {
  // as often as they appear
  static const std::vector<const std::vector<StepKind>& (*)()> families = {
      pointwise_steps, pointwise_steps, product_steps, view_steps,    view_steps,   reduction_steps,
      reduction_steps, indexing_steps,  writing_steps, writing_steps, placing_steps};
  const auto family = pool.random.pick(families);
  return pool.random.pick(family())(pool);
}

}  // namespace tegula::test
