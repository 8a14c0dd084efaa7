// Whether a checkpoint fits a state: who gets what of it, and all that does not fit in one report.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "tegula/comm/group.h"
#include "tegula/files/checkpoint_folder.h"
#include "tegula/io/checkpoint.h"
#include "tegula/io/state_part.h"

namespace tegula::inner {

// Where a tensor is among the files of a checkpoint.
struct FilePlace {
  std::size_t file = 0;
  const FileTensor* tensor = nullptr;
};

// What this rank gets.
struct Fit {
  struct Tensor {
    at::Tensor tensor;
    FilePlace place;
  };
  struct Value {
    StateValue value;
    std::function<void(const StateValue&)> set;
  };
  std::vector<Tensor> tensors;  // in the order of the files
  std::vector<Value> values;
  std::vector<Wants::Finish> finish;  // when all tensors are there
  std::vector<std::string> missing;   // of any rank
  std::vector<std::string> extra;
};

// All ranks call it. UsageError on all of them with what does not fit, of all ranks. Changes
// nothing.
Fit fit_together(const Group& group, const State& state, const Contents& contents,
                 const std::string& path, const LoadOptions& options);

}  // namespace tegula::inner
