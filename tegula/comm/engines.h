// The engines beyond shm. Each is one file that CMake picks; where it is not there, a file of the
// same functions stands in whose make_ throws a UsageError that says what to install.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "tegula/comm/engine.h"

namespace tegula::inner::comm {

struct EngineOptions {
  std::string group;                      // its name and ranks, for errors
  int index = 0;                          // my place among the members
  int size = 1;                           // how many members there are
  int local_rank = 0;                     // mine on this host
  std::vector<int> ranks;                 // world ranks of the members
  c10::intrusive_ptr<c10d::Store> store;  // the group's own; unused by mpi and fake
  std::string rendezvous_host;            // empty: all members are on this host
  std::shared_ptr<void> communicator;     // an MPI_Comm; null: MPI_COMM_WORLD
  WhyTheWorldFailed why_failed;           // empty: imagined ranks
  std::chrono::milliseconds timeout{300'000};
};

// gloo: SIGPIPE is ignored from then on, if the program has not set a handler of its own.
// All members call the same one. CommError if they do not find each other.
std::shared_ptr<Engine> make_gloo_engine(const EngineOptions& options);
std::shared_ptr<Engine> make_mpi_engine(const EngineOptions& options);
std::shared_ptr<Engine> make_nccl_engine(const EngineOptions& options);
// Moves nothing: results have the right shapes and undefined values.
std::shared_ptr<Engine> make_fake_engine();

}  // namespace tegula::inner::comm
