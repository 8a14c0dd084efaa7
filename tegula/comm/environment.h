// What the environment says about this process's place in a job.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

namespace tegula::inner::comm {

struct Place {
  std::string launcher = "none";  // "tegula run", "torchrun", "Open MPI", "MPICH", "Slurm"
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  // The same on all ranks of the job on this host, and on no other job's. It holds the secret, so
  // that it cannot be guessed where there is one, and is not to be shown.
  std::string job;
  std::string secret;  // the same on all hosts; empty: none
  // Where ranks of several hosts find each other; port 0: not said.
  std::string store_host;
  int store_port = 0;
  // The launcher serves the store itself; rank 0 is a client too.
  bool launcher_has_store = false;
  std::string backend;  // empty: not said
  std::optional<std::chrono::milliseconds> timeout;
};

// Looks up a variable; null if it is not set.
using Variables = std::function<const char*(const char* name)>;

// Tried in order: tegula run, torchrun, Open MPI, MPICH, Slurm; else one rank alone. UsageError if
// a variable is not a number, the numbers do not fit each other, or the secret is not one.
Place place_in(const Variables& variables);
// The process's own environment.
Place place_in_environment();

}  // namespace tegula::inner::comm
