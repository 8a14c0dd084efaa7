// A thing that was added to a State, as the tensors and values that a checkpoint has of it.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tegula/files/safetensors_header.h"
#include "tegula/io/state.h"

namespace tegula::inner {

struct StateTensor {
  std::string name;
  at::Tensor tensor;
};

struct NamedValue {
  std::string name;
  StateValue value;
};

// What a save writes.
struct Saved {
  std::vector<StateTensor> tensors;
  std::vector<NamedValue> values;    // the same on all ranks
  std::vector<NamedValue> per_rank;  // of this rank alone; names of different ranks differ
  // One if all ranks have the same, else one per rank, as name@rank=0 and so on.
  std::vector<NamedValue> perhaps_same;
};

// What a checkpoint has, by the state's names.
struct Present {
  std::map<std::string, const FileTensor*> tensors;
  std::map<std::string, StateValue> values;
};

// What a load fills, or is told.
struct Wants {
  std::vector<StateTensor> tensors;
  struct Value {
    std::string name;
    StateValue like;  // of the same kind
    std::function<void(const StateValue&)> set;
  };
  std::vector<Value> values;
  // Names of values that belong to the state whether or not they are asked for.
  std::vector<std::string> known;
  std::vector<std::string> problems;  // one line each
  // When all tensors are there, before values are set: for the thing of this name.
  struct Finish {
    std::string name;
    std::function<void()> run;
  };
  std::vector<Finish> finish;
};

class StatePart {
 public:
  virtual ~StatePart() = default;
  virtual void list_saved(Saved& saved) const = 0;
  virtual void list_wants(const Present& present, Wants& wants) const = 0;
};

std::shared_ptr<StatePart> optimizer_part(std::string name, torch::optim::Optimizer& optimizer,
                                          const torch::nn::Module& module);
std::shared_ptr<StatePart> random_part(std::string name, World world);

// "dp=0,tp=1": this rank's place. UsageError if it has none of its own in the mesh.
std::string place_of(const World& world, const DeviceMesh& mesh);

// "model", "weight" -> "model.weight"; "", "weight" -> "weight"
std::string joined_name(const std::string& prefix, const std::string& name);

}  // namespace tegula::inner
