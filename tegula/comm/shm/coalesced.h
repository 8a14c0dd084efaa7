// Collectives on lists of tensors, over bytes; what collectives.h says of a call holds for the
// whole list. Results have the bits of the single calls.
//
// Cost: the rounds of one call on a tensor as large as all of them. Nothing is packed but into the
// slots, where data of processes has to go anyway; members that share memory copy from tensor to
// tensor. A tensor so large that peers write into its result (1 MiB) goes by itself, for that is
// the faster way.
#pragma once

#include <span>

#include "tegula/comm/region.h"
#include "tegula/comm/shm/channel.h"

namespace tegula::inner::shm {

using TensorList = std::span<const comm::TensorRegions>;

// from[0] and to[0] of a tensor are contiguous, and may be the same.
void all_reduce_coalesced(Channel& channel, const Call& call, TensorList tensors);
// to[r] receives rank r's from[0].
void all_gather_coalesced(Channel& channel, const Call& call, TensorList tensors);
// to[0], contiguous, receives the reduction of everyone's from[my index].
void reduce_scatter_coalesced(Channel& channel, const Call& call, TensorList tensors);

}  // namespace tegula::inner::shm
