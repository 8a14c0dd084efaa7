// What the ranks of a world want to save, together.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tegula/files/file_plan.h"
#include "tegula/files/manifest.h"
#include "tegula/io/state_part.h"

namespace tegula::inner {

struct Inventory {
  std::vector<NamedTensor> tensors;
  std::map<std::string, int> plain;  // a plain tensor's name -> the rank that writes it
  std::map<std::string, FileValue> values;
};

// All ranks call it and get the same. Where all have the same to save, only hashes are sent.
// UsageError on all ranks: a plain tensor, or a value that is no rank's own, differs among ranks; a
// name means different tensors; names or layouts that files do not have.
Inventory take_inventory(const World& world, const Saved& saved);

// The name of each tensor, dtype and shape; dense tensors with elements that files have.
NamedTensor described(const StateTensor& tensor);

}  // namespace tegula::inner
