// One way to train: which parallelisms, on what, how. A value that prints and parses:
//
//   transformer dp=2 fsdp=2 zero=3 tp=2 sp=2 loss=2 uneven tied accumulate=3 f64 clip processes
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tegula::composition {

enum class Net : std::uint8_t { Transformer, Convolutions };
// Whether the ranks' shards of batch, sequence, heads, features and vocabulary have equal sizes;
// with Empty, one rank of each axis has nothing.
enum class Cuts : std::uint8_t { Even, Uneven, Empty };
// What is computed in; parameters are f32 where that is bf16, and so are reductions of gradients.
enum class Numbers : std::uint8_t { F64, F32, BF16 };
enum class Ranks : std::uint8_t { Threads, Processes };

struct Settings {
  Net net = Net::Transformer;
  // The sizes of the axes; 0: not used.
  int dp = 0;    // replicas of the model, each with some of the samples
  int fsdp = 0;  // the same, parameters, gradients and state cut as `zero` says
  int zero = 0;  // 1 to 3
  // These three are about one axis, so they have one size.
  int tp = 0;    // layers cut by features
  int sp = 0;    // activations between blocks cut along the sequence, or by rows of images
  int loss = 0;  // the classes of head and cross entropy cut
  Cuts cuts = Cuts::Even;
  bool tied = false;
  int accumulate = 1;  // micro-batches in a step
  Numbers numbers = Numbers::F64;
  bool clip = false;
  Ranks ranks = Ranks::Threads;

  int data_ranks() const;   // among how many the samples are cut
  int model_ranks() const;  // the size of the axis of tp, sp and loss
  int size() const { return data_ranks() * model_ranks(); }
  bool operator==(const Settings&) const = default;
};

std::string to_string(const Settings& settings);
// The modes alone: "dp=2 fsdp=2 zero=3 tp=2".
std::string modes_of(const Settings& settings);
// Law: parse_settings(to_string(s)) == s. UsageError for what is none.
Settings parse_settings(std::string_view text);

}  // namespace tegula::composition
