// The idea: what a rank does not have counts as zero, so that one sum over the ranks is the answer.
#include "tegula/families/picked.h"

#include <ATen/ATen.h>

#include "tegula/base/error.h"
#include "tegula/bridge/torch_types.h"
#include "tegula/families/operand_tiles.h"
#include "tegula/payload/payload.h"
#include "tegula/spec/placed_otherwise.h"
#include "tegula/spec/slices.h"

namespace tegula::inner {
namespace {

void check_indices(const at::Tensor& indices, std::int64_t extent, std::int64_t ignored) {
  const at::Tensor is_bad =
      at::logical_and(at::logical_or(indices.lt(0), indices.ge(extent)), indices.ne(ignored));
  if (!is_bad.any().item<bool>()) return;
  throw UsageError("a target is out of bounds")
      .fact("target", std::to_string(indices.masked_select(is_bad)[0].item<std::int64_t>()))
      .fact("classes", std::to_string(extent))
      .hint("targets are 0 ... " + std::to_string(extent - 1) + ", or ignore_index");
}

// The part of the table that is here, and where the rows' indices point into it.
struct Here {
  DTensorSpec rows;      // of a tensor with one element per row
  at::Tensor is_here;    // per row
  at::Tensor positions;  // per row, [n, 1]; 0 where it is elsewhere
};

DTensorSpec spec_of_rows(const DTensorSpec& table, const Placement& over_elements, DType dtype) {
  Placements placements = table.placements();
  ShardOrder order;
  for (const ShardOrderEntry& entry : table.shard_order()) {
    if (entry.dim == 0) order.push_back(entry);
  }
  for (Placement& placement : placements) {
    const Shard* shard = as_shard(placement);
    if (shard && shard->dim() == 1) placement = over_elements;
  }
  return {table.mesh(), placements, order, TensorMeta({table.shape()[0]}, dtype)};
}

Here look(const Payload& table, const at::Tensor& index, std::int64_t ignored) {
  const DTensorSpec& spec = table.spec();
  const std::vector<Interval> elements = spec.dim_cuts()[1].intervals(*table.coordinate());
  const std::int64_t begin = elements.front().begin;
  const std::int64_t size = elements.front().size;
  const DTensorSpec rows = spec_of_rows(spec, Replicate(), dtype_of(index.scalar_type()));
  const at::Tensor mine = tile_at(index, rows, table.world());
  check_indices(mine, spec.shape()[1], ignored);
  at::Tensor is_here =
      at::logical_and(at::logical_and(mine.ge(begin), mine.lt(begin + size)), mine.ne(ignored));
  at::Tensor positions = mine.sub(begin).masked_fill(is_here.logical_not(), 0).unsqueeze(1);
  return Here{rows, std::move(is_here), std::move(positions)};
}

}  // namespace

bool can_pick_along_rows(const at::Tensor& table) {
  const Payload* payload = payload_in(table);
  if (!payload || payload->link() || payload->spec().is_partial()) return false;
  return payload->coordinate() && payload->spec().dim_cuts()[1].most_intervals() == 1;
}

at::Tensor picked_along_rows(const at::Tensor& table, const at::Tensor& index,
                             std::int64_t ignored) {
  const PayloadPtr payload = payload_of(table);
  const Here here = look(*payload, index, ignored);
  const at::Tensor tile = payload->tile();
  const at::Tensor picked =
      tile.size(1) == 0
          ? at::zeros({tile.size(0)}, tile.options())
          : tile.gather(1, here.positions).squeeze(1).masked_fill_(here.is_here.logical_not(), 0);
  const DTensorSpec spec =
      spec_of_rows(payload->spec(), Partial(ReduceOp::Sum), dtype_of(table.scalar_type()));
  return outer_tensor(picked, spec, payload->world());
}

at::Tensor put_along_rows(const at::Tensor& values, const at::Tensor& table,
                          const at::Tensor& index, std::int64_t ignored) {
  const PayloadPtr payload = payload_of(table);
  const Here here = look(*payload, index, ignored);
  const DTensorSpec spec = densely(payload->spec());
  const at::Tensor per_row = values.dim() == 0 ? values.expand({table.size(0)}) : values;
  const DTensorSpec rows = spec_of_rows(spec, Replicate(), dtype_of(values.scalar_type()));
  const at::Tensor mine = tile_at(per_row, rows, payload->world());
  const at::Tensor tile = payload->tile();
  at::Tensor put = at::zeros_like(tile);
  if (tile.size(1) > 0) {
    put.scatter_(
        1, here.positions,
        mine.masked_fill(here.is_here.logical_not(), 0).unsqueeze(1).to(tile.scalar_type()));
  }
  return outer_tensor(put, spec, payload->world());
}

}  // namespace tegula::inner
