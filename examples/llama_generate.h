// Texts of ids, continued by a model.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "llama_model.h"

namespace llama {

using Ids = std::vector<std::int64_t>;

struct Generation {
  std::int64_t most = 16;  // new ids per text
  Ids stops = {};          // a text ends with the first of these
  double temperature = 0;  // 0: the id of the highest score
  std::int64_t top_k = 0;  // only the so many likeliest; 0: all
  double top_p = 1;        // of these the likeliest that have this probability together
  std::uint64_t seed = 0;  // each text draws numbers of its own, the same on any mesh
};

// Is told each id when it is there: the text's number, the id, and the scores [vocabulary] that it
// was chosen by, cut over the mesh.
using OnId = std::function<void(std::size_t text, std::int64_t id, const at::Tensor& scores)>;

// UsageError: no texts, an empty one, ids that the vocabulary lacks, more positions than the model
// has, parameters out of their ranges.
void check(const Config& config, const std::vector<Ids>& texts, const Generation& how);

// Continues all texts together. All ranks call it, and are told the same. UsageError as check,
// before anything is computed.
void generate(const Model& model, const std::vector<Ids>& texts, const Generation& how,
              const OnId& on_id);

}  // namespace llama
