// Steps that only DTensors know: on a plain tensor they change nothing. And steps that say what
// autograd should see.
#include <ATen/core/grad_mode.h>

#include "tegula/payload/guards.h"
#include "tegula/tensor/dtensor.h"
#include "tests/tensor/random_steps.h"

namespace tegula::test {
namespace {

using OptionalStep = std::optional<Step>;

OptionalStep detached(Pool& pool) {
  const auto x = pool.pick_float();
  if (!x) return {};
  return one_result("detach", {*x}, "", Saves::Nothing,
                    [](const Tensors& t) { return t[0].detach(); });
}

OptionalStep redistributed(Pool& pool) {
  const auto x = pool.pick([](const Value&) { return true; });
  const bool is_number = pool.plain(*x).is_floating_point();
  const RandomPlace place =
      random_place(pool.random, mesh_of(pool.values[*x].distributed), pool.plain(*x).sizes(),
                   is_number ? Owed::Allowed : Owed::Never);
  const bool async_op = pool.random.one_in(4);
  return one_result(async_op ? "redistribute, async" : "redistribute", {*x},
                    to_string(place.placements) + " " + to_string(place.order), Saves::Everything,
                    [=](const Tensors& t) {
                      return is_dtensor(t[0])
                                 ? redistribute(t[0], place.placements, {place.order, async_op, {}})
                                 : t[0].clone();
                    });
}

// To other axes over the same ranks, and back.
OptionalStep over_another_mesh(Pool& pool) {
  const auto x = pool.pick_float_or_none();
  if (!x) return {};
  const at::IntArrayRef shape = pool.plain(*x).sizes();
  const DeviceMesh& mesh = pool.mesh;
  const std::string first = mesh.axes().front().name;
  const std::string last = mesh.axes().back().name;
  const DeviceMesh other =
      mesh.ndim() == 1 || pool.random.one_in(2) ? mesh.flatten("all") : mesh[{last, first}];
  const RandomPlace there = random_place(pool.random, other, shape, Owed::Allowed);
  const RandomPlace back = random_place(pool.random, mesh, shape, Owed::Allowed);
  return one_result(
      "redistribute", {*x},
      to_string(other) + " " + to_string(there.placements) + " " + to_string(there.order) + ", " +
          to_string(back.placements) + " " + to_string(back.order),
      Saves::Everything, [=](const Tensors& t) {
        if (!is_dtensor(t[0])) return t[0].clone();
        return redistribute(redistribute(t[0], other, there.placements, {there.order, false, {}}),
                            mesh, back.placements, {back.order, false, {}});
      });
}

OptionalStep on_locals(Pool& pool) {
  const auto x = pool.pick_float_or_none();
  if (!x) return {};
  // the tiles are those of the default order
  const RandomPlace place =
      random_place(pool.random, pool.mesh, pool.plain(*x).sizes(), Owed::Never);
  Placements placements = place.placements;
  for (Placement& placement : placements) {
    if (const Shard* shard = as_shard(placement)) placement = Shard(shard->dim());
  }
  const DeviceMesh mesh = mesh_of(pool.values[*x].distributed);
  placements.resize(mesh.ndim(), Replicate());
  return one_result(
      "local_map of tanh", {*x}, to_string(placements), Saves::Everything, [=](const Tensors& t) {
        const auto tanh = [](const Tensors& tiles) { return Tensors{tiles[0].tanh()}; };
        if (!is_dtensor(t[0])) return tanh(t)[0];
        LocalMapOptions options;
        options.in_placements = {placements};
        return local_map(tanh, t, {placements}, options)[0];
      });
}

OptionalStep with_plain(Pool& pool) {
  const auto x = pool.pick_float_or_none(1);
  if (!x) return {};
  const std::int64_t size = pool.plain(*x).size(-1);
  return one_result("add a plain row", {*x}, "", Saves::Nothing, [=](const Tensors& t) {
    const ImplicitReplication guard;
    return t[0] + at::arange(size, at::kDouble).cos();
  });
}

OptionalStep without_grad(Pool& pool) {
  const auto x = pool.pick_float_or_none();
  if (!x) return {};
  return one_result("sin, without grad", {*x}, "", Saves::Everything, [](const Tensors& t) {
    const at::NoGradGuard guard;
    return t[0].sin();
  });
}

OptionalStep into_out(Pool& pool) {
  const auto a = pool.pick_float();
  if (!a) return {};
  const Shape shape = pool.plain(*a).sizes().vec();
  const std::size_t b =
      *pool.pick_shaped([&](at::IntArrayRef other) { return other == at::IntArrayRef(shape); });
  const auto out = pool.add_constant(at::zeros(shape, at::kDouble));
  return one_result("mul_out", {*a, b, out}, "", Saves::Everything, [](const Tensors& t) {
    at::Tensor result = t[2].clone();
    at::mul_out(result, t[0].detach(), t[1].detach());
    return result;
  });
}

OptionalStep through_local(Pool& pool) {
  const auto x = pool.pick_float();
  if (!x) return {};
  return one_result("from_local of to_local", {*x}, "", Saves::Everything, [](const Tensors& t) {
    if (!is_dtensor(t[0])) return t[0].clone();
    const DTensorSpec spec = spec_of(t[0]);
    FromLocalOptions options;
    options.order = spec.shard_order();
    return from_local(to_local(t[0]), mesh_of(t[0]), spec.placements(), options);
  });
}

}  // namespace

const std::vector<StepKind>& placing_steps() {
  static const std::vector<StepKind> kinds = {
      redistributed,     redistributed, redistributed, detached,     through_local,
      over_another_mesh, on_locals,     with_plain,    without_grad, into_out};
  return kinds;
}

}  // namespace tegula::test
