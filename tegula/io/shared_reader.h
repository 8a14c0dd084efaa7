// Tensors that all ranks read together, each byte from the disk by one of them: plain ones, and
// distributed ones so small that their rows would share chunks.
#pragma once

#include <vector>

#include "tegula/comm/group.h"
#include "tegula/io/file_reader.h"
#include "tegula/io/reused_memory.h"

namespace tegula::inner {

// Such tensors that all members of the group have, as indices in each member's own list; in the
// same order on all of them. All members call it; hashes are sent where all have the same.
std::vector<std::size_t> read_by_all(const Group& group, const FileReader& reader,
                                     const std::vector<SourcedTensor>& tensors);

// Fills these, which all members bring in the same order. Each stripe of a file is read by one
// member, then sent to the others, up to 64 MiB at a time. After an error of the reader members go
// on to communicate, and the tensors hold what came.
void read_shared(const Group& group, FileReader& reader, const std::vector<SourcedTensor>& tensors);

}  // namespace tegula::inner
