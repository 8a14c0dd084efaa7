// The oracle: a decoder as the formulas say it, of whole plain weights, without a cache.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <string>
#include <vector>

#include "examples/llama_config.h"

namespace tegula {

using Weights = std::map<std::string, at::Tensor>;  // as files name them; float64

// Random ones that fit.
Weights random_weights(const llama::Config& config);
// The scores of the id that follows each of these: [ids, vocabulary].
at::Tensor plain_scores(const llama::Config& config, const Weights& weights,
                        const std::vector<std::int64_t>& ids);

}  // namespace tegula
