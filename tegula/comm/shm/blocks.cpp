#include "tegula/comm/shm/blocks.h"

namespace tegula::inner::shm {
namespace {

// Mappings of peers' blocks that are kept for the next call. Places only grow: the first one is the
// oldest.
constexpr std::size_t kKeptMappings = 64;

}  // namespace

Blocks::~Blocks() {
  for (const auto& [memory, area] : owned_) board_->free(area);
}

std::byte* Blocks::allocate(std::size_t bytes) {
  const Area area = board_->allocate(bytes);
  const std::lock_guard<std::mutex> lock(mutex_);
  owned_.emplace(area.memory, area);
  return area.memory;
}

bool Blocks::free(std::byte* memory) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = owned_.find(memory);
  if (found == owned_.end()) return false;
  board_->free(found->second);
  owned_.erase(found);
  retired_.erase(memory);
  return true;
}

Blocks::Owned::const_iterator Blocks::find(const std::byte* memory) const {
  auto next = owned_.upper_bound(memory);
  if (next == owned_.begin()) return owned_.end();
  --next;
  return memory < next->first + next->second.bytes ? next : owned_.end();
}

std::optional<Spot> Blocks::spot_of(const std::byte* memory) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = find(memory);
  if (found == owned_.end()) return std::nullopt;
  return Spot{found->second.place, found->second.bytes,
              static_cast<std::uint64_t>(memory - found->first)};
}

void Blocks::retire(const std::byte* memory) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = find(memory);
  if (found != owned_.end()) retired_.insert(found->first);
}

bool Blocks::is_retired(const std::byte* memory) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return retired_.contains(memory);
}

std::shared_ptr<const Area> Blocks::map(const Spot& spot) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::shared_ptr<const Area>& kept = mapped_[spot.block];
  if (!kept) {
    try {
      kept = {new Area(board_->map(spot.block, spot.bytes)), [board = board_](const Area* area) {
                board->unmap(*area);
                delete area;
              }};
    } catch (...) {
      mapped_.erase(spot.block);
      throw;
    }
  }
  const std::shared_ptr<const Area> found = kept;
  if (mapped_.size() > kKeptMappings) mapped_.erase(mapped_.begin());
  return found;
}

}  // namespace tegula::inner::shm
