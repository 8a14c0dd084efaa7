// The launcher: starts a program as the ranks of a job and stays with them to the end.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tegula::cli {

struct RunOptions {
  int ranks = 1;                     // on this host
  std::string backend;               // "shm", "gloo", "mpi"; empty: Tegula chooses
  int nodes = 1;                     // hosts; each runs this launcher
  int node_rank = 0;                 // which of them this is
  std::string rendezvous;            // host:port of node 0; needed for several nodes
  std::optional<int> timeout;        // seconds a rank waits for another
  int max_restarts = 0;              // of the whole group, when a rank fails
  std::vector<std::string> command;  // the program and its arguments
};

// Every line of a rank's output is printed with its rank in front. If that goes to a terminal, the
// ranks find TEGULA_TERMINAL=1 in their environment, and a line that ends with a carriage return is
// overwritten by the next one. When a rank fails, the others
// are stopped, and what the first failing rank wrote to stderr is printed once more, last and
// alone. SIGINT, SIGTERM and SIGHUP are passed on to the ranks; ranks do not outlive the launcher.
//
// Returns 0 if all ranks did, else the first failing rank's exit code, 128 + n if signal n killed
// it (or us). UsageError if the options do not fit each other.
int run(const RunOptions& options);

}  // namespace tegula::cli
