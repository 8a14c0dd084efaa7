// The idea: along each axis that cuts the dim one rank has the row; the others take part in calls
// and have nothing to say.
#include "tegula/payload/rows.h"

#include <ATen/ATen.h>

#include "tegula/payload/local_call.h"
#include "tegula/payload/payload.h"
#include "tegula/spec/placed_otherwise.h"
#include "tegula/spec/views.h"

namespace tegula::inner {
namespace {

// Where a row is.
struct Owner {
  Owner(const DTensorSpec& spec, const Row& row)
      : cut(spec.dim_cuts()[static_cast<std::size_t>(row.dim)]) {
    const Share share = cut.owners({row.index, 1}).front();
    position = cut.position_of(share.shard);
    local_index = share.local_begin;
  }
  bool is_at(const Coordinate& here) const {
    for (std::size_t k = 0; k < position.size(); ++k) {
      if (here[cut.axes()[k].axis] != position[k]) return false;
    }
    return true;
  }

  const DimCut& cut;
  std::vector<std::int64_t> position;  // along the axes that cut the dim
  std::int64_t local_index = 0;
};

DTensorSpec dense_spec_of_row(const DTensorSpec& spec, std::int64_t dim) {
  const DTensorSpec row = spec_of_row(spec, dim);
  return densely(row);
}

}  // namespace

DTensorSpec spec_of_row(const DTensorSpec& spec, std::int64_t dim) {
  Shape shape = spec.shape();
  Shape stride = spec.meta().stride();
  shape.erase(shape.begin() + dim);
  stride.erase(stride.begin() + dim);
  std::vector<std::optional<std::int64_t>> to;
  for (std::int64_t d = 0; d < spec.ndim(); ++d) {
    to.push_back(d == dim ? std::nullopt : std::optional(d < dim ? d : d - 1));
  }
  return *with_dims_moved(with_dim_whole(spec, dim), to,
                          TensorMeta(shape, stride, spec.meta().dtype()));
}

at::Tensor tile_of_row(const Payload& base, const Row& row) {
  const Owner owner(base.spec(), row);
  const Coordinate here = *base.coordinate();
  if (owner.is_at(here)) return base.tile().select(row.dim, owner.local_index);
  return new_tile(dense_spec_of_row(base.spec(), row.dim), here).zero_();
}

at::Tensor read_row(const Payload& base, const Row& row) {
  const BelowAutograd below;
  const Owner owner(base.spec(), row);
  const Coordinate here = *base.coordinate();
  const DTensorSpec spec = dense_spec_of_row(base.spec(), row.dim);
  at::Tensor tile = new_tile(spec, here);
  if (owner.is_at(here)) tile.copy_(base.resolved_tile().select(row.dim, owner.local_index));
  for (std::size_t k = 0; k < owner.position.size(); ++k) {
    const std::size_t axis = owner.cut.axes()[k].axis;
    if (spec.mesh().axes()[axis].size == 1) continue;
    base.world().group(spec.mesh(), axis).broadcast_(tile, static_cast<int>(owner.position[k]));
  }
  if (spec.is_replicated()) return tile;
  return redistribute_tile(base.world(), tile, spec, replicated_spec(spec));
}

void write_row(const Payload& base, const Row& row, const at::Tensor& whole) {
  base.note_write();
  const BelowAutograd below;
  const DTensorSpec spec = dense_spec_of_row(base.spec(), row.dim);
  const at::Tensor values = whole.resolve_conj().resolve_neg();
  tile_of_row(base, row).copy_(
      spec.is_replicated() ? values
                           : redistribute_tile(base.world(), values, replicated_spec(spec), spec));
}

}  // namespace tegula::inner
