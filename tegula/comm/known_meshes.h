// The meshes that one rank works on, with its groups along their axes.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "tegula/comm/group_state.h"
#include "tegula/mesh/device_mesh.h"

namespace tegula::inner::comm {

struct KnownMesh {
  explicit KnownMesh(const DeviceMesh& of) : mesh(of.with_owner(nullptr)), groups(of.ndim()) {}

  DeviceMesh mesh;  // without its owner, which would keep itself alive
  // One per axis, each in WorldState::groups; null: not asked for yet.
  std::vector<std::atomic<const std::shared_ptr<GroupState>*>> groups;
};

// Finding one takes no lock. Any thread.
class KnownMeshes {
 public:
  // Room for this many; they stay as long as the table does.
  static constexpr std::size_t kRoom = 256;

  KnownMeshes() = default;
  ~KnownMeshes();
  KnownMeshes(const KnownMeshes&) = delete;
  KnownMeshes& operator=(const KnownMeshes&) = delete;

  // Null if it is new and there is no room for it.
  KnownMesh* find_or_add(const DeviceMesh& mesh);

 private:
  std::mutex mutex_;  // held to add one
  std::array<std::atomic<KnownMesh*>, kRoom> table_{};
};

}  // namespace tegula::inner::comm
