// One visitor per thing that can be asked of a move: do it on this rank, do it with the group now,
// start it with the group.
#include "tegula/dispatch/carry_out.h"

#include <ATen/ATen.h>

#include "tegula/base/error.h"

namespace tegula {
namespace {

template <class... Cases>
struct Visitor : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Visitor(Cases...) -> Visitor<Cases...>;

at::Tensor taken(const at::Tensor& tensor, const std::optional<Pick>& pick) {
  if (!pick) return tensor;
  if (pick->parts.empty()) return tensor.narrow(pick->dim, 0, 0);
  std::vector<at::Tensor> parts;
  for (const Interval& part : pick->parts) {
    parts.push_back(tensor.narrow(pick->dim, part.begin, part.size));
  }
  return parts.size() == 1 ? parts.front() : at::cat(parts, pick->dim);
}

at::Tensor padded(const at::Tensor& tile, const move::Pad& pad) {
  std::vector<std::int64_t> shape = tile.sizes().vec();
  shape[static_cast<std::size_t>(pad.dim)] = pad.size;
  at::Tensor result = at::zeros(shape, tile.options());
  std::int64_t begin = 0;
  for (const Interval& place : pad.places) {
    result.narrow(pad.dim, place.begin, place.size).copy_(tile.narrow(pad.dim, begin, place.size));
    begin += place.size;
  }
  return result;
}

// Over several axes: that of a mesh which has them as one.
Group group_along(const World& world, const DeviceMesh& mesh, const TileStep& step) {
  std::vector<std::string> names;
  for (std::size_t axis : step.axes) names.push_back(mesh.axes()[axis].name);
  if (names.size() == 1) return world.group(mesh, names.front());
  const DeviceMesh flat = mesh.slice(names).flatten();
  return world.group(flat, flat.axes().front().name);
}

}  // namespace

at::Tensor carry_out(const World& world, const DeviceMesh& mesh, const at::Tensor& tile,
                     const TileStep& step) {
  const at::Tensor input = taken(tile, step.before);
  const auto group = [&] { return group_along(world, mesh, step); };
  const at::Tensor result = std::visit(
      Visitor{
          [&](const move::Stay&) { return input; },
          [&](const move::Fill& fill) {
            return at::full(input.sizes(), fill.value, input.options());
          },
          [&](const move::Pad& pad) { return padded(input, pad); },
          [&](const move::AllReduce& call) { return group().all_reduce(input, call.op); },
          [&](const move::AllGather& call) {
            return group().all_gather(input, call.dim, call.sizes);
          },
          [&](const move::ReduceScatter& call) {
            return group().reduce_scatter(input, call.dim, call.op, call.sizes);
          },
          [&](const move::AllToAll& call) {
            return group().all_to_all(input, call.split_dim, call.join_dim, call.split_sizes,
                                      call.join_sizes);
          },
      },
      step.move);
  return finish(result, step);
}

Pending begin(const World& world, const DeviceMesh& mesh, const at::Tensor& tile,
              const TileStep& step) {
  const at::Tensor input = taken(tile, step.before);
  const Group group = group_along(world, mesh, step);
  const auto refuse = [](const auto&) -> Pending {
    throw InternalError("a step that stays on its rank cannot be begun");
  };
  return std::visit(
      Visitor{
          [&](const move::Stay& stay) { return refuse(stay); },
          [&](const move::Fill& fill) { return refuse(fill); },
          [&](const move::Pad& pad) { return refuse(pad); },
          [&](const move::AllReduce& call) { return group.all_reduce_later(input, call.op); },
          [&](const move::AllGather& call) {
            return group.all_gather_later(input, call.dim, call.sizes);
          },
          [&](const move::ReduceScatter& call) {
            return group.reduce_scatter_later(input, call.dim, call.op, call.sizes);
          },
          [&](const move::AllToAll& call) {
            return group.all_to_all_later(input, call.split_dim, call.join_dim, call.split_sizes,
                                          call.join_sizes);
          },
      },
      step.move);
}

at::Tensor finish(const at::Tensor& received, const TileStep& step) {
  return taken(received, step.after);
}

}  // namespace tegula
