// The launcher: starts a program as the ranks of a job and stays with them to the end.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tegula::cli {

struct RunOptions {
  int ranks = 1;                     // on this host
  std::string backend;               // "shm", "gloo", "mpi" (one node); empty: Tegula chooses
  int nodes = 1;                     // hosts; each runs this launcher
  int node_rank = 0;                 // which of them this is
  std::string rendezvous;            // host:port or [address]:port of node 0, for several nodes
  std::string secret_file;           // holds the job's secret; empty: the environment may
  std::optional<int> timeout;        // seconds a rank waits for another
  int max_restarts = 0;              // of the whole group, when a rank fails (one node)
  std::vector<std::string> command;  // the program and its arguments
};

// Every line of a rank's output is printed with its rank in front; a line of more than 64 KiB
// becomes several. If that goes to a terminal, the ranks find TEGULA_TERMINAL=1 in their
// environment, and a line that ends with a carriage return is overwritten by the next one. When a
// rank fails, the others are stopped, and what the first failing rank wrote to stderr is printed
// once more, last and alone. SIGINT, SIGTERM and SIGHUP are passed on to the ranks, and those that
// have not ended three seconds later are killed; ranks do not outlive the launcher.
//
// The ranks find in their environment: their places (base/launch.h); the job's secret, which is the
// given one, else on one node a random one; and OMP_NUM_THREADS, cores / ranks unless it is set.
//
// Returns 0 if all ranks did, else the first failing rank's exit code, 128 + n if signal n killed
// it (or us). UsageError if the options do not fit each other.
int run(const RunOptions& options);

}  // namespace tegula::cli
