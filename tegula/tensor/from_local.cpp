// The idea: every rank sends a row of numbers (dims, dtype, a hash of the placements, whether it
// requires grad, sizes and strides) to all ranks of the mesh, so that all of them see the same
// table, come to the same spec, or throw the same error. One all-gather of a few dozen integers.
#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>

#include "tegula/base/error.h"
#include "tegula/base/text.h"
#include "tegula/bridge/torch_types.h"
#include "tegula/comm/comm_log.h"
#include "tegula/dispatch/paranoia.h"
#include "tegula/families/families.h"
#include "tegula/gradient/differentiable.h"
#include "tegula/operators/call.h"
#include "tegula/spec/placed_otherwise.h"
#include "tegula/spec/slices.h"
#include "tegula/tensor/dtensor.h"

namespace tegula {

using namespace inner;

namespace {

constexpr std::int64_t kMostDims = 28;

// What one rank says of its tile.
struct Row {
  std::int64_t ndim = 0;
  std::int64_t dtype = 0;
  std::int64_t placements = 0;
  std::int64_t requires_grad = 0;
  Shape shape;
  Shape stride;
};

constexpr std::int64_t kRowLength = 4 + 2 * kMostDims;

at::Tensor encoded(const at::Tensor& local, const std::string& placements) {
  std::vector<std::int64_t> row{local.dim(), static_cast<std::int64_t>(local.scalar_type()),
                                static_cast<std::int64_t>(std::hash<std::string>()(placements)),
                                local.requires_grad() && at::GradMode::is_enabled() ? 1 : 0};
  for (const at::IntArrayRef part : {local.sizes(), local.strides()}) {
    row.insert(row.end(), part.begin(), part.end());
    row.insert(row.end(), static_cast<std::size_t>(kMostDims - local.dim()), 0);
  }
  return at::tensor(row, at::TensorOptions(at::kLong)).unsqueeze(0);
}

Row decoded(const at::Tensor& table, std::int64_t index) {
  const std::int64_t* row = table.const_data_ptr<std::int64_t>() + index * kRowLength;
  const std::int64_t* sizes = row + 4;
  const std::int64_t* strides = sizes + kMostDims;
  return {row[0],
          row[1],
          row[2],
          row[3],
          Shape(sizes, sizes + row[0]),
          Shape(strides, strides + row[0])};
}

// The rows of all ranks of my fiber, by place in the mesh.
struct Table {
  std::vector<std::int64_t> ranks;
  std::vector<Row> rows;
};

// All ranks of the fiber, by place in the mesh. Under one name for all meshes of these ranks: ranks
// that disagree about the mesh must still meet, to say so.
Group mesh_group(const Table& table, const World& world) {
  return world.group({table.ranks.begin(), table.ranks.end()},
                     {"ranks of a mesh", "", std::nullopt});
}

Table exchanged(const at::Tensor& local, const DeviceMesh& mesh, const World& world,
                const std::string& placements) {
  Table table{mesh.ranks(*mesh.fiber_of(world.rank())), {}};
  const at::Tensor mine = encoded(local, placements);
  at::Tensor all = mine;
  if (table.ranks.size() > 1) all = mesh_group(table, world).all_gather(mine, 0);
  for (std::int64_t index = 0; index < all.size(0); ++index) {
    table.rows.push_back(decoded(all, index));
  }
  return table;
}

using RanksByText = std::map<std::string, std::vector<std::int64_t>>;

[[noreturn]] void throw_facts(UsageError error, const RanksByText& by_text,
                              const std::string& hint) {
  for (const auto& [text, ranks] : by_text) {
    std::move(error).fact((ranks.size() == 1 ? "rank " : "ranks ") + join(ranks), text);
  }
  throw std::move(error).hint(hint);
}

[[noreturn]] void disagree(const std::string& sentence, const Table& table,
                           const std::function<std::string(const Row&)>& say,
                           const std::string& hint) {
  RanksByText by_text;
  for (std::size_t index = 0; index < table.rows.size(); ++index) {
    by_text[say(table.rows[index])].push_back(table.ranks[index]);
  }
  throw_facts(UsageError(sentence), by_text, hint);
}

std::string shape_text(const Row& row) {
  return std::string(c10::toString(static_cast<at::ScalarType>(row.dtype))) + bracketed(row.shape);
}

void check_alike(const Table& table) {
  const Row& first = table.rows.front();
  for (const Row& row : table.rows) {
    if (row.ndim != first.ndim || row.dtype != first.dtype) {
      disagree("from_local got tiles of different dims or element types", table, shape_text,
               "give every rank a tile of the same number of dims and dtype");
    }
    if (row.requires_grad != first.requires_grad) {
      disagree(
          "from_local got tiles that require grad on some ranks only", table,
          [](const Row& one) { return one.requires_grad != 0 ? "requires grad" : "does not"; },
          "backward passes are for all ranks: let all tiles require grad, or none");
    }
  }
}

bool say_the_same(const Table& table) {
  return std::all_of(table.rows.begin(), table.rows.end(), [&](const Row& row) {
    return row.placements == table.rows.front().placements;
  });
}

// What every rank asked for, when they are known to differ: another exchange, of the texts.
[[noreturn]] void refuse_different_placements(const Table& table, const World& world,
                                              std::string said) {
  constexpr std::int64_t kMost = 512;
  said.resize(kMost, ' ');
  const at::Tensor mine =
      at::from_blob(said.data(), {1, kMost}, at::TensorOptions(at::kChar)).clone();
  const at::Tensor all = mesh_group(table, world).all_gather(mine, 0);
  RanksByText by_text;
  for (std::size_t index = 0; index < table.ranks.size(); ++index) {
    std::string text(
        reinterpret_cast<const char*>(all.const_data_ptr<std::int8_t>()) + index * kMost, kMost);
    text.erase(text.find_last_not_of(' ') + 1);
    by_text[text].push_back(table.ranks[index]);
  }
  throw_facts(UsageError("from_local got different placements"), by_text,
              "call it with the same mesh, placements and order on all ranks");
}

// The place along the cutting axes, the first slowest.
std::int64_t shard_index(const std::vector<std::size_t>& axes, const DeviceMesh& mesh,
                         const Coordinate& at) {
  std::int64_t index = 0;
  for (std::size_t axis : axes) index = index * mesh.axes()[axis].size + at[axis];
  return index;
}

// Sizes along one dim of the shards that these axes cut. All ranks with the same shard must agree.
std::vector<std::int64_t> shard_sizes(const Table& table, const DeviceMesh& mesh, std::int64_t dim,
                                      const std::vector<std::size_t>& axes) {
  std::int64_t count = 1;
  for (std::size_t axis : axes) count *= mesh.axes()[axis].size;
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(count), -1);
  for (std::size_t index = 0; index < table.rows.size(); ++index) {
    const Coordinate at = *mesh.coordinate_of(table.ranks[index]);
    std::int64_t& size = sizes[static_cast<std::size_t>(shard_index(axes, mesh, at))];
    const std::int64_t said = table.rows[index].shape[static_cast<std::size_t>(dim)];
    if (size == -1) size = said;
    if (size != said) {
      disagree("from_local got tiles whose sizes differ along dim " + std::to_string(dim) +
                   ", which should be the same",
               table, shape_text,
               axes.empty() ? "a dim that no axis cuts has one size on all ranks"
                            : "replicas of a shard have one size");
    }
  }
  return sizes;
}

ShardOrder order_of(const Placements& placements, const ShardOrder& given) {
  if (given.empty()) return default_shard_order(placements);
  check_shard_order(given, placements);
  return given;
}

Placements with_positive_dims(const Placements& placements, std::int64_t ndim) {
  Placements result = placements;
  for (Placement& placement : result) {
    const Shard* shard = as_shard(placement);
    if (shard && shard->dim() < 0) placement = Shard(shard->dim() + ndim, shard->cut());
    shard = as_shard(placement);
    if (shard && (shard->dim() < 0 || shard->dim() >= ndim)) {
      throw UsageError("a placement cuts a dim that the tile does not have")
          .fact("placements", to_string(placements))
          .fact("dims", std::to_string(ndim))
          .hint("cut one of its dims");
    }
  }
  return result;
}

bool repeats_elements(const Row& row) {
  for (std::size_t dim = 0; dim < row.shape.size(); ++dim) {
    if (row.shape[dim] > 1 && row.stride[dim] == 0) return true;
  }
  return false;
}

// Whether the dims of a row's tile lie in memory in the order of these strides, without gaps. A
// tile whose elements share memory is copied, and may lie in any way.
bool lies_like(const Row& row, const Shape& stride) {
  const Shape dense = dense_strides_like(row.shape, stride);
  if (std::count(row.shape.begin(), row.shape.end(), 0) > 0 || repeats_elements(row)) return true;
  for (std::size_t dim = 0; dim < dense.size(); ++dim) {
    if (row.shape[dim] > 1 && row.stride[dim] != dense[dim]) return false;
  }
  return true;
}

bool all_lie_like(const Table& table, const Shape& stride) {
  return std::all_of(table.rows.begin(), table.rows.end(),
                     [&](const Row& row) { return lies_like(row, stride); });
}

// Strides of the whole whose dims lie in memory as those of all tiles do; row-major if it can be,
// else as the first tile that decides it.
Shape stride_like(const Table& table, const Shape& shape) {
  const Shape row_major = row_major_strides(shape);
  if (all_lie_like(table, row_major)) return row_major;
  for (const Row& row : table.rows) {
    if (all_lie_like(table, row.stride)) return dense_strides_like(shape, row.stride);
  }
  return row_major;
}

DTensorSpec spec_from(const Table& table, const DeviceMesh& mesh, const Placements& placements,
                      const FromLocalOptions& options, at::ScalarType type) {
  const std::int64_t ndim = table.rows.front().ndim;
  Placements cut = with_positive_dims(placements, ndim);
  const ShardOrder order = order_of(cut, options.order);
  Shape shape;
  for (std::int64_t dim = 0; dim < ndim; ++dim) {
    std::vector<std::size_t> axes;
    for (const ShardOrderEntry& entry : order) {
      if (entry.dim == dim) axes = entry.axes;
    }
    const std::vector<std::int64_t> sizes = shard_sizes(table, mesh, dim, axes);
    shape.push_back(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}));
    const bool all_even = std::all_of(axes.begin(), axes.end(), [&](std::size_t axis) {
      return as_shard(cut[axis])->cut().is_even();
    });
    if (!all_even || axes.empty()) continue;
    std::vector<std::int64_t> ranks;
    for (std::size_t axis : axes) ranks.push_back(mesh.axes()[axis].size);
    const std::vector<Cut> cuts = ragged_cuts(ranks, sizes);
    for (std::size_t k = 0; k < axes.size(); ++k) cut[axes[k]] = Shard(dim, cuts[k]);
  }
  if (options.shape && *options.shape != shape) {
    disagree("from_local's tiles do not add up to the shape " + bracketed(*options.shape) +
                 " but to " + bracketed(shape),
             table, shape_text, "check the shape, or leave it out");
  }
  return {mesh, cut, order,
          TensorMeta(shape, options.stride ? *options.stride : stride_like(table, shape),
                     dtype_of(type))};
}

void check_tiles(const Table& table, const DTensorSpec& spec) {
  for (std::size_t index = 0; index < table.rows.size(); ++index) {
    const Coordinate at = *spec.mesh().coordinate_of(table.ranks[index]);
    if (table.rows[index].shape != local_shape(spec, at)) {
      disagree("from_local got tiles that the placements do not cut", table, shape_text,
               "rank " + std::to_string(table.ranks[index]) + " should hold " +
                   bracketed(local_shape(spec, at)) + " of " + to_string(spec));
    }
  }
}

DTensorSpec unchecked_spec(const at::Tensor& local, const DeviceMesh& mesh,
                           const Placements& placements, const FromLocalOptions& options) {
  const Placements cut = with_positive_dims(placements, local.dim());
  const Shape shape = options.shape ? *options.shape : whole_shape(local.sizes().vec(), mesh, cut);
  const DType dtype = dtype_of(local.scalar_type());
  return {mesh, cut, order_of(cut, options.order),
          options.stride ? TensorMeta(shape, *options.stride, dtype) : TensorMeta(shape, dtype)};
}

}  // namespace

at::Tensor from_local(const at::Tensor& local, const DeviceMesh& mesh, const Placements& placements,
                      const FromLocalOptions& options) {
  const World world = World::of(mesh);
  if (is_dtensor(local) || !local.defined() || local.layout() != at::kStrided ||
      local.device().type() != device_of(mesh).type()) {
    throw UsageError("from_local needs a plain strided tensor on the mesh's device")
        .fact("device", mesh.device_type())
        .fact("tensor", described(local))
        .hint("give the tile that this rank holds");
  }
  if (local.dim() > kMostDims || placements.size() != mesh.ndim()) {
    throw UsageError("from_local needs one placement per mesh axis, and at most " +
                     std::to_string(kMostDims) + " dims")
        .fact("placements", to_string(placements))
        .fact("mesh", to_string(mesh))
        .fact("tile", described(local))
        .hint("list one placement for each axis");
  }
  const bool inside = mesh.coordinate_of(world.rank()).has_value();
  if (!inside && !options.shape) {
    throw UsageError("a rank outside of the mesh must say the whole shape")
        .fact("mesh", to_string(mesh))
        .fact("rank", std::to_string(world.rank()))
        .hint("give FromLocalOptions::shape");
  }
  const std::string said = to_string(placements) + to_string(options.order) + to_string(mesh);
  Payload::Layout layout = Payload::Layout::Regular;
  const DTensorSpec spec = [&] {
    if (!inside || !options.check) return unchecked_spec(local, mesh, placements, options);
    const CommLabel label("from_local");
    const Table table = exchanged(local, mesh, world, said);
    check_alike(table);
    if (!say_the_same(table)) refuse_different_placements(table, world, said);
    DTensorSpec found = spec_from(table, mesh, placements, options, local.scalar_type());
    check_tiles(table, found);
    if (!all_lie_like(table, found.meta().stride())) layout = Payload::Layout::Other;
    if (is_checking(world)) check_replicas("from_local", local.detach(), found, world);
    return found;
  }();
  const DTensorSpec grad_spec = options.grad_placements
                                    ? spec.with_placements(*options.grad_placements)
                                    : with_reductions_done(spec);
  claim_operators();
  const bool is_to_be_copied =
      layout == Payload::Layout::Other && at::has_internal_overlap(local) == at::MemOverlap::Yes;
  return wrap_tile(is_to_be_copied ? local.contiguous() : local, spec, grad_spec, world, layout);
}

}  // namespace tegula
