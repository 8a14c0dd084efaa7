// One visitor per thing that can be asked of a move: do it on this rank, do it with the group now,
// start it with the group.
#include "tegula/redistribute/carry_out.h"

#include <ATen/ATen.h>

#include "tegula/base/error.h"
#include "tegula/base/overloaded.h"

namespace tegula::inner {
namespace {

// narrow(), with one call of the dispatcher.
at::Tensor narrowed(const at::Tensor& tensor, std::int64_t dim, const Interval& part) {
  c10::SmallVector<std::int64_t, 8> sizes(tensor.sizes().begin(), tensor.sizes().end());
  sizes[static_cast<std::size_t>(dim)] = part.size;
  return tensor.as_strided(sizes, tensor.strides(),
                           tensor.storage_offset() + part.begin * tensor.stride(dim));
}

at::Tensor taken(const at::Tensor& tensor, const std::optional<Pick>& pick) {
  if (!pick) return tensor;
  if (pick->parts.empty()) return narrowed(tensor, pick->dim, {0, 0});
  if (pick->parts.size() == 1) return narrowed(tensor, pick->dim, pick->parts.front());
  std::vector<at::Tensor> parts;
  for (const Interval& part : pick->parts) parts.push_back(narrowed(tensor, pick->dim, part));
  return at::cat(parts, pick->dim);
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

at::Tensor filled(const at::Tensor& tile, const move::Fill& fill) {
  return at::full(tile.sizes(), fill.value, tile.options());
}

template <class Result, class Move>
Result refuse(const Move&) {
  throw InternalError("a step that stays on its rank was taken for one that does not");
}

}  // namespace

std::optional<Group> group_along(const World& world, const DeviceMesh& mesh, const TileStep& step) {
  if (!communicates(step)) return std::nullopt;
  if (step.axes.size() == 1) return world.group(mesh, step.axes.front());
  std::vector<std::string> names;
  for (std::size_t axis : step.axes) names.push_back(mesh.axes()[axis].name);
  return world.group(mesh.slice(names).flatten(), 0);
}

at::Tensor carry_out_alone(const at::Tensor& tile, const TileStep& step) {
  const at::Tensor input = taken(tile, step.before);
  if (const auto* fill = std::get_if<move::Fill>(&step.move)) {
    return finish(filled(input, *fill), step);
  }
  if (const auto* pad = std::get_if<move::Pad>(&step.move)) {
    return finish(padded(input, *pad), step);
  }
  if (communicates(step)) throw InternalError("a step that communicates needs its group");
  return finish(input, step);
}

at::Tensor carry_out(const Group& group, const at::Tensor& tile, const TileStep& step) {
  const at::Tensor input = taken(tile, step.before);
  const at::Tensor result =
      std::visit(Overloaded{
                     [](const move::Stay& stay) { return refuse<at::Tensor>(stay); },
                     [](const move::Fill& fill) { return refuse<at::Tensor>(fill); },
                     [](const move::Pad& pad) { return refuse<at::Tensor>(pad); },
                     [&](const move::AllReduce& call) { return group.all_reduce(input, call.op); },
                     [&](const move::AllGather& call) {
                       return group.all_gather(input, call.dim, call.sizes);
                     },
                     [&](const move::ReduceScatter& call) {
                       return group.reduce_scatter(input, call.dim, call.op, call.sizes);
                     },
                     [&](const move::AllToAll& call) {
                       return group.all_to_all(input, call.split_dim, call.join_dim,
                                               call.split_sizes, call.join_sizes);
                     },
                 },
                 step.move);
  return finish(result, step);
}

Pending begin(const Group& group, const at::Tensor& tile, const TileStep& step) {
  const at::Tensor input = taken(tile, step.before);
  return std::visit(
      Overloaded{
          [](const move::Stay& stay) { return refuse<Pending>(stay); },
          [](const move::Fill& fill) { return refuse<Pending>(fill); },
          [](const move::Pad& pad) { return refuse<Pending>(pad); },
          [&](const move::AllReduce& call) { return group.all_reduce_async(input, call.op); },
          [&](const move::AllGather& call) {
            return group.all_gather_async(input, call.dim, call.sizes);
          },
          [&](const move::ReduceScatter& call) {
            return group.reduce_scatter_async(input, call.dim, call.op, call.sizes);
          },
          [&](const move::AllToAll& call) {
            return group.all_to_all_async(input, call.split_dim, call.join_dim, call.split_sizes,
                                          call.join_sizes);
          },
      },
      step.move);
}

at::Tensor finish(const at::Tensor& received, const TileStep& step) {
  return taken(received, step.after);
}

}  // namespace tegula::inner
