// Carrying out a LocalOp: the op on this rank's tiles.
#pragma once

#include <ATen/core/stack.h>
#include <c10/util/MaybeOwned.h>

#include <algorithm>

#include "tegula/dispatch/decision.h"
#include "tegula/operators/call.h"

namespace tegula::inner {

// Replaces the arguments on top of the stack by the op's results. Communicates as the routes say.
void run_local_op(const OperatorEntry& entry, const LocalOp& decision, torch::jit::Stack& stack);

// The same for a draft that has not been run yet; gives the decision. Of a rank outside of the mesh
// nothing is run; it gets tensors of the same specs as the others.
LocalOp run_draft(const Call& call, LocalOpDraft draft, torch::jit::Stack& stack);

// The steps of run_local_op, for kernels that keep no stack (unboxed.h) ---------------------------

// A tile that the DTensor holds is borrowed from it.
using Tile = c10::MaybeOwned<at::Tensor>;

// What a route makes of a tensor, or of its tile.
at::Tensor tile_by_route(const at::Tensor& tensor, const Route& route);
// What stands for a tensor of the call, the place-th, on this rank.
inline Tile tile_for(const at::Tensor& tensor, const LocalOp& decision, std::size_t place) {
  if (place < decision.routes.size() && decision.routes[place] && tensor.defined()) {
    return Tile::owned(tile_by_route(tensor, *decision.routes[place]));
  }
  const Payload* payload = payload_in(tensor);
  if (!payload) return Tile::borrowed(tensor);
  const at::Tensor* tile = payload->tile_at_hand();
  if (tile) return Tile::borrowed(*tile);
  const bool is_written_row = std::find(decision.written_rows.begin(), decision.written_rows.end(),
                                        place) != decision.written_rows.end();
  return Tile::owned(is_written_row ? tile_of_row(*payload->link()->base, *payload->link()->row)
                                    : payload->tile());
}
// A result, the index-th, as a DTensor; undefined stays undefined.
at::Tensor wrapped_result(at::Tensor tile, const LocalOp& decision, std::size_t index,
                          const OpFacts& facts, const World& world);

}  // namespace tegula::inner
