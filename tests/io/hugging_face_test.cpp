// Weights of Hugging Face models: names by patterns, joined and divided, into any placements.
#include "tegula/io/hugging_face.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <fstream>
#include <sstream>

#include "tegula/io/safetensors.h"
#include "tegula/tensor/module.h"
#include "tests/io/scratch_folder.h"
#include "tests/tensor/as_plain.h"

namespace tegula {
namespace hugging_face_test {

// Ours: queries, keys and values in one weight, gate and up in two, the head tied to the embedding.
struct Layer : torch::nn::Module {
  explicit Layer(const at::TensorOptions& options) {
    qkv = register_parameter("qkv", at::zeros({8, 4}, options));
    gate = register_parameter("gate", at::zeros({6, 4}, options));
    up = register_parameter("up", at::zeros({6, 4}, options));
    norm = register_parameter("norm", at::zeros({4}, options));
  }
  at::Tensor qkv, gate, up, norm;
};
struct Model : torch::nn::Module {
  explicit Model(const at::TensorOptions& options = at::kFloat) {
    head = register_parameter("head", at::zeros({5, 4}, options));
    embed = register_parameter("embed", head);
    for (int k = 0; k < 2; ++k) {
      layers.push_back(
          register_module("layers" + std::to_string(k), std::make_shared<Layer>(options)));
    }
    cache = register_buffer("cache", at::zeros({3}, options));
  }
  at::Tensor head, embed, cache;
  std::vector<std::shared_ptr<Layer>> layers;
};

const HfOptions& names() {
  static const HfOptions options{
      .names = {{{"layers*.qkv"}, {"model.*.q.weight", "model.*.k.weight", "model.*.v.weight"}},
                {{"layers*.gate", "layers*.up"}, {"model.*.gate_up.weight"}},
                {{"layers*.norm"}, {"model.*.norm.weight"}},
                {{"embed"}, {"model.embed.weight"}},
                {{"head"}, {"lm_head.weight"}}},
      .without = {"cache"},
      .ignored = {"**.inv_freq"}};
  return options;
}

HfOptions names_of_equal_parts() {
  HfOptions options = names();
  options.names[0] = {{"layers*.qkv"}, {"model.*.a.weight", "model.*.b.weight"}};
  return options;
}

std::map<std::string, at::Tensor> layer_weights(int layer) {
  const std::string prefix = "model." + std::to_string(layer) + ".";
  const auto seed = static_cast<std::uint64_t>(10 * layer);
  const auto weight = [&](at::IntArrayRef shape, std::uint64_t k) {
    return numbers(shape, seed + k).to(at::kBFloat16);
  };
  return {{prefix + "q.weight", weight({4, 4}, 1)}, {prefix + "k.weight", weight({2, 4}, 2)},
          {prefix + "v.weight", weight({2, 4}, 3)}, {prefix + "gate_up.weight", weight({12, 4}, 4)},
          {prefix + "norm.weight", weight({4}, 5)}, {prefix + "inv_freq", weight({2}, 6)}};
}

at::Tensor embedding() { return numbers({5, 4}, 99).to(at::kBFloat16); }

void write_text(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

// In two files with odd names and an index.
void write_folder(const std::string& folder) {
  std::filesystem::create_directories(folder);
  std::map<std::string, at::Tensor> first = layer_weights(0);
  first["model.embed.weight"] = embedding();  // the head is tied, so it is not there
  save_safetensors(folder + "/part-a.safetensors", first);
  save_safetensors(folder + "/part-b.safetensors", layer_weights(1));
  std::ostringstream index;
  index << R"({"metadata": {"total_size": 1}, "weight_map": {)";
  for (const auto& [name, tensor] : first) index << '"' << name << R"(": "part-a.safetensors", )";
  for (const auto& [name, tensor] : layer_weights(1)) {
    index << '"' << name << R"(": "part-b.safetensors", )";
  }
  std::string text = index.str();
  text.resize(text.size() - 2);
  write_text(folder + "/model.safetensors.index.json", text + "}}");
}

void expect_weights(const Model& model) {
  const auto same = [](const at::Tensor& got, const at::Tensor& want) {
    return difference(full_tensor(got), want.to(at::kFloat), 0);
  };
  EXPECT_EQ(same(model.head, embedding()), "");
  for (int k = 0; k < 2; ++k) {
    std::map<std::string, at::Tensor> theirs = layer_weights(k);
    const std::string prefix = "model." + std::to_string(k) + ".";
    const Layer& layer = *model.layers[static_cast<std::size_t>(k)];
    EXPECT_EQ(same(layer.qkv, at::cat({theirs[prefix + "q.weight"], theirs[prefix + "k.weight"],
                                       theirs[prefix + "v.weight"]})),
              "");
    EXPECT_EQ(same(layer.gate, theirs[prefix + "gate_up.weight"].narrow(0, 0, 6)), "");
    EXPECT_EQ(same(layer.up, theirs[prefix + "gate_up.weight"].narrow(0, 6, 6)), "");
    EXPECT_EQ(same(layer.norm, theirs[prefix + "norm.weight"]), "");
  }
}

const PlacementPatterns kPlaced = {
    {"layers*.qkv", {Shard(0)}}, {"layers*.gate", {Shard(1)}}, {"layers*.up", {Shard(0)}}};

TEST(HuggingFace, WeightsGoStraightIntoTiles) {
  const ScratchFolder scratch;
  const std::string folder = scratch.path + "/model";
  write_folder(folder);
  for (const int ranks : {1, 2, 3}) {
    run_impatient(ranks, [&](World& world) {
      const DeviceMesh mesh = world.mesh({{"tp", ranks}});
      Model model(at::TensorOptions(at::kFloat).device(at::kMeta));  // no memory yet
      distribute_module(model, mesh, kPlaced);
      load_hf(model, folder, mesh, names());
      expect_weights(model);
      EXPECT_TRUE(model.head.is_same(model.embed));
    });
  }
}

TEST(HuggingFace, WhatIsExportedIsReadAgainAndDoesNotDependOnTheRanks) {
  const ScratchFolder scratch;
  write_folder(scratch.path + "/model");
  const HfOptions equal_parts = names_of_equal_parts();
  std::vector<std::string> files;
  for (const int ranks : {1, 3}) {
    const std::string folder = scratch.path + "/exported" + std::to_string(ranks);
    run_impatient(ranks, [&](World& world) {
      const DeviceMesh mesh = world.mesh({{"tp", ranks}});
      Model model;
      distribute_module(model, mesh, kPlaced, kSameOnAllRanks);
      load_hf(model, scratch.path + "/model", mesh, names());
      export_hf(model, folder, mesh, equal_parts);
      Model again;
      distribute_module(again, mesh, kSameOnAllRanks);
      load_hf(again, folder, mesh, equal_parts);
      expect_weights(again);
      const std::string error = error_of([&] { export_hf(model, folder, mesh, equal_parts); });
      EXPECT_TRUE(contains(error, "there is such a folder already")) << error;
    });
    std::ifstream file(folder + "/model.safetensors", std::ios::binary);
    files.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  EXPECT_GT(files[0].size(), 4096u);
  EXPECT_TRUE(files[0] == files[1]);
}

TEST(HuggingFace, WeightsThatCannotBeJoinedAreNotExported) {
  const auto refusal = [](at::ScalarType type_of_up, const HfOptions& options) {
    const ScratchFolder scratch;
    std::vector<std::string> errors(2);
    run_impatient(2, [&](World& world) {
      const DeviceMesh mesh = world.mesh({{"tp", 2}});
      Model model;
      model.layers[0]->up.set_data(model.layers[0]->up.to(type_of_up));
      distribute_module(model, mesh, {{"layers*.gate", {Shard(0)}}}, kSameOnAllRanks);
      errors[static_cast<std::size_t>(world.rank())] =
          error_of([&] { export_hf(model, scratch.path + "/out", mesh, options); });
    });
    EXPECT_EQ(errors[0], errors[1]);
    return errors[1];
  };
  EXPECT_EQ(refusal(at::kHalf, names_of_equal_parts()),
            "tegula: weights that are joined in files have different types\n"
            "  weight  \"layers0.gate\", f32[6, 4]\n"
            "  with    \"layers0.up\", f16[6, 4]");
  for (const std::string left_out : {"layers1.gate", "layers1.up"}) {
    HfOptions in_part = names_of_equal_parts();
    in_part.without.push_back(left_out);
    const std::string error = refusal(at::kFloat, in_part);
    EXPECT_TRUE(
        contains(error, "of weights that are joined in files, some are left out and some are not"))
        << error;
  }
  const HfOptions tied{.names = {{{"head", "embed"}, {"both"}}}};
  const std::string error = refusal(at::kFloat, tied);
  EXPECT_TRUE(contains(error, "weights that are joined in files are not all there")) << error;

  HfOptions without_both = names_of_equal_parts();
  without_both.without.push_back("layers1.*");
  EXPECT_EQ(refusal(at::kFloat, without_both), "nothing was thrown");
}

TEST(HuggingFace, AnExportThatFailsLeavesNothing) {
  const ScratchFolder scratch;
  std::filesystem::create_symlink("nowhere", scratch.path + "/out");  // no folder can have its name
  run_impatient(2, [&](World& world) {
    Model model;
    const std::string error = error_of([&] {
      export_hf(model, scratch.path + "/out", world.mesh({{"tp", 2}}), names_of_equal_parts());
    });
    EXPECT_TRUE(contains(error, "cannot rename")) << error;
  });
  EXPECT_FALSE(std::filesystem::exists(scratch.path + "/out.tmp"));
}

TEST(HuggingFace, WeightsThatDoNotFitAreReportedTogether) {
  const ScratchFolder scratch;
  std::map<std::string, at::Tensor> tensors = layer_weights(0);
  tensors["model.0.norm.weight"] = at::zeros({3});
  tensors["model.0.gate_up.weight"] = at::zeros({12, 4}, at::kChar);
  tensors["model.other"] = at::zeros({1});
  save_safetensors(scratch.path + "/model.safetensors", tensors);
  run_impatient(2, [&](World& world) {
    const DeviceMesh mesh = world.mesh({{"tp", 2}});
    Model model;
    distribute_module(model, mesh, kPlaced, kSameOnAllRanks);
    EXPECT_EQ(
        error_of([&] { load_hf(model, scratch.path, mesh, names()); }),
        "tegula: the weights of a folder do not fit the module\n"
        "  folder  " +
            scratch.path +
            "\n"
            "  missing head, layers1.gate, layers1.norm, layers1.qkv, layers1.up\n"
            "  extra   model.other\n"
            "  wrong   layers0.gate (i8[12, 4] in the files, f32[6, 4] here), quantized, "
            "layers0.norm (f32[3] in the files, f32[4] here), another shape, "
            "layers0.up (i8[12, 4] in the files, f32[6, 4] here), quantized\n"
            "  hint    names says what weights are called in the files; without and ignored pass "
            "over some");
    EXPECT_EQ(full_tensor(model.layers[0]->qkv).abs().max().item<float>(), 0);
  });
}

TEST(HuggingFace, FoldersThatCannotBeReadAreRefused) {
  const ScratchFolder scratch;
  const auto refusal = [&] {
    std::string error;
    run_impatient(2, [&](World& world) {
      const DeviceMesh mesh = world.mesh({{"tp", 2}});
      Model model;
      const std::string mine = error_of([&] { load_hf(model, scratch.path, mesh, names()); });
      if (world.rank() == 1) error = mine;
    });
    return error;
  };
  EXPECT_TRUE(contains(refusal(), "a folder has no safetensors files"));
  write_text(scratch.path + "/model.safetensors", "12345678{}");
  EXPECT_TRUE(contains(refusal(), "this is no safetensors header"));
  write_text(scratch.path + "/model.safetensors.index.json", R"({"weight_map": {"a": "../b"}})");
  EXPECT_TRUE(contains(refusal(), "an index of weights lists what cannot be a file's name"));
  write_text(scratch.path + "/model.safetensors.index.json", R"({"weight_map": {"a": "b"}})");
  EXPECT_TRUE(contains(refusal(), "cannot open a file: No such file or directory"));
  save_safetensors(scratch.path + "/b", {{"c", at::ones({1})}});
  EXPECT_TRUE(contains(refusal(), "an index says that a file has a tensor, and it has not"));
  write_text(scratch.path + "/model.safetensors.index.json", "[");
  EXPECT_TRUE(contains(refusal(), "an index of weights has no weight_map"));
  write_text(scratch.path + "/config.json", R"({"quantization_config": {"quant_method": "gptq"}})");
  const std::string error = refusal();
  EXPECT_TRUE(contains(error, "quantized weights are not read")) << error;
  EXPECT_TRUE(contains(error, "method  gptq")) << error;
}

}  // namespace hugging_face_test
}  // namespace tegula
