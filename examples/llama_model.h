// A Llama-class decoder, tensor parallel: each rank has whole heads, some of the hidden features
// and some of the vocabulary, none of which need divide. Modules are called as in Hugging Face's
// files.
//
//   const auto model = llama::load(llama::read_config(folder), folder, mesh);
//   llama::Cache cache = model->cache(2, 100);
//   at::Tensor scores = model->forward({{5, 6, 7}, {8, 9}}, cache);   // two texts
//   scores = model->forward({{10}, {11}}, cache);                     // what follows them
//
// Activations between layers are the same on all ranks. A rank computes its heads on plain tensors,
// since nobody else needs their keys and values, and its hidden features; both end in a layer whose
// output owes a sum. So a layer costs two all-reduces of [texts, new ids, width], and the embedding
// one.
#pragma once

#include <tegula/tegula.h>
#include <torch/torch.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "llama_config.h"

namespace llama {

using namespace tegula;

constexpr const char* kAxis = "tp";

// Heads ------------------------------------------------------------------------------------------

// Some neighbouring heads.
struct Run {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t size() const { return end - begin; }
  Run part(std::int64_t index, std::int64_t parts) const {
    return {begin + size() * index / parts, begin + size() * (index + 1) / parts};
  }
};

// What a rank has of the queries' heads, and the keys that these look at.
struct Heads {
  Run queries, keys;
};

// Per rank. Each has whole groups of queries with their key; if there are more ranks than keys,
// several share a key, and each has some of its queries. A rank may have none.
inline std::vector<Heads> divide_heads(const Config& config, std::int64_t ranks) {
  const std::int64_t keys = config.key_heads, shared = config.heads / keys;
  std::vector<Heads> all;
  for (std::int64_t rank = 0; rank < ranks && keys >= ranks; ++rank) {
    const Run run = Run{0, keys}.part(rank, ranks);
    all.push_back({{run.begin * shared, run.end * shared}, run});
  }
  for (std::int64_t key = 0; key < keys && keys < ranks; ++key) {
    const std::int64_t sharing = Run{0, ranks}.part(key, keys).size();
    for (std::int64_t k = 0; k < sharing; ++k) {
      const Run run = Run{key * shared, (key + 1) * shared}.part(k, sharing);
      all.push_back({run, {key, run.size() > 0 ? key + 1 : key}});
    }
  }
  return all;
}

// The features of heads, cut between heads.
inline Cut cut_of(const Config& config, const DeviceMesh& mesh, Run Heads::* which) {
  std::vector<std::int64_t> sizes;
  for (const Heads& one : divide_heads(config, mesh.size())) {
    sizes.push_back((one.*which).size() * config.head_dim);
  }
  return Cut::ragged(sizes);
}

// What was, and what is now ----------------------------------------------------------------------

// Keys and values of one layer, for the heads of this rank: [texts, positions, heads, head_dim].
struct Past {
  at::Tensor keys, values;
};

// Of all layers. A key's place is its position, so what is written for padding is written again
// before anyone looks at it.
struct Cache {
  std::vector<Past> layers;
  std::vector<std::int64_t> lengths;  // of the texts, so far
};

// What all layers need to know of a call.
struct Step {
  std::int64_t keys = 0;                          // how many positions of a cache count
  std::vector<at::Tensor> places;                 // of new keys in a cache: text, position
  at::Tensor cos, sin;                            // [texts, new ids, 1, head_dim]
  std::map<std::int64_t, at::Tensor> masks = {};  // by window; undefined: all keys are seen
};

// Minus infinity where a key comes after a position, or too long before it: [texts, 1, new, keys].
// Undefined if nothing is hidden.
inline at::Tensor mask_of(const at::Tensor& positions, std::int64_t keys, std::int64_t window,
                          at::ScalarType dtype) {
  const at::Tensor places = at::arange(keys), own = positions.unsqueeze(-1);
  at::Tensor hidden = at::gt(places, own);
  if (window > 0) hidden = hidden.logical_or(at::le(places, own - window));
  if (!hidden.any().item<bool>()) return {};
  const double none = -std::numeric_limits<double>::infinity();
  return at::zeros(hidden.sizes(), dtype).masked_fill(hidden, none).unsqueeze(1);
}

// Modules ----------------------------------------------------------------------------------------

inline std::optional<at::Tensor> given(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

inline at::Tensor summed(const at::Tensor& partial) { return placed(partial, kAxis, Replicate()); }

// Weights have neither memory nor values until `load`.
struct Weighted : torch::nn::Module {
  at::Tensor add(const char* name, at::IntArrayRef shape, at::ScalarType dtype) {
    const at::Tensor unset = at::empty(shape, at::TensorOptions(dtype).device(at::kMeta));
    return register_parameter(name, unset, /*requires_grad=*/false);
  }
};

struct Linear : Weighted {
  Linear(std::int64_t in, std::int64_t out, Bias has_bias, at::ScalarType dtype)
      : weight(add("weight", {out, in}, dtype)) {
    if (has_bias == Bias::With) bias = add("bias", {out}, dtype);
  }
  at::Tensor forward(const at::Tensor& x) const { return at::linear(x, weight, given(bias)); }

  // Of plain x, by heads: [texts, new ids, heads, head_dim]. This rank may have more heads'
  // weights.
  at::Tensor forward(const at::Tensor& x, const Run& run, std::int64_t head_dim) const {
    const std::int64_t count = run.size() * head_dim;
    const auto of_run = [&](const at::Tensor& tensor) {
      const at::Tensor here = to_local(tensor);
      return here.size(0) == count ? here : here.narrow(0, run.begin * head_dim, count);
    };
    const at::Tensor its_bias = bias.defined() ? of_run(bias) : bias;
    return at::linear(x, of_run(weight), given(its_bias)).unflatten(-1, {run.size(), head_dim});
  }

  at::Tensor weight, bias;
};

struct Norm : Weighted {
  Norm(std::int64_t width, const Config& config)
      : eps(config.eps), weight(add("weight", {width}, config.dtype)) {}
  at::Tensor forward(const at::Tensor& x) const {
    return at::rms_norm(x, weight.sizes(), is_dtensor(x) ? weight : to_local(weight), eps);
  }

  double eps;
  at::Tensor weight;
};

struct Attention : torch::nn::Module {
  Attention(const Config& config, std::int64_t window_, const DeviceMesh& mesh_)
      : window(window_),
        size(config.head_dim),
        mesh(mesh_),
        cut(2, cut_of(config, mesh, &Heads::queries)),
        mine(divide_heads(config, mesh.size())
                 .at(static_cast<std::size_t>(World::of(mesh).group(mesh, kAxis).index()))) {
    const auto layer = [&](const char* name, std::int64_t in, std::int64_t out, Bias bias) {
      return register_module(name, std::make_shared<Linear>(in, out, bias, config.dtype));
    };
    const std::int64_t queries = config.heads * size, keys = config.key_heads * size;
    q_proj = layer("q_proj", config.width, queries, config.query_bias);
    k_proj = layer("k_proj", config.width, keys, config.query_bias);
    v_proj = layer("v_proj", config.width, keys, config.query_bias);
    o_proj = layer("o_proj", queries, config.width, config.output_bias);
    if (!config.norms_heads) return;
    q_norm = register_module("q_norm", std::make_shared<Norm>(size, config));
    k_norm = register_module("k_norm", std::make_shared<Norm>(size, config));
  }

  at::Tensor forward(const at::Tensor& x, const Step& step, const Past& past) const {
    const at::Tensor here = to_local(x);
    const at::Tensor out = mine.queries.size() > 0 ? of_my_heads(here, step, past)
                                                   : here.new_empty({x.size(0), x.size(1), 0});
    FromLocalOptions as_whole;
    as_whole.shape = {x.size(0), x.size(1), o_proj->weight.size(1)};
    as_whole.check = false;
    return o_proj->forward(from_local(out, mesh, {cut}, as_whole));
  }

  at::Tensor of_my_heads(const at::Tensor& x, const Step& step, const Past& past) const {
    const auto turned = [&](at::Tensor heads, const std::shared_ptr<Norm>& norm) {
      if (norm) heads = norm->forward(heads);
      return at::addcmul(heads * step.cos, heads.roll(size / 2, -1), step.sin);
    };
    const at::Tensor query = turned(q_proj->forward(x, mine.queries, size), q_norm);
    past.keys.index_put_({step.places[0], step.places[1]},
                         turned(k_proj->forward(x, mine.keys, size), k_norm));
    past.values.index_put_({step.places[0], step.places[1]}, v_proj->forward(x, mine.keys, size));

    // Queries that share a key become rows of one head, one after the other.
    const std::int64_t keys = mine.keys.size(), shared = mine.queries.size() / keys;
    const at::Tensor rows =
        query.unflatten(2, {keys, shared}).permute({0, 2, 3, 1, 4}).flatten(2, 3);
    const auto seen = [&](const at::Tensor& all) {
      return all.narrow(1, 0, step.keys).transpose(1, 2);
    };
    at::Tensor mask = step.masks.at(window);
    if (mask.defined()) mask = mask.repeat({1, 1, shared, 1});
    return at::scaled_dot_product_attention(rows, seen(past.keys), seen(past.values), given(mask))
        .unflatten(2, {shared, x.size(1)})
        .permute({0, 3, 1, 2, 4})
        .flatten(2);
  }

  std::int64_t window, size;
  DeviceMesh mesh;
  Shard cut;  // of what o_proj is given
  Heads mine;
  std::shared_ptr<Linear> q_proj, k_proj, v_proj, o_proj;
  std::shared_ptr<Norm> q_norm, k_norm;  // null unless heads are normed
};

struct Mlp : torch::nn::Module {
  explicit Mlp(const Config& config) {
    const auto layer = [&](const char* name, std::int64_t in, std::int64_t out) {
      return register_module(name,
                             std::make_shared<Linear>(in, out, config.mlp_bias, config.dtype));
    };
    gate_proj = layer("gate_proj", config.width, config.hidden);
    up_proj = layer("up_proj", config.width, config.hidden);
    down_proj = layer("down_proj", config.hidden, config.width);
  }
  at::Tensor forward(const at::Tensor& x) const {
    return down_proj->forward(at::silu(gate_proj->forward(x)) * up_proj->forward(x));
  }

  std::shared_ptr<Linear> gate_proj, up_proj, down_proj;
};

struct Layer : torch::nn::Module {
  Layer(const Config& config, std::int64_t window, const DeviceMesh& mesh)
      : self_attn(register_module("self_attn", std::make_shared<Attention>(config, window, mesh))),
        mlp(register_module("mlp", std::make_shared<Mlp>(config))) {
    const auto norm = [&](const char* name) {
      return register_module(name, std::make_shared<Norm>(config.width, config));
    };
    input_layernorm = norm("input_layernorm");
    post_attention_layernorm = norm("post_attention_layernorm");
  }
  at::Tensor forward(const at::Tensor& x, const Step& step, const Past& past) const {
    const at::Tensor y = x + summed(self_attn->forward(input_layernorm->forward(x), step, past));
    return y + summed(mlp->forward(post_attention_layernorm->forward(y)));
  }

  std::shared_ptr<Attention> self_attn;
  std::shared_ptr<Mlp> mlp;
  std::shared_ptr<Norm> input_layernorm, post_attention_layernorm;
};

struct Model : torch::nn::Module {
  Model(const Config& config_, const DeviceMesh& mesh_) : config(config_), mesh(mesh_) {
    const auto table = [&](const char* name) {
      return register_module(name, std::make_shared<Linear>(config.width, config.vocabulary,
                                                            Bias::Without, config.dtype));
    };
    embed_tokens = table("embed_tokens");
    lm_head = config.is_tied ? register_module("lm_head", embed_tokens) : table("lm_head");
    norm = register_module("norm", std::make_shared<Norm>(config.width, config));
    torch::nn::ModuleList list;
    for (const std::int64_t window : config.windows) {
      layers.push_back(std::make_shared<Layer>(config, window, mesh));
      list->push_back(layers.back());
    }
    register_module("layers", list);
  }

  // For texts of at most so many positions.
  Cache cache(std::int64_t texts, std::int64_t positions) const {
    Cache cache{{}, std::vector<std::int64_t>(static_cast<std::size_t>(texts), 0)};
    for (const auto& layer : layers) {
      const Shape shape = {texts, positions, layer->self_attn->mine.keys.size(), config.head_dim};
      cache.layers.push_back({at::zeros(shape, config.dtype), at::zeros(shape, config.dtype)});
    }
    return cache;
  }

  // Appends ids of the vocabulary to texts, as many to each as there are, at least one. Gives the
  // scores of the id that follows each: [texts, vocabulary], cut by vocabulary. All ranks call it
  // with the same. UsageError if the cache has no room.
  at::Tensor forward(const std::vector<std::vector<std::int64_t>>& ids, Cache& cache) const {
    const auto texts = static_cast<std::int64_t>(ids.size());
    std::int64_t news = 0;
    for (const auto& one : ids) news = std::max(news, static_cast<std::int64_t>(one.size()));
    const std::int64_t keys = *std::ranges::max_element(cache.lengths) + news;
    if (keys > cache.layers.front().keys.size(1)) {
      throw UsageError("a cache of keys and values is too short")
          .fact("positions", std::to_string(cache.layers.front().keys.size(1)))
          .fact("needed", std::to_string(keys));
    }
    const at::Tensor padded = at::zeros({texts, news}, at::kLong);
    const at::Tensor last = at::empty({texts}, at::kLong);
    const at::Tensor begin = at::tensor(cache.lengths, at::kLong).unsqueeze(1);
    for (std::size_t k = 0; k < ids.size(); ++k) {
      const auto row = static_cast<std::int64_t>(k), count = std::ssize(ids[k]);
      std::ranges::copy(ids[k], padded.mutable_data_ptr<std::int64_t>() + row * news);
      last.mutable_data_ptr<std::int64_t>()[k] = count - 1;
      cache.lengths[k] += count;
    }
    const Step step = step_at(begin + at::arange(news), keys);
    at::Tensor x = summed(at::embedding(
        embed_tokens->weight, distribute_tensor(padded, mesh, {Replicate()}, kSameOnAllRanks)));
    for (std::size_t k = 0; k < layers.size(); ++k) {
      x = layers[k]->forward(x, step, cache.layers[k]);
    }
    return scores_after(to_local(norm->forward(x.index({at::arange(texts), last}))));
  }

  // Of plain [texts, width]. libtorch's product copies its weight first: pieces stay in the cache.
  at::Tensor scores_after(const at::Tensor& x) const {
    std::vector<at::Tensor> pieces;
    for (const at::Tensor& rows : to_local(lm_head->weight).split(1024)) {
      pieces.push_back(at::linear(x, rows));
    }
    FromLocalOptions as_whole;
    as_whole.shape = {x.size(0), config.vocabulary};
    as_whole.check = false;
    return from_local(at::cat(pieces, 1), mesh, {Shard(1)}, as_whole);
  }

  Step step_at(const at::Tensor& positions, std::int64_t keys) const {
    const at::Tensor angles =
        (positions.unsqueeze(-1) * at::tensor(config.frequencies, at::kDouble)).unsqueeze(2);
    const at::Tensor cos = angles.cos(), sin = angles.sin();
    Step step{keys,
              {at::arange(positions.size(0)).unsqueeze(1), positions},
              at::cat({cos, cos}, -1).to(config.dtype),
              at::cat({-sin, sin}, -1).to(config.dtype)};
    for (const std::int64_t window : config.windows) {
      if (step.masks.contains(window)) continue;
      step.masks[window] = mask_of(positions, keys, window, config.dtype);
    }
    return step;
  }

  Config config;
  DeviceMesh mesh;
  std::shared_ptr<Linear> embed_tokens, lm_head;
  std::shared_ptr<Norm> norm;
  std::vector<std::shared_ptr<Layer>> layers;
};

// The model with the folder's weights, over the axis "tp" of the mesh. All ranks call it.
// UsageError as load_hf: weights that are missing, left over, or do not fit.
inline std::shared_ptr<Model> load(const Config& config, const std::string& folder,
                                   const DeviceMesh& mesh) {
  const auto by_heads = [&](const char* name, std::int64_t dim, Run Heads::* which) {
    return Style(name, [dim, cut = cut_of(config, mesh, which)](const StyledParameter& one) {
      // the bias of what owes a sum is whole
      return one.tensor.dim() > dim ? Placement(Shard(dim, cut)) : Placement(Replicate());
    });
  };
  const bool share_keys = config.key_heads < mesh.size();
  const Style queries = by_heads("heads of queries", 0, &Heads::queries);
  const Style keys = share_keys ? Replicated() : by_heads("heads of keys", 0, &Heads::keys);
  const auto model = std::make_shared<Model>(config, mesh);
  ParallelPlan plan = {{"embed_tokens", VocabularyCut()},
                       {"**.q_proj", queries},
                       {"**.k_proj", keys},
                       {"**.v_proj", keys},
                       {"**.o_proj", by_heads("inputs by heads", 1, &Heads::queries)},
                       {"**.gate_proj", Colwise()},
                       {"**.up_proj", Colwise()},
                       {"**.down_proj", Rowwise()}};
  HfOptions names{.names = {{{"lm_head.**"}, {"lm_head.**"}}, {{"**"}, {"model.**"}}},
                  .ignored = {"**.inv_freq"}};
  if (config.is_tied) {
    names.ignored.push_back("lm_head.weight");
  } else {
    plan.emplace_back("lm_head", VocabularyCut());
  }
  parallelize_module(*model, mesh, plan);
  load_hf(*model, folder, mesh, names);
  return model;
}

}  // namespace llama
