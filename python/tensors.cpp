// Distributed tensors: how they are made, asked and moved.
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings.h"
#include "tegula/base/text.h"
#include "tegula/comm/recovery.h"
#include "tegula/payload/payload.h"
#include "tegula/spec/slices.h"
#include "tegula/tensor/dtensor.h"
#include "tegula/tensor/neighbours.h"
#include "tegula/tensor/show.h"

namespace tegula::python {

using namespace inner;

namespace {

at::Tensor distribute(const at::Tensor& tensor, const DeviceMesh& mesh,
                      const Placements& placements, std::optional<std::int64_t> source) {
  return distribute_tensor(tensor, mesh, placements, {.source = source});
}

at::Tensor from_tiles(const at::Tensor& local, const DeviceMesh& mesh, const Placements& placements,
                      std::optional<Shape> shape, std::optional<Shape> stride, bool check,
                      std::optional<Placements> grad_placements) {
  return from_local(local, mesh, placements,
                    {.shape = std::move(shape),
                     .stride = std::move(stride),
                     .check = check,
                     .grad_placements = std::move(grad_placements)});
}

at::Tensor place_otherwise(const at::Tensor& tensor, const DeviceMesh& mesh,
                           const Placements& placements, bool async_op,
                           std::optional<at::ScalarType> wire) {
  return redistribute(tensor, mesh, placements, {.async_op = async_op, .wire = wire});
}

// Whether this rank alone can say what the tensor's values are.
bool holds_values(const at::Tensor& tensor) {
  return !payload_in(tensor)->link() && spec_of(tensor).is_replicated();
}

using Intervals = std::vector<std::pair<std::int64_t, std::int64_t>>;  // begin, size

// For each dim the intervals that this rank holds, in the order in which its tile has them; none
// for a rank outside of the mesh.
std::optional<std::vector<Intervals>> slice_of(const at::Tensor& tensor) {
  const DTensorSpec spec = spec_of(tensor);
  const auto coordinate = spec.mesh().coordinate_of(world_of(tensor).rank());
  if (!coordinate) return std::nullopt;
  std::vector<Intervals> dims;
  for (const std::vector<Interval>& held : slice_at(spec, *coordinate)) {
    dims.emplace_back();
    for (const Interval& interval : held) dims.back().emplace_back(interval.begin, interval.size);
  }
  return dims;
}

std::vector<at::Tensor> map_locals(const py::function& function,
                                   const std::vector<at::Tensor>& inputs,
                                   const std::vector<Placements>& out,
                                   const std::vector<Placements>& in,
                                   const std::vector<Placements>& in_grad) {
  const auto on_tiles = [&](const std::vector<at::Tensor>& tiles) {
    const py::gil_scoped_acquire locked;
    return function(tiles).cast<std::vector<at::Tensor>>();
  };
  const py::gil_scoped_release unlocked;
  return local_map(on_tiles, inputs, out, {in, in_grad});
}

constexpr std::pair<std::string_view, Boundary> kBoundaries[] = {{"zeros", Boundary::Zeros},
                                                                 {"clipped", Boundary::Clipped},
                                                                 {"periodic", Boundary::Periodic},
                                                                 {"reflect", Boundary::Reflect},
                                                                 {"nearest", Boundary::Nearest}};

Boundary boundary_named(const std::string& name) {
  for (const auto& [known, boundary] : kBoundaries) {
    if (known == name) return boundary;
  }
  throw UsageError("there is no boundary of this name")
      .fact("boundary", in_quotes(name))
      .hint("zeros, clipped, periodic, reflect or nearest");
}

at::Tensor with_ghost_cells(const at::Tensor& x, const Sizes& dims,
                            const std::vector<std::pair<std::int64_t, std::int64_t>>& widths,
                            const std::string& boundary) {
  std::vector<HaloWidth> sides;
  for (const auto& [before, after] : widths) sides.push_back({before, after});
  return halo(x, dims, sides, boundary_named(boundary));
}

using Rows = std::pair<at::Tensor, Sizes>;
using SendLists = std::vector<std::optional<at::Tensor>>;  // none: nothing for that rank

std::vector<at::Tensor> in_cpp(const SendLists& lists) {
  std::vector<at::Tensor> tensors;
  for (const auto& list : lists) tensors.push_back(list.value_or(at::Tensor()));
  return tensors;
}

Rows exchange_rows(const at::Tensor& rows, const SendLists& lists,
                   const std::optional<Group>& group) {
  Arrived arrived =
      group ? tegula::exchange(rows, *group, in_cpp(lists)) : tegula::exchange(rows, in_cpp(lists));
  return {std::move(arrived.rows), std::move(arrived.counts)};
}

// This rank has thrown where the ranks that share the tensor take part.
void note_error(const at::Tensor& tensor, const std::string& text) {
  const World world = world_of(tensor);
  const DeviceMesh mesh = mesh_of(tensor);
  if (const auto fiber = mesh.fiber_of(world.rank())) {
    comm::note_error(world, mesh.ranks(*fiber), text);
  }
}

}  // namespace

void bind_tensors(py::module_& module) {
  module.def("is_dtensor", &is_dtensor);
  module.def("spec", [](const at::Tensor& tensor) { return to_string(spec_of(tensor)); });
  module.def("placements",
             [](const at::Tensor& tensor) { return py::tuple(py::cast(placements_of(tensor))); });
  module.def("mesh", &mesh_of);
  module.def("slice", slice_of);
  module.def("distribute_tensor", distribute, Unlocked());
  module.def("from_local", from_tiles, Unlocked());
  module.def("to_local", &to_local, Unlocked());
  module.def("full_tensor", &full_tensor, Unlocked());
  module.def("shard_batch", &shard_batch, Unlocked());
  module.def("redistribute", place_otherwise, Unlocked());
  module.def("local_map", map_locals);
  module.def("halo", with_ghost_cells, Unlocked());
  module.def("exchange", exchange_rows, Unlocked());
  module.def("show", &show, Unlocked());
  module.def("holds_values", &holds_values);
  module.def("note_error", note_error);
  module.def("to_string", [](const at::Tensor& tensor) { return to_string(tensor); }, Unlocked());
}

}  // namespace tegula::python
