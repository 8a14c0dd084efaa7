// Weights of Hugging Face models, straight into the tiles of a module and back.
//
//   auto model = build_on(at::kMeta);                       // no memory yet
//   distribute_module(*model, mesh, placed);                // tiles without values
//   load_hf(*model, "Llama-3.2-1B", mesh, {.names = {
//       {{"layers.*.qkv.weight"},                           // one of ours is three of theirs
//        {"model.layers.*.self_attn.q_proj.weight", "model.layers.*.self_attn.k_proj.weight",
//         "model.layers.*.self_attn.v_proj.weight"}},
//       {{"**"}, {"model.**"}}}});                          // all others
//
// No rank holds more than its tiles, 64 MiB of rows on their way, and what a redistribution
// takes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tegula/mesh/device_mesh.h"

namespace torch::nn {
class Module;
}

namespace tegula {

// Weights of ours, and what files have for them: the rows of the first, one after the other, are
// the rows of the second. Patterns: * is any characters up to a dot, ** any; they stand for the
// same in all of them.
struct HfName {
  std::vector<std::string> ours;
  std::vector<std::string> theirs;
};

struct HfOptions {
  // The first that matches a name counts; one that none matches is the same in the files.
  std::vector<HfName> names = {};
  // Patterns (tensor/module.h) of what the module has and the files need not have.
  std::vector<std::string> without = {};
  // Patterns of what the files have and the module need not have.
  std::vector<std::string> ignored = {};
  // A file that export_hf writes takes no more, but for one weight that has more by itself.
  std::uint64_t most_file_bytes = std::uint64_t{5} << 30;
};

// Fills the module's parameters and buffers from a folder of safetensors files (with or without an
// index), in place. Of one that stands in several places, any of its names will do. Floating-point
// elements are converted to the module's type. All ranks of the mesh's world call it.
//
// UsageError on all ranks, before anything is changed: quantized weights; what is missing, left
// over, or of another shape or type, all of it in one report. UsageError after tensors have
// changed: a file that cannot be read.
void load_hf(torch::nn::Module& module, const std::string& folder, const DeviceMesh& mesh,
             const HfOptions& options = {});

// Writes the module's parameters and buffers (but `without`) to a new folder, as load_hf reads them
// and `transformers` does: model.safetensors, or several files and an index. Where theirs are
// several, they are equal parts. What the files hold does not depend on the ranks. UsageError: the
// folder is there already; rows that cannot be divided so; weights of different types, or only some
// of those, that are to be joined; what save refuses. After an error the
// disk has no part of the new folder, as far as it can be removed.
void export_hf(torch::nn::Module& module, const std::string& folder, const DeviceMesh& mesh,
               const HfOptions& options = {});

}  // namespace tegula
