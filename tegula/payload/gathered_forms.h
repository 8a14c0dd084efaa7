// GatheredForms: what tensors that are gathered when they are used (payload/policies.h, Gathering)
// were gathered to, kept for later uses: a weight that is used many times is gathered once, and one
// that backward uses soon after forward is still there.
//
// All ranks use the same tensors in the same order, so that all of them keep the same: what goes
// depends on the order of uses and on sizes that all ranks know, not on time, on this rank's tile,
// or on who else holds a tensor. The least recently used ones go first. Where that fails (a user
// writes to the tiles of some ranks alone), ranks gather different tensors, which is an error of
// all of them at the gather: they agree on which one it is.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "tegula/comm/world.h"
#include "tegula/payload/write_count.h"
#include "tegula/redistribute/async_tile.h"
#include "tegula/spec/dtensor_spec.h"

namespace tegula::inner {

class Payload;
struct Gathering;

// Of one rank: world.part<GatheredForms>(). Any thread, one after the other on all ranks alike.
class GatheredForms {
 public:
  // The payload's tile by `to`, gathered unless it is remembered. A transposed view of a tensor
  // finds what was gathered for the tensor itself.
  at::Tensor find_or_gather(const Payload& payload, const DTensorSpec& to);
  // To be called when this memory was written to.
  void forget(const WriteCount& memory);

  // Bytes per rank of what is remembered.
  std::int64_t bytes() const;

 private:
  // A tensor as it lies in memory, its dims from the outermost to the innermost: views that only
  // order its dims otherwise have one.
  struct Source {
    std::shared_ptr<WriteCount> memory;
    at::Tensor tile;
    DTensorSpec from, to;
  };
  struct Form {
    std::shared_ptr<WriteCount> memory;
    DTensorSpec from, to;
    std::uint64_t writes;  // when it was gathered
    AsyncTile tile;
    std::int64_t bytes;  // of the whole, over the ranks that it is still cut over
    bool is_kept;
  };
  // A source that is held by nobody here.
  struct Later {
    explicit Later(const Source& source);
    std::optional<Source> source() const;  // none: it is gone
    std::weak_ptr<WriteCount> memory;
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    std::int64_t offset;
    std::vector<std::int64_t> sizes, strides;
    DTensorSpec from, to;
  };
  using Name = std::pair<std::uint64_t, std::uint64_t>;  // the memory's number, and the id of `to`

  void begin_epoch(const World& world);
  std::uint64_t number_of(const std::shared_ptr<WriteCount>& memory);
  Form* find(const Source& source);
  Form& gather(const World& world, const Source& source, const Gathering& policy);
  void gather_next(const World& world, const Source& used, const Gathering& policy);
  void make_room(std::int64_t bytes, std::int64_t most);

  mutable std::mutex mutex_;
  std::list<Form> forms_;  // the least recently used one first
  // Memories in the order of their first use, the same on all ranks.
  std::map<std::weak_ptr<WriteCount>, std::uint64_t, std::owner_less<>> numbers_;
  std::uint64_t next_number_ = 1;
  std::map<Name, Later> after_;  // what was used after it, the last time
  std::optional<Name> last_used_;
  std::uint32_t epoch_ = 0;
};

}  // namespace tegula::inner
