// The collectives of a group in shared memory, over bytes. Whoever calls describes tensors as
// regions; every region of a reduction holds whole elements, of a type that has it
// (comm::check_reducible).
//
// What comm/engine.h says of a collective holds, and what channel.h says of calls that differ, of a
// death or of a timeout: all members throw.
//
// Cost per rank, of n: one round (about half a microsecond for 2) while a contribution fits its
// slot, and one more per further slot. Members that share memory copy from each other directly when
// it pays.
#pragma once

#include <cstdint>
#include <span>

#include "tegula/comm/region.h"
#include "tegula/comm/shm/channel.h"

namespace tegula::inner::shm {

using comm::Region;

// Bytes moved per rank: 2(n-1)/n of the tensor in and out. `from` may be `to`.
void all_reduce(Channel& channel, const Call& call, const std::byte* from, std::byte* to,
                std::int64_t count);

// The sizes are part of the call.
void all_gather(Channel& channel, const Call& call, const Region& from, std::span<const Region> to);

void reduce_scatter(Channel& channel, const Call& call, std::span<const Region> from,
                    const Region& to);

// Sizes of what is sent and awaited are compared; all members throw if some pair disagrees.
void exchange(Channel& channel, const Call& call, std::span<const Region> from,
              std::span<const Region> to);

void broadcast(Channel& channel, const Call& call, const Region& region);

void barrier(Channel& channel, const Call& call);

}  // namespace tegula::inner::shm
