// The groups of benchmarks, one file each.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/report.h"

namespace tegula::bench {

// Which cases of a group are measured, and how often.
struct Selection {
  std::string only = {};         // part of their names; empty: all
  std::optional<int> runs = {};  // in processes of their own; none: as many as the group thinks

  bool has(const std::string& name) const { return name.find(only) != std::string::npos; }
  bool is_default() const { return only.empty() && !runs; }
};

// Meshes, placements, specs: arithmetic alone.
std::vector<Measurement> run_core();

// The planner, asked for the first time and again.
std::vector<Measurement> run_plan();

// Collectives between processes, beside gloo's, MPI's (if it is there) and a memcpy.
std::vector<Measurement> run_comm();

// Single ops on small distributed tensors, beside the same on plain ones.
std::vector<Measurement> run_dispatch();

// Checkpoints on this disk, in the current folder, by two ranks, beside plain writes and reads.
std::vector<Measurement> run_io();

// Operators along cut dims, between two ranks, beside the same on the whole.
std::vector<Measurement> run_ops();

// Ops, optimizers and models from Python: bench/peers/python.py, which measures plain tensors, too.
std::vector<Measurement> run_python();

// Redistributions between two ranks, beside the bare collectives.
std::vector<Measurement> run_redistribute();

// Texts continued by a small Llama on two ranks (examples/llama.cpp).
std::vector<Measurement> run_serve();

// Steps of training small models on two ranks, beside plain libtorch with two threads.
std::vector<Measurement> run_train(const Selection& selection);

// Runs bench/peers/<group>.py under the Python of TEGULA_PYTHON (python3 if unset), which prints
// measurements as JSON lines; a group without such a script measures its peers itself. A selection
// that is not the default one is given to the script as its arguments. UsageError if the script
// fails.
std::vector<Measurement> run_peer(const std::string& group, const Selection& selection);

}  // namespace tegula::bench
