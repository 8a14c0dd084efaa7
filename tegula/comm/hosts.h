// How the ranks of several hosts find each other, once those of each host have met.
#pragma once

#include <string>

#include "tegula/comm/environment.h"
#include "tegula/comm/world_state.h"

namespace tegula::inner::comm {

// Fills in the world's store, by which its groups across hosts are made, and who of its ranks
// shares this rank's board. All ranks call it, with the same name for the same world. UsageError if
// the environment does not say where the store is; CommError if it cannot be reached, if a rank
// does not come in time, or if one does not know the job's secret.
void find_hosts(WorldState& world, const Place& place, const std::string& world_name);

}  // namespace tegula::inner::comm
