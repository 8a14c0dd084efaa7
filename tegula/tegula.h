// Tegula: distributed tensors for C++ on libtorch. Write the program for the whole tensor, run it
// on every rank, each rank holds a tile.
//
// A tour, from the bottom up:
//
//   mesh/device_mesh.h     DeviceMesh: ranks in a grid with named axes
//   placement/placement.h  Placement: what an axis does to a tensor (R, S(0), P(sum), ...)
//   spec/dtensor_spec.h    DTensorSpec: mesh + placements + whole shape; interned
//   spec/slices.h          who holds which slice
//   plan/redistribute_planner.h  the cheapest way from one spec to another, explained
//   bridge/tiles.h         cutting a plain tensor into tiles and joining them
//   comm/world.h           World: the ranks of a job, run_ranks; meshes over them
//   comm/group.h           Group: collectives among some of them
//   comm/lane.h            Lane: threads of one rank that communicate at the same time
//   comm/comm_log.h        CommLog: what was sent, and what for
//   tensor/dtensor.h       the distributed tensor: distribute, redistribute, local and whole
//   tensor/factories.h     distributed tensors from nothing
//   tensor/module.h        whole modules
//   tensor/collectives.h   collectives on plain tensors that autograd can follow
//   tensor/register_sharding.h  rules of your own operators
//   tensor/neighbours.h    ghost cells around a tile, rows that go from rank to rank
//   tensor/save.h          torch::save of what is distributed is refused in time
//   tensor/show.h          what this rank holds, as text
//   parallel/parallelize_module.h  modules split by plans: Colwise, Rowwise, ...
//   parallel/replicate.h   data parallel
//   parallel/fully_shard.h  parameters, gradients and optimizer state cut over the data axis
//   parallel/checkpoint.h  activations computed again in backward
//   parallel/clip_grad.h   one norm of all gradients, and clipping by it
//   parallel/virtual_shards.h  data parallel, the same bits on any number of ranks
//   parallel/memory_report.h  bytes per rank, by kind, before anything is run
//   dispatch/calibrate.h   the cost model of this machine, measured
//   gradient/gradients.h   when reductions that gradients owe are done
//   payload/guards.h       scoped switches
//   random/random.h        seeds
#pragma once

#include "tegula/bridge/tiles.h"
#include "tegula/bridge/torch_types.h"
#include "tegula/comm/comm_log.h"
#include "tegula/comm/lane.h"
#include "tegula/comm/world.h"
#include "tegula/core.h"
#include "tegula/dispatch/calibrate.h"
#include "tegula/gradient/gradients.h"
#include "tegula/parallel/checkpoint.h"
#include "tegula/parallel/clip_grad.h"
#include "tegula/parallel/fully_shard.h"
#include "tegula/parallel/memory_report.h"
#include "tegula/parallel/parallelize_module.h"
#include "tegula/parallel/replicate.h"
#include "tegula/parallel/virtual_shards.h"
#include "tegula/payload/guards.h"
#include "tegula/random/random.h"
#include "tegula/tensor/collectives.h"
#include "tegula/tensor/dtensor.h"
#include "tegula/tensor/factories.h"
#include "tegula/tensor/module.h"
#include "tegula/tensor/neighbours.h"
#include "tegula/tensor/register_sharding.h"
#include "tegula/tensor/save.h"
#include "tegula/tensor/show.h"
