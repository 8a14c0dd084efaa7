// Whether ranks have the same tensors: what a module consists of before it is distributed.
#pragma once

#include <vector>

#include "tegula/comm/group.h"
#include "tegula/mesh/device_mesh.h"
#include "tegula/parallel/members.h"

namespace tegula::inner {

// Of the mesh's ranks.
Group group_of(const DeviceMesh& mesh);

// One that stands in several places once, by its first name.
std::vector<StandingMember> each_once(const std::vector<StandingMember>& members);

// UsageError that names a plain tensor which differs between ranks of the mesh. By hashes, in two
// small collectives; what is distributed or on the meta device is not looked at.
void check_alike(const std::vector<StandingMember>& members, const DeviceMesh& mesh);

}  // namespace tegula::inner
