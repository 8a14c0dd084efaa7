// The ranks of a job and the groups among them.
//
//   int main() {
//     tegula::World world = tegula::World::from_env();      // tegula run -n 4 ./prog
//     at::Tensor sum = world.group().all_reduce(x, tegula::ReduceOp::Sum);
//   }
//
//   tegula::run_ranks(4, [](tegula::World& world) { ... });   // ranks as threads, for tests
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <typeindex>
#include <vector>

#include "tegula/comm/group.h"
#include "tegula/comm/world_head.h"
#include "tegula/mesh/device_mesh.h"

namespace tegula {

class World;

namespace inner::comm {
struct WorldState;  // begins with a WorldHead
WorldState& state_of(const World& world);
}  // namespace inner::comm

struct WorldOptions {
  // "shm", "gloo", "mpi", "nccl"; empty: what the launcher said, else shm for groups on one host
  // and gloo for the others.
  std::string backend;
  // How long a rank waits for another; empty: what the launcher said, else five minutes.
  std::optional<std::chrono::milliseconds> timeout;
};

struct GroupOptions {
  std::string name;     // for errors; groups of other names are other groups
  std::string backend;  // empty: the world's
  std::optional<std::chrono::milliseconds> timeout;
};

// A handle; copies mean the same world. When the last one goes, this rank leaves: ranks that still
// wait for it throw. A process can hold several worlds.
//
// An error that one rank alone meets in an op on DTensors (an index out of range in its tile, no
// memory, an exception in a custom op) is thrown there at once, and over shm by the others at their
// next communication with it, with its rank, op and specs. An error that all ranks meet and catch
// alike is harmless. Exceptions of the user's own code are the user's, but for those of
// local_map's function: the others learn of them when the rank recovers, leaves or ends.
class World {
 public:
  // This process's place as the launcher says it (environment.h); alone if there is none. All ranks
  // of the job call it, and as often; they begin with rank 0's seed (random/random.h). CommError if
  // they do not find each other before the timeout.
  static World from_env(const WorldOptions& options = {});
  static World alone();
  // The ranks of an MPI communicator; include tegula/comm/mpi.h, which says more.
  template <class Communicator>
  static World from_mpi(Communicator communicator, const WorldOptions& options = {});
  // One rank of an imagined world of any size: shapes only, nothing is sent.
  static World fake(int size, int rank = 0);

  int rank() const { return head_->rank; }
  int size() const { return head_->size; }
  // Among the ranks of this host.
  int local_rank() const;
  int local_size() const;
  std::chrono::milliseconds timeout() const;
  // The backend of groups that ask for none; empty: by where their ranks are.
  const std::string& backend() const;

  // All ranks.
  Group group() const;
  // These ranks, in this order; mine among them. Made at the first call and kept: only its members
  // take part in that, when each first calls it. UsageError for ranks that repeat or do not exist.
  Group group(const std::vector<int>& ranks, const GroupOptions& options = {}) const;

  // A mesh over ranks of this world: all of them in order, or the listed ones. UsageError if the
  // sizes need more ranks than there are, a listed rank does not exist, or this libtorch or host
  // has no device of the mesh's type ("meta" is for imagined worlds).
  DeviceMesh mesh(std::vector<MeshAxis> axes, std::vector<std::int64_t> ranks = {}) const;
  // The same mesh as one of this world's (an interned spec's belongs to none). UsageError as above.
  DeviceMesh mesh(const DeviceMesh& mesh) const;
  // The world that made the mesh. UsageError if none did.
  static World of(const DeviceMesh& mesh);
  // My group along an axis of a mesh, made at the first call as above, over the backend and with
  // the option "timeout" (seconds) that the axis asks for. UsageError if this rank is not in the
  // mesh.
  Group group(const DeviceMesh& mesh, std::string_view axis) const;
  Group group(const DeviceMesh& mesh, std::size_t axis) const;

  // Breaks all groups of this world on this host, those that are made later included: calls of all
  // ranks throw `reason`. Waits for nobody, not even for a group that another thread is making.
  void abort(const std::string& reason) const;

  // Makes the world usable again after an error, a mismatch, a refused call or a timeout, if all of
  // its ranks are alive. All ranks call it, at whatever call each of them met the error; a rank
  // that still waits for another throws as soon as one has called it. No thread of the rank may use
  // the world meanwhile. Then a new epoch begins: calls of the old one that are under way have
  // ended with an error and cannot change anything any more, groups are made anew when they are
  // next used (handles stay valid), what was aborted is not any more, and ranks agree on random
  // numbers again (by a new seed that follows from rank 0's). Tensors are as they were, each rank's
  // tile for itself: what an op was writing when it failed has to be written again.
  //
  // Over shm and gloo; gloo ranks notice a recovery of others when these let go of their
  // connections. Over mpi a world ends with its first error. CommError if a group of this world
  // uses mpi, a rank is gone, or one does not come within the timeout; the call may be repeated.
  void recover() const;
  // How often it has recovered.
  std::uint32_t epoch() const { return head_->epoch.load(std::memory_order_relaxed); }

  // What another part of the library keeps with this rank, one of each type: made by T() at the
  // first call, gone with the world. Later calls read a pointer.
  template <class T>
  T& part() const {
    const std::size_t slot = inner::comm::slot_of<T>();
    void* held = slot < inner::comm::WorldHead::kSlots
                     ? head_->slots[slot].load(std::memory_order_acquire)
                     : nullptr;
    if (held == nullptr) held = part(slot, typeid(T), [] { return std::make_shared<T>(); });
    return *static_cast<T*>(held);
  }
  bool operator==(const World& other) const { return head_ == other.head_; }

  // The head of a WorldState.
  explicit World(std::shared_ptr<inner::comm::WorldHead> state) : head_(std::move(state)) {}

 private:
  friend class CommLog;
  friend inner::comm::WorldState& inner::comm::state_of(const World& world);
  inner::comm::WorldState& state() const;
  void* part(std::size_t slot, std::type_index type,
             const std::function<std::shared_ptr<void>()>& make) const;

  std::shared_ptr<inner::comm::WorldHead> head_;
};

// Runs `body` as `ranks` ranks, each on a thread of its own with one torch thread, and waits for
// all. If one throws, the calls of the others end with an error, and what it threw is thrown here:
// an Error with the fact "rank", anything else as a std::runtime_error that names the rank.
void run_ranks(int ranks, const std::function<void(World&)>& body,
               const WorldOptions& options = {});

}  // namespace tegula
