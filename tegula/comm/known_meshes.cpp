// A table by hash with a short search from where the hash points. Entries are only ever added: what
// a reader looks for stands before the first empty place, or is just being added there, and then
// the reader looks again under the lock.
#include "tegula/comm/known_meshes.h"

namespace tegula::inner::comm {
namespace {

constexpr std::size_t kLongestSearch = 16;

}  // namespace

KnownMeshes::~KnownMeshes() {
  for (const std::atomic<KnownMesh*>& known : table_) delete known.load();
}

KnownMesh* KnownMeshes::find_or_add(const DeviceMesh& mesh) {
  const std::size_t hash = mesh.hash();
  std::unique_lock<std::mutex> lock(mutex_, std::defer_lock);
  for (std::size_t step = 0; step < kLongestSearch; ++step) {
    std::atomic<KnownMesh*>& entry = table_[(hash + step) % kRoom];
    KnownMesh* known = entry.load(std::memory_order_acquire);
    if (known == nullptr) {
      if (!lock) lock.lock();
      known = entry.load(std::memory_order_acquire);
    }
    if (known == nullptr) {
      known = std::make_unique<KnownMesh>(mesh).release();
      entry.store(known, std::memory_order_release);
      return known;
    }
    if (known->mesh == mesh) return known;
  }
  return nullptr;
}

}  // namespace tegula::inner::comm
