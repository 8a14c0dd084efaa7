// Sobol sequences: each dimension of the points goes its own way, so that dimensions may be cut.
// libtorch's own kernels point into memory and count the dimensions by an argument.
#include <ATen/ATen.h>

#include "tegula/bridge/tiles.h"
#include "tegula/bridge/torch_types.h"
#include "tegula/families/call_tensors.h"
#include "tegula/families/operand_tiles.h"
#include "tegula/families/recipes.h"
#include "tegula/families/totals.h"
#include "tegula/operators/call.h"
#include "tegula/payload/local_call.h"

namespace tegula::inner::families {
namespace {

// A tensor whose dim `dim` are the dimensions, cut by the axes that cut `spec`; as there, where
// these are its dim 0.
DTensorSpec by_dimension(const DTensorSpec& spec, const TensorMeta& meta, std::int64_t dim) {
  Placements placements = spec.placements();
  for (Placement& placement : placements) {
    const Shard* shard = as_shard(placement);
    if (!shard) {
      placement = Replicate();
    } else {
      placement = shard->dim() == 0 ? Shard(dim, shard->cut()) : Shard(dim);
    }
  }
  return {spec.mesh(), placements, meta};
}

at::Tensor tile_by_dimension(const at::Tensor& tensor, const DTensorSpec& like,
                             const World& world) {
  return tile_at(tensor, by_dimension(like, dense(meta_of(tensor)), 0), world).contiguous();
}

// (quasi [d], n, state [d, bits], dimension, num_generated, dtype?) -> points [n, d], quasi [d]
Recipe make_draw(const Call& call) {
  const Arguments a = call.arguments();
  if (!has_tiles(call)) return nullptr;
  const bool follows_state = !payload_in(tensor_at(a, 0)) || is_spread(tensor_at(a, 2));
  const std::size_t leading = follows_state && !is_spread(tensor_at(a, 0)) ? 2 : 0;
  return [op = call.op(), leading, world = call.world()](Arguments given) -> Values {
    const at::Tensor& quasi = tensor_at(given, 0);
    const DTensorSpec like = payload_in(tensor_at(given, leading))->spec();
    Values arguments(given.begin(), given.end());
    arguments[0] = tile_by_dimension(quasi, like, world);
    arguments[2] = tile_by_dimension(tensor_at(given, 2), like, world);
    arguments[3] = arguments[0].toTensor().size(0);
    Values tiles = call_plain(op, std::move(arguments));
    const TensorMeta points({given[1].toInt(), quasi.size(0)},
                            dtype_of(tiles[0].toTensor().scalar_type()));
    return {
        result_of_tile(tiles[0].toTensor(), by_dimension(like, points, 1), world),
        result_of_tile(tiles[1].toTensor(), by_dimension(like, dense(meta_of(quasi)), 0), world)};
  };
}

// Runs the op on the dimensions of self that this rank has, and writes them to self.
Values change_dimensions(const c10::OperatorHandle& op, Arguments a, std::size_t other,
                         std::size_t dimension, const World& world) {
  const at::Tensor& self = tensor_at(a, 0);
  const DTensorSpec spec = by_dimension(payload_in(self)->spec(), dense(meta_of(self)), 0);
  Values arguments(a.begin(), a.end());
  const at::Tensor changed = tile_by_dimension(self, spec, world).clone();
  arguments[0] = changed;
  arguments[other] = tile_by_dimension(tensor_at(a, other), spec, world);
  arguments[dimension] = changed.size(0);
  call_plain(op, std::move(arguments));
  self.copy_(result_of_tile(changed, spec, world));
  return {self};
}

// (self, ..., another tensor at `other`, ..., their dimensions at `dimension`, ...)
template <std::size_t other, std::size_t dimension>
Recipe make_change(const Call& call) {
  if (!has_tiles(call) || !payload_in(tensor_at(call.arguments(), 0))) return nullptr;
  return [op = call.op(), world = call.world()](Arguments a) {
    return change_dimensions(op, a, other, dimension, world);
  };
}

// (self [d, bits], dimension): the same numbers for everybody, of which each rank keeps its own.
Recipe make_initialize(const Call& call) {
  const at::Tensor& self = tensor_at(call.arguments(), 0);
  if (!has_tiles(call) || !payload_in(self)) return nullptr;
  return [op = call.op()](Arguments a) -> Values {
    const PayloadPtr payload = payload_of(tensor_at(a, 0));
    const at::Tensor whole =
        at::empty(payload->spec().shape(),
                  payload->tile().options().memory_format(at::MemoryFormat::Contiguous));
    call_plain(op, {whole, a[1]});
    payload->tile().copy_(
        cut_tile(whole, payload->spec().with_meta(meta_of(whole)), *payload->coordinate()));
    return {a[0]};
  };
}

}  // namespace

const RecipeTable& sobol_recipes() {
  static const RecipeTable table = {
      {"_sobol_engine_draw", make_draw},
      {"_sobol_engine_ff_", make_change<2, 3>},
      {"_sobol_engine_scramble_", make_change<1, 2>},
      {"_sobol_engine_initialize_state_", make_initialize},
  };
  return table;
}

}  // namespace tegula::inner::families
