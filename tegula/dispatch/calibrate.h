// The cost model of this machine, measured once and kept in a file.
//
//   use_measured_costs(world, mesh);   // from now on, plans and decisions of this world use it
//
// Without it the default model counts, which is the same on every machine.
#pragma once

#include <filesystem>

#include "tegula/comm/world.h"
#include "tegula/plan/cost_model.h"

namespace tegula {

// Where the figures of this host are kept: TEGULA_COSTS if it is set, else a file named after the
// host under XDG_CACHE_HOME (or ~/.cache) in tegula/. Empty if there is no such place.
std::filesystem::path costs_file();

// Latency and bandwidth along each axis of the mesh with more than one rank, and of a local copy.
// About a second. All ranks of the mesh call it; all get the same model.
CostModel measure_costs(const World& world, const DeviceMesh& mesh);

// Makes the world's planner use what the mesh's first rank has kept of an earlier measurement with
// axes of these names and sizes, else what is measured now, which that rank keeps if it can. Gives
// the model. All ranks of the mesh call it. A file that is none of ours is measured anew.
CostModel use_measured_costs(const World& world, const DeviceMesh& mesh);

}  // namespace tegula
