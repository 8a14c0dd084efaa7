// The idea: a process-wide table of weakly held specs, in shards that lock by themselves. Making a
// spec validates and simplifies it, looks its content up, and takes a reference to what is there or
// puts it there. Counts never rise from 0 again: a spec whose count has reached 0 is as good as
// gone, and a lookup that meets one puts a new object in its place.
#include "tegula/spec/dtensor_spec.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "tegula/base/error.h"
#include "tegula/base/hash.h"
#include "tegula/base/text.h"

namespace tegula {

using namespace inner;

namespace {

std::string describe(const DeviceMesh& mesh, const Placements& placements, const TensorMeta& meta) {
  return to_string(meta) + " on " + to_string(mesh) + " as " + to_string(placements);
}

void check_placement_count(const DeviceMesh& mesh, const Placements& placements,
                           const TensorMeta& meta) {
  if (placements.size() == mesh.ndim()) return;
  throw UsageError("a mesh with " +
                   counted(static_cast<std::int64_t>(mesh.ndim()), "axis", "axes") +
                   " cannot take " +
                   counted(static_cast<std::int64_t>(placements.size()), "placement", "placements"))
      .fact("spec", describe(mesh, placements, meta))
      .hint("give one placement per axis; R leaves an axis out");
}

void check_owed_reductions(const DeviceMesh& mesh, const Placements& placements,
                           const TensorMeta& meta) {
  std::optional<ReduceOp> first;
  for (const Placement& placement : placements) {
    const std::optional<ReduceOp> op = owed_reduction(placement);
    if (!op) continue;
    if (!first) first = op;
    if (commute(*first, *op)) continue;
    throw UsageError("a tensor cannot owe a " + std::string(name_of(*first)) +
                     " over one axis and a " + std::string(name_of(*op)) +
                     " over another: the value would depend on which is done first")
        .fact("spec", describe(mesh, placements, meta))
        .hint("reduce one of them first");
  }
}

// Shard dims counted from the front.
Placements with_positive_dims(const DeviceMesh& mesh, const Placements& placements,
                              const TensorMeta& meta) {
  Placements result = placements;
  for (Placement& placement : result) {
    const Shard* shard = as_shard(placement);
    if (shard == nullptr) continue;
    const std::int64_t ndim = meta.ndim();
    if (shard->dim() < -ndim || shard->dim() >= ndim) {
      throw UsageError("cannot shard dim " + std::to_string(shard->dim()) + " of a tensor with " +
                       counted(ndim, "dim", "dims"))
          .fact("spec", describe(mesh, placements, meta))
          .hint(ndim == 0 ? "a tensor without dims can only be R or P"
                          : "dims are 0 ... " + std::to_string(ndim - 1) + ", or " +
                                std::to_string(-ndim) + " ... -1 from the end");
    }
    if (shard->dim() < 0) placement = Shard(shard->dim() + ndim, shard->cut());
  }
  return result;
}

// One DimCut per dim.
std::vector<DimCut> cut_dims(const DeviceMesh& mesh, const Placements& placements,
                             const ShardOrder& order, const TensorMeta& meta) {
  std::vector<DimCut> cuts;
  cuts.reserve(meta.shape().size());
  auto entry = order.begin();
  for (std::int64_t dim = 0; dim < meta.ndim(); ++dim) {
    std::vector<CutAxis> axes;
    if (entry != order.end() && entry->dim == dim) {
      for (std::size_t axis : entry->axes) {
        axes.push_back({axis, mesh.axes()[axis].size, as_shard(placements[axis])->cut()});
      }
      ++entry;
    }
    cuts.emplace_back(meta.shape()[static_cast<std::size_t>(dim)], std::move(axes));
  }
  return cuts;
}

}  // namespace

struct DTensorSpec::Data {
  Data(const DeviceMesh& the_mesh, Placements the_placements, ShardOrder the_order,
       const TensorMeta& the_meta)
      : mesh(the_mesh.with_owner(nullptr)),
        placements(std::move(the_placements)),
        order(std::move(the_order)),
        meta(the_meta),
        dim_cuts(cut_dims(mesh, placements, order, meta)) {
    take_simplest_cuts();
    Hasher hasher;
    hasher.add(mesh.hash()).add(meta.hash());
    for (const Placement& placement : placements) hasher.add(hash_of(placement));
    for (const ShardOrderEntry& entry : order) hasher.add_all(entry.axes);
    hash = hasher.result();
    is_partial = std::any_of(placements.begin(), placements.end(), [](const Placement& placement) {
      return owed_reduction(placement).has_value();
    });
  }

  // The dims have simplified their cuts; the placements show them.
  void take_simplest_cuts() {
    for (std::size_t dim = 0; dim < dim_cuts.size(); ++dim) {
      for (const CutAxis& axis : dim_cuts[dim].axes()) {
        if (as_shard(placements[axis.axis])->cut() == axis.cut) continue;
        placements[axis.axis] = Shard(static_cast<std::int64_t>(dim), axis.cut);
      }
    }
  }

  bool same_content(const Data& other) const {
    return hash == other.hash && meta == other.meta && placements == other.placements &&
           order == other.order && mesh == other.mesh;
  }

  DeviceMesh mesh;
  Placements placements;
  ShardOrder order;
  TensorMeta meta;
  std::vector<DimCut> dim_cuts;
  std::size_t hash = 0;
  std::uint64_t id = 0;
  bool is_partial = false;
  mutable std::atomic<std::int64_t> references{1};
};

class DTensorSpec::Table {
 public:
  static Table& instance() {
    static Table* table = new Table;  // outlives every spec, those of static objects included
    return *table;
  }

  // The interned equal of `fresh`, with a reference taken for the caller.
  const Data* intern(std::unique_ptr<Data> fresh) {
    Part& part = part_of(*fresh);
    std::lock_guard lock(part.mutex);
    const auto [begin, end] = part.specs.equal_range(fresh->hash);
    for (auto entry = begin; entry != end; ++entry) {
      if (entry->second->same_content(*fresh) && take_reference(*entry->second))
        return entry->second;
    }
    fresh->id = next_id_.fetch_add(1, std::memory_order_relaxed);
    part.specs.emplace(fresh->hash, fresh.get());
    return fresh.release();
  }

  // Called by whoever dropped the last reference.
  void remove(const Data* data) {
    {
      Part& part = part_of(*data);
      std::lock_guard lock(part.mutex);
      const auto [begin, end] = part.specs.equal_range(data->hash);
      for (auto entry = begin; entry != end; ++entry) {
        if (entry->second != data) continue;
        part.specs.erase(entry);
        break;
      }
    }
    delete data;
  }

  std::size_t count() {
    std::size_t total = 0;
    for (Part& part : parts_) {
      std::lock_guard lock(part.mutex);
      total += part.specs.size();
    }
    return total;
  }

 private:
  struct Part {
    std::mutex mutex;
    std::unordered_multimap<std::size_t, const Data*> specs;
  };

  // Fails if the count has reached 0 already: its holder is about to remove it.
  static bool take_reference(const Data& data) {
    std::int64_t count = data.references.load(std::memory_order_relaxed);
    while (count > 0) {
      if (data.references.compare_exchange_weak(count, count + 1, std::memory_order_relaxed))
        return true;
    }
    return false;
  }

  Part& part_of(const Data& data) { return parts_[data.hash % parts_.size()]; }

  std::array<Part, 16> parts_;
  std::atomic<std::uint64_t> next_id_{1};
};

DTensorSpec::DTensorSpec(const DeviceMesh& mesh, const Placements& placements,
                         const TensorMeta& meta) {
  check_placement_count(mesh, placements, meta);
  check_owed_reductions(mesh, placements, meta);
  Placements positive = with_positive_dims(mesh, placements, meta);
  ShardOrder order = default_shard_order(positive);
  data_ = Table::instance().intern(
      std::make_unique<Data>(mesh, std::move(positive), std::move(order), meta));
}

DTensorSpec::DTensorSpec(const DeviceMesh& mesh, const Placements& placements,
                         const ShardOrder& order, const TensorMeta& meta) {
  check_placement_count(mesh, placements, meta);
  check_owed_reductions(mesh, placements, meta);
  Placements positive = with_positive_dims(mesh, placements, meta);
  check_shard_order(order, positive);
  data_ = Table::instance().intern(std::make_unique<Data>(mesh, std::move(positive), order, meta));
}

DTensorSpec::DTensorSpec(const DTensorSpec& other) noexcept : data_(other.data_) {
  if (data_ != nullptr) data_->references.fetch_add(1, std::memory_order_relaxed);
}

DTensorSpec::DTensorSpec(DTensorSpec&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)) {}

DTensorSpec& DTensorSpec::operator=(DTensorSpec other) noexcept {
  std::swap(data_, other.data_);
  return *this;
}

DTensorSpec::~DTensorSpec() {
  if (data_ == nullptr) return;  // moved from
  if (data_->references.fetch_sub(1, std::memory_order_acq_rel) == 1)
    Table::instance().remove(data_);
}

const DeviceMesh& DTensorSpec::mesh() const { return data_->mesh; }
const Placements& DTensorSpec::placements() const { return data_->placements; }
const ShardOrder& DTensorSpec::shard_order() const { return data_->order; }
const TensorMeta& DTensorSpec::meta() const { return data_->meta; }
const std::vector<DimCut>& DTensorSpec::dim_cuts() const { return data_->dim_cuts; }
std::size_t DTensorSpec::hash() const { return data_->hash; }
std::uint64_t DTensorSpec::id() const { return data_->id; }

bool DTensorSpec::is_replicated() const {
  for (const Placement& placement : placements()) {
    if (!is_replicate(placement)) return false;
  }
  return true;
}

bool DTensorSpec::is_sharded() const { return !shard_order().empty(); }

bool DTensorSpec::is_partial() const { return data_->is_partial; }

bool DTensorSpec::has_default_order() const {
  return shard_order() == default_shard_order(placements());
}

DTensorSpec DTensorSpec::with_placements(const Placements& placements) const {
  return {mesh(), placements, meta()};
}

DTensorSpec DTensorSpec::with_meta(const TensorMeta& meta) const {
  return {mesh(), placements(), shard_order(), meta};
}

std::size_t interned_spec_count() { return DTensorSpec::Table::instance().count(); }

}  // namespace tegula
