// The decoder of examples/llama.cpp: on any number of ranks, by pieces and in batches, it gives
// what the formulas say.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "examples/llama_generate.h"
#include "tegula/comm/comm_log.h"
#include "tegula/io/safetensors.h"
#include "tests/io/scratch_folder.h"
#include "tests/serving/plain_decoder.h"
#include "tests/tensor/as_plain.h"

namespace tegula {
namespace llama_test {

using llama::Ids;

// A folder as Hugging Face's are: this configuration, and random weights that fit.
struct Folder {
  explicit Folder(const std::string& text) {
    std::ofstream(scratch.path + "/config.json") << text;
    config = llama::read_config(scratch.path);
    weights = random_weights(config);
    save_safetensors(scratch.path + "/model.safetensors", weights);
  }
  at::Tensor scores(const Ids& ids) const { return plain_scores(config, weights, ids); }

  ScratchFolder scratch;
  llama::Config config;
  Weights weights;
};

std::string config_text(const std::string& more) {
  return R"({"vocab_size": 31, "hidden_size": 12, "intermediate_size": 17, "num_hidden_layers": 2,
             "num_attention_heads": 6, "max_position_embeddings": 64, "dtype": "float64", )" +
         more + "}";
}

const std::string kLlama = config_text(
    R"("model_type": "llama", "num_key_value_heads": 3, "head_dim": 4, "attention_bias": true,
       "mlp_bias": true, "eos_token_id": [5, 6],
       "rope_scaling": {"rope_type": "llama3", "factor": 4, "low_freq_factor": 1,
                        "high_freq_factor": 3, "original_max_position_embeddings": 12})");
const std::string kMistral =
    config_text(R"("model_type": "mistral", "num_key_value_heads": 2, "sliding_window": 3)");
const std::string kQwen2 = config_text(
    R"("model_type": "qwen2", "num_key_value_heads": 1, "tie_word_embeddings": true,
       "use_sliding_window": true, "sliding_window": 2, "max_window_layers": 1)");
const std::string kQwen3 = config_text(R"("model_type": "qwen3", "head_dim": 6)");

const std::vector<Ids> kTexts = {{3, 1, 4, 1, 5, 9, 2}, {6}, {5, 3, 5, 8}};

// Runs the body on this many ranks with the folder's model.
void with_model(const Folder& folder, int ranks,
                const std::function<void(World&, const llama::Model&)>& body) {
  run_impatient(ranks, [&](World& world) {
    const DeviceMesh mesh = world.mesh({{"tp", ranks}});
    body(world, *llama::load(folder.config, folder.scratch.path, mesh));
  });
}

// The ids of each text that follow, on rank 0.
std::vector<Ids> continued(const Folder& folder, int ranks, const std::vector<Ids>& texts,
                           const llama::Generation& how) {
  std::vector<Ids> found(texts.size());
  with_model(folder, ranks, [&](World& world, const llama::Model& model) {
    llama::generate(model, texts, how, [&](std::size_t text, std::int64_t id, const at::Tensor&) {
      if (world.rank() == 0) found[text].push_back(id);
    });
  });
  return found;
}

TEST(Llama, HeadsAreDividedWholeAndKeysComeWithTheirQueries) {
  for (const std::int64_t keys : {1, 2, 3, 4, 8}) {
    for (const std::int64_t shared : {1, 2, 3, 4}) {
      for (std::int64_t ranks = 1; ranks <= 13; ++ranks) {
        llama::Config config;
        config.heads = keys * shared;
        config.key_heads = keys;
        const std::vector<llama::Heads> all = llama::divide_heads(config, ranks);
        ASSERT_EQ(std::ssize(all), ranks);
        std::int64_t next = 0, most = 0;
        for (const llama::Heads& one : all) {
          ASSERT_EQ(one.queries.begin, next);
          next = one.queries.end;
          most = std::max(most, one.queries.size());
          if (one.queries.size() == 0) continue;
          ASSERT_EQ(one.queries.size() % one.keys.size(), 0);
          const std::int64_t together = one.queries.size() / one.keys.size();
          for (std::int64_t k = 0; k < one.queries.size(); ++k) {
            ASSERT_EQ((one.queries.begin + k) / shared, one.keys.begin + k / together);
          }
        }
        ASSERT_EQ(next, config.heads);
        if (keys % ranks == 0 || (ranks % keys == 0 && config.heads % ranks == 0)) {
          ASSERT_EQ(most, config.heads / ranks);  // all have as many
        }
      }
    }
  }
}

TEST(Llama, AnyNumberOfRanksGivesThePlainScoresAtOnceAndPieceByPiece) {
  for (const std::string& text : {kLlama, kMistral, kQwen2, kQwen3}) {
    const Folder folder(text);
    for (const int ranks : {1, 2, 3, 4, 7}) {
      with_model(folder, ranks, [&](World&, const llama::Model& model) {
        const c10::InferenceMode no_gradients;
        const auto last = [&](const Ids& ids) { return folder.scores(ids)[-1]; };
        llama::Cache whole = model.cache(3, 8), pieces = model.cache(1, 8);
        const at::Tensor prompts = full_tensor(model.forward(kTexts, whole));
        const at::Tensor next = full_tensor(model.forward({{7}, {8}, {9}}, whole));
        for (std::int64_t row = 0; row < 3; ++row) {
          Ids ids = kTexts[static_cast<std::size_t>(row)];
          EXPECT_EQ(difference(prompts[row], last(ids)), "") << ranks << text;
          ids.push_back(7 + row);
          EXPECT_EQ(difference(next[row], last(ids)), "") << ranks << text;
        }
        model.forward({{3, 1, 4}}, pieces);
        model.forward({{1}}, pieces);
        const at::Tensor by_pieces = full_tensor(model.forward({{5, 9, 2}}, pieces));
        EXPECT_EQ(difference(by_pieces, prompts.narrow(0, 0, 1)), "") << ranks << text;
      });
    }
  }
}

TEST(Llama, TextsTogetherBecomeWhatTheyBecomeAlone) {
  const Folder folder(kMistral);
  const llama::Generation how{.most = 9};
  const std::vector<Ids> together = continued(folder, 3, kTexts, how);
  for (std::size_t k = 0; k < kTexts.size(); ++k) {
    EXPECT_EQ(continued(folder, 2, {kTexts[k]}, how).front(), together[k]);
    Ids ids = kTexts[k];  // the likeliest each time
    for (const std::int64_t id : together[k]) {
      EXPECT_EQ(folder.scores(ids)[-1].argmax().item<std::int64_t>(), id);
      ids.push_back(id);
    }
  }
}

TEST(Llama, TheSameIdsAreDrawnOnAnyNumberOfRanks) {
  const Folder folder(kLlama);
  const std::vector<Ids> alike = {{3, 1}, {3, 1}, {4}};
  for (const llama::Generation& how :
       {llama::Generation{.most = 12, .temperature = 1.5, .seed = 3},
        llama::Generation{.most = 12, .temperature = 3, .top_k = 7, .top_p = 0.8, .seed = 4}}) {
    const std::vector<Ids> alone = continued(folder, 1, alike, how);
    EXPECT_NE(alone[0], alone[1]);  // each text draws for itself
    for (const int ranks : {2, 3, 5}) EXPECT_EQ(continued(folder, ranks, alike, how), alone);
    llama::Generation other = how;
    other.seed += 100;
    EXPECT_NE(continued(folder, 1, alike, other), alone);
  }
}

TEST(Llama, OnlyTheLikeliestAreDrawn) {
  const Folder folder(kQwen3);
  const std::vector<Ids> greedy = continued(folder, 2, kTexts, {.most = 8});
  const auto hot = [](std::int64_t top_k, double top_p) {
    return llama::Generation{.most = 8, .temperature = 5, .top_k = top_k, .top_p = top_p};
  };
  EXPECT_EQ(continued(folder, 2, kTexts, hot(1, 1)), greedy);
  EXPECT_EQ(continued(folder, 2, kTexts, hot(0, 1e-6)), greedy);
  EXPECT_NE(continued(folder, 2, kTexts, hot(0, 1)), greedy);
}

TEST(Llama, AStopEndsOneTextAndNotTheOthers) {
  const Folder folder(kQwen3);
  const std::vector<Ids> without = continued(folder, 2, kTexts, {.most = 8});
  const std::int64_t stop = without[0][2];
  const std::vector<Ids> with = continued(folder, 2, kTexts, {.most = 8, .stops = {stop, 1000}});
  for (std::size_t k = 0; k < kTexts.size(); ++k) {
    const auto end = std::ranges::find(without[k], stop);
    EXPECT_EQ(with[k], Ids(without[k].begin(), end == without[k].end() ? end : end + 1));
  }
}

TEST(Llama, AnIdCostsTwoSumsPerLayerAndOneForTheEmbedding) {
  const Folder folder(kLlama);
  with_model(folder, 2, [&](World& world, const llama::Model& model) {
    const c10::InferenceMode no_gradients;
    llama::Cache cache = model.cache(1, 8);
    model.forward({{3, 1, 4}}, cache);
    const CommLog log(world);
    const at::Tensor scores = model.forward({{5}}, cache);
    EXPECT_EQ(placements_of(scores), (Placements{Shard(1)}));
    EXPECT_EQ(log.entries().size(), 5u) << log.to_string();
    for (const CommEntry& entry : log.entries()) {
      EXPECT_EQ(entry.kind, CommKind::AllReduce) << log.to_string();
      EXPECT_EQ(entry.bytes, 12 * 8) << log.to_string();
    }
  });
}

TEST(Llama, OtherModelsAreRefusedByName) {
  const auto refusal = [](const std::string& text) {
    const ScratchFolder scratch;
    std::ofstream(scratch.path + "/config.json") << text;
    return error_of([&] { llama::read_config(scratch.path); });
  };
  const auto with = [&](const std::string& more) {
    return refusal(config_text(R"("model_type": "llama", )" + more));
  };
  EXPECT_TRUE(contains(refusal(config_text(R"("model_type": "mamba")")), "model_type \"mamba\""));
  EXPECT_TRUE(contains(with(R"("quantization_config": {"bits": 4})"), "quantization_config {"));
  EXPECT_TRUE(contains(with(R"("hidden_act": "gelu")"), "hidden_act \"gelu\""));
  EXPECT_TRUE(contains(with(R"("rope_scaling": {"type": "yarn"})"), "rope_type \"yarn\""));
  EXPECT_TRUE(contains(with(R"("partial_rotary_factor": 0.5)"), "partial_rotary_factor 0.5"));
  EXPECT_TRUE(contains(with(R"("torch_dtype": "int4")"), "nothing was thrown"));  // dtype counts
  EXPECT_TRUE(
      contains(with(R"("num_key_value_heads": 4)"), "the heads of a model's configuration"));
  EXPECT_TRUE(contains(with(R"("num_key_value_heads": 0)"), "is not positive"));
  EXPECT_TRUE(contains(with(R"("rms_norm_eps": "small")"), "configuration is wrong"));
  EXPECT_TRUE(contains(refusal("{"), "a model's configuration is wrong"));
  EXPECT_TRUE(contains(refusal(R"({"model_type": "llama"})"), "key 'vocab_size' not found"));
  EXPECT_TRUE(contains(error_of([] { llama::read_config("/nowhere"); }), "cannot be read"));
}

TEST(Llama, WhatCannotBeContinuedIsRefused) {
  const Folder folder(kLlama);
  const auto refusal = [&](const std::vector<Ids>& texts, const llama::Generation& how) {
    return error_of([&] { llama::check(folder.config, texts, how); });
  };
  EXPECT_TRUE(contains(refusal({}, {}), "there is no text to continue"));
  EXPECT_TRUE(contains(refusal({{1}, {}}, {}), "a text has no ids"));
  EXPECT_TRUE(contains(refusal({{1, 31}}, {}), "the vocabulary has no such id"));
  EXPECT_TRUE(contains(refusal({{-1}}, {}), "the vocabulary has no such id"));
  EXPECT_TRUE(contains(refusal({{1}}, {.most = 64}), "longer than the model can look back"));
  EXPECT_EQ(refusal({{1}}, {.most = 63}), "nothing was thrown");
  EXPECT_TRUE(contains(refusal({{1}}, {.most = 0}), "ids cannot be drawn so"));
  EXPECT_TRUE(contains(refusal({{1}}, {.temperature = -1}), "ids cannot be drawn so"));
  EXPECT_TRUE(contains(refusal({{1}}, {.temperature = NAN}), "ids cannot be drawn so"));
  EXPECT_TRUE(contains(refusal({{1}}, {.top_k = -1}), "ids cannot be drawn so"));
  EXPECT_TRUE(contains(refusal({{1}}, {.top_p = 0}), "ids cannot be drawn so"));
  with_model(folder, 2, [&](World&, const llama::Model& model) {
    llama::Cache cache = model.cache(1, 2);
    const std::string error = error_of([&] { model.forward({{1, 2, 3}}, cache); });
    EXPECT_TRUE(contains(error, "a cache of keys and values is too short")) << error;
  });
}

}  // namespace llama_test
}  // namespace tegula
