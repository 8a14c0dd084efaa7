// Filling tensors from files, each rank its rows.
#pragma once

#include <vector>

#include "tegula/comm/group.h"
#include "tegula/io/file_reader.h"

namespace tegula::inner {

// Fills the tensors this rank has. All members call it, those of a distributed tensor's mesh with
// the tensor, in one order. Each byte is read by one member; plain tensors that only some members
// have, by each of those. UsageError on all of them if one cannot read, or finds a damaged chunk;
// the tensors may have changed then.
void read_tensors(const Group& group, FileLayer& files, const std::vector<SourceFile>& sources,
                  const std::vector<SourcedTensor>& tensors);

}  // namespace tegula::inner
