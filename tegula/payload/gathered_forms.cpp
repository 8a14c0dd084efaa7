// The idea: a list of what was gathered, in the order of its last use. A transposed view is brought
// to the order in which its dims lie in memory, gathered or found so, and transposed back.
#include "tegula/payload/gathered_forms.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "tegula/bridge/torch_types.h"
#include "tegula/comm/agreements.h"
#include "tegula/payload/guards.h"
#include "tegula/payload/payload.h"
#include "tegula/redistribute/routes.h"
#include "tegula/spec/placed_otherwise.h"

namespace tegula::inner {
namespace {

// Dims from the outermost to the innermost.
std::vector<std::int64_t> memory_order(const Shape& stride) {
  std::vector<std::int64_t> order(stride.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return stride[static_cast<std::size_t>(a)] > stride[static_cast<std::size_t>(b)];
  });
  return order;
}

std::vector<std::int64_t> inverse(const std::vector<std::int64_t>& order) {
  std::vector<std::int64_t> places(order.size());
  for (std::size_t k = 0; k < order.size(); ++k) {
    places[static_cast<std::size_t>(order[k])] = static_cast<std::int64_t>(k);
  }
  return places;
}

std::int64_t bytes_by(const DTensorSpec& to) {
  std::int64_t parts = 1;
  for (std::size_t axis = 0; axis < to.placements().size(); ++axis) {
    if (as_shard(to.placements()[axis])) parts *= to.mesh().axes()[axis].size;
  }
  return (to.meta().numel() * size_of(to.meta().dtype()) + parts - 1) / parts;
}

// Whether it is all elements of its memory, as they are, in some order of dims. Other views are not
// told apart: parts, numbers read as others, conjugates.
bool shows_all_of_its_memory(const Payload& payload) {
  const TensorMeta& meta = payload.spec().meta();
  const std::shared_ptr<WriteCount> memory = payload.writes();
  const at::Tensor tile = payload.tile();
  return memory->elements() == meta.numel() && memory->dtype() == meta.dtype() &&
         meta == dense(meta) && !tile.is_conj() && !tile.is_neg();
}

Route route_of(const World& world, const DTensorSpec& from, const DTensorSpec& to) {
  return world.part<Routes>().find_or_make(world, from, to, {});
}

}  // namespace

GatheredForms::Later::Later(const Source& source)
    : memory(source.memory),
      storage(source.tile.storage().getWeakStorageImpl()),
      offset(source.tile.storage_offset()),
      sizes(source.tile.sizes().vec()),
      strides(source.tile.strides().vec()),
      from(source.from),
      to(source.to) {}

std::optional<GatheredForms::Source> GatheredForms::Later::source() const {
  std::shared_ptr<WriteCount> counted = memory.lock();
  c10::intrusive_ptr<c10::StorageImpl> held = storage.lock();
  if (!counted || !held) return std::nullopt;
  const auto options =
      at::TensorOptions(scalar_type_of(from.meta().dtype())).device(held->device());
  const at::Tensor tile =
      at::empty({0}, options).set_(c10::Storage(std::move(held)), offset, sizes, strides);
  return Source{std::move(counted), tile, from, to};
}

at::Tensor GatheredForms::find_or_gather(const Payload& payload, const DTensorSpec& to) {
  const World& world = payload.world();
  const Gathering& policy = *payload.gathering();
  const std::vector<std::int64_t> order = memory_order(to.meta().stride());
  const Source source{payload.writes(), payload.resolved_tile().permute(order),
                      permuted(payload.spec().with_meta(to.meta()), order), permuted(to, order)};
  if (!shows_all_of_its_memory(payload)) {
    return route_of(world, source.from, source.to).run(source.tile).permute(inverse(order));
  }
  const std::lock_guard lock(mutex_);
  begin_epoch(world);
  Form* form = find(source);
  if (!form) form = &gather(world, source, policy);
  const at::Tensor tile = form->tile.wait();
  if (policy.prefetches) gather_next(world, source, policy);
  return tile.permute(inverse(order));
}

void GatheredForms::forget(const WriteCount& memory) {
  const std::lock_guard lock(mutex_);
  forms_.remove_if([&](const Form& form) { return form.memory.get() == &memory; });
}

std::int64_t GatheredForms::bytes() const {
  const std::lock_guard lock(mutex_);
  return std::accumulate(forms_.begin(), forms_.end(), std::int64_t{0},
                         [](std::int64_t sum, const Form& form) { return sum + form.bytes; });
}

// An error may have come over some ranks before they could remember.
void GatheredForms::begin_epoch(const World& world) {
  if (epoch_ == world.epoch()) return;
  epoch_ = world.epoch();
  forms_.clear();
  after_.clear();
  last_used_.reset();
  numbers_.clear();
  next_number_ = 1;
}

std::uint64_t GatheredForms::number_of(const std::shared_ptr<WriteCount>& memory) {
  const auto found = numbers_.find(memory);
  if (found != numbers_.end()) return found->second;
  std::erase_if(numbers_, [](const auto& one) { return one.first.expired(); });
  return numbers_.emplace(memory, next_number_++).first->second;
}

// The form becomes the one that was used last.
GatheredForms::Form* GatheredForms::find(const Source& source) {
  const auto found = std::find_if(forms_.begin(), forms_.end(), [&](const Form& form) {
    return form.memory == source.memory && form.from == source.from && form.to == source.to;
  });
  if (found == forms_.end()) return nullptr;
  if (found->writes != source.memory->count(source.tile)) {
    forms_.erase(found);
    return nullptr;
  }
  forms_.splice(forms_.end(), forms_, found);
  return &forms_.back();
}

GatheredForms::Form& GatheredForms::gather(const World& world, const Source& source,
                                           const Gathering& policy) {
  const std::int64_t bytes = bytes_by(source.to);
  make_room(bytes, policy.most_bytes);
  const std::uint64_t writes = source.memory->count(source.tile);
  const Route route = route_of(world, source.from, source.to);
  const DeviceMesh& mesh = source.to.mesh();
  comm::agree(world, mesh.ranks(mesh.fiber_of(world.rank()).value_or(0)), number_of(source.memory),
              "which parameter is gathered");
  // a copy, so that a write to the shard cannot race with what is on its way
  AsyncTile tile =
      policy.prefetches ? route.start(source.tile.clone()) : AsyncTile(route.run(source.tile));
  return forms_.emplace_back(
      Form{source.memory, source.from, source.to, writes, std::move(tile), bytes, policy.is_kept});
}

void GatheredForms::gather_next(const World& world, const Source& used, const Gathering& policy) {
  const Name name{number_of(used.memory), used.to.id()};
  if (last_used_ == name) return;
  if (last_used_) after_.insert_or_assign(*last_used_, Later(used));
  last_used_ = name;
  const auto next = after_.find(name);
  if (next == after_.end()) return;
  const std::optional<Source> source = next->second.source();
  if (!source) {
    after_.erase(next);
  } else if (!find(*source)) {
    gather(world, *source, policy);
  }
}

void GatheredForms::make_room(std::int64_t bytes, std::int64_t most) {
  // what is kept for a tensor that nobody has any more; it does not count below
  forms_.remove_if([](const Form& form) { return form.is_kept && form.memory.use_count() == 1; });
  if (KeepGathered::is_on()) return;
  std::int64_t held = bytes;
  for (const Form& form : forms_) held += form.is_kept ? 0 : form.bytes;
  for (auto form = forms_.begin(); form != forms_.end() && held > most;) {
    if (form->is_kept) {
      ++form;
      continue;
    }
    held -= form->bytes;
    form = forms_.erase(form);
  }
}

}  // namespace tegula::inner
