// What training a module takes in memory on each rank, by kind, before it is run.
//
//   std::cout << to_string(memory_report(*model, optimizer));
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace tegula {

struct MemoryBytes {
  std::int64_t parameters = 0;
  std::int64_t gradients = 0;  // when backward has run
  std::int64_t state = 0;      // of the optimizer, when it has stepped
  // Parameters that are cut at rest and whole in use (fully_shard), at most: all of them where they
  // stay gathered; else those that may be kept, FullyShardOptions::most_bytes or the largest one.
  std::int64_t gathered = 0;
  std::int64_t buffers = 0;  // of the module

  std::int64_t total() const { return parameters + gradients + state + gathered + buffers; }
  bool operator==(const MemoryBytes&) const = default;
};

struct MemoryReport {
  // By the rank's place in the mesh that the parameters are on; one for a module that is plain.
  std::vector<MemoryBytes> ranks;
  // The first that has most in all.
  const MemoryBytes& fullest() const;
};

// Of tensors of the module as they are placed now; a plain one counts on every rank, a tied one
// once, a frozen one has neither gradient nor state, and parameters that the optimizer does not
// list have no state. Activations and what collectives have under way are not counted, nor what the
// memory of collectives' results (reduced gradients, gathered parameters) is rounded up by: below 1
// MiB to a power of two, above to multiples of 2 MiB. Nothing is run, changed or sent, so that one
// rank may call it alone, on the meta device too.
// UsageError: parameters on several meshes; an optimizer whose state is not known (those known are
// libtorch's SGD, Adam, AdamW, Adagrad and RMSprop).
MemoryReport memory_report(const torch::nn::Module& module,
                           const torch::optim::Optimizer& optimizer);

// A line per rank, if they are few or differ; a column per kind.
std::string to_string(const MemoryReport& report);

}  // namespace tegula
