// A group's calls over any c10d::Backend that moves bytes between CPU tensors: gloo, mpi. Engines
// differ in dtypes, ops and per-rank sizes they know; this one asks them only to exchange bytes
// (alltoall_base, _allgather_base, broadcast, send, recv, barrier) and reduces by itself, so that
// results have the same bits as with the shm engine.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tegula/comm/engine.h"

namespace tegula::inner::comm {

struct C10dOptions {
  std::string engine;      // its name, for users
  std::string group;       // its name and ranks, for errors
  std::vector<int> ranks;  // of the world, in the group's order
  std::chrono::milliseconds timeout{300'000};
  WhyTheWorldFailed why_failed;  // told instead of what the backend says; may be empty
};

// An error of the backend becomes a CommError; later calls throw it again at once. What the network
// may still touch then is parked. When the last handle goes, messages under way end with an error;
// if collectives are under way, which a backend cannot be made to give up, the engine itself stays
// until the process ends.
std::shared_ptr<Engine> make_c10d_engine(c10::intrusive_ptr<c10d::Backend> backend,
                                         C10dOptions options);

// Keeps them until the process ends.
void park(const std::vector<at::Tensor>& memory, c10::intrusive_ptr<c10d::Work> work = nullptr);

}  // namespace tegula::inner::comm
