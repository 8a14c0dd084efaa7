// The collectives of a group in shared memory, over bytes. Whoever calls describes tensors as
// pieces; every piece of a reduction holds whole elements, of a type that has it
// (comm::check_reducible).
//
// Each member calls the same function with a Call that agrees; what is said of a mismatch, a death
// or a timeout in channel.h holds here: all members throw. Outputs are then undefined.
//
// Cost per rank, of n: one round (about half a microsecond for 2) while a contribution fits its
// slot, and one more per further slot. Members that share memory copy from each other directly when
// it pays.
#pragma once

#include <cstdint>
#include <span>

#include "tegula/comm/piece.h"
#include "tegula/comm/shm/channel.h"

namespace tegula::shm {

using comm::Piece;

// Bytes moved per rank: 2(n-1)/n of the tensor in and out. `from` may be `to`.
void all_reduce(Channel& channel, const Call& call, const std::byte* from, std::byte* to,
                std::int64_t count);

// `to[r]` receives what rank r has in `from`. Each rank must know all sizes: they are part of the
// call.
void all_gather(Channel& channel, const Call& call, const Piece& from, std::span<const Piece> to);

// `to` receives the reduction of everyone's `from[my index]`.
void reduce_scatter(Channel& channel, const Call& call, std::span<const Piece> from,
                    const Piece& to);

// `to[r]` receives what rank r has in `from[my index]`: all-to-all, and with empty pieces scatter,
// gather and permute. Sizes of what is sent and awaited are compared; all members throw if some
// pair disagrees.
void exchange(Channel& channel, const Call& call, std::span<const Piece> from,
              std::span<const Piece> to);

// All pieces become the one of `call.root()`.
void broadcast(Channel& channel, const Call& call, const Piece& piece);

void barrier(Channel& channel, const Call& call);

}  // namespace tegula::shm
