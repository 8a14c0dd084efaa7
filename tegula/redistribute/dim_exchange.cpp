// The idea: parts for the same receiver are joined along the dim, so that one all_to_all that cuts
// and joins along the dim carries them. Cost: what the rank lacks, once.
#include "tegula/redistribute/dim_exchange.h"

#include <ATen/ATen.h>

#include <string>

#include "tegula/bridge/torch_types.h"

namespace tegula::inner {
namespace {

// Where the ranks of a shard are; 0 along axes that do not cut the dim.
Coordinate coordinate_of(const DimCut& cut, std::int64_t shard, std::size_t axes) {
  Coordinate at(axes, 0);
  const std::vector<std::int64_t> position = cut.position_of(shard);
  for (std::size_t k = 0; k < position.size(); ++k) at[cut.axes()[k].axis] = position[k];
  return at;
}

WantedIntervals wanted_by_all(const DTensorSpec& spec, const DimCut& cut, const WantedAt& wanted) {
  WantedIntervals all;
  for (std::int64_t shard = 0; shard < cut.shard_count(); ++shard) {
    all.push_back(wanted(coordinate_of(cut, shard, spec.mesh().ndim())));
  }
  return all;
}

std::int64_t total(const std::vector<Interval>& parts) {
  std::int64_t sum = 0;
  for (const Interval& part : parts) sum += part.size;
  return sum;
}

at::Tensor like(const at::Tensor& tensor, std::int64_t dim, std::int64_t size,
                const at::Scalar& value) {
  std::vector<std::int64_t> shape = tensor.sizes().vec();
  shape[static_cast<std::size_t>(dim)] = size;
  return at::empty(shape, tensor.options().memory_format(tensor.suggest_memory_format()))
      .fill_(value);
}

}  // namespace

Group group_along(const World& world, const DeviceMesh& mesh, const DimCut& cut) {
  if (cut.axes().size() == 1) return world.group(mesh, cut.axes().front().axis);
  std::vector<std::string> names;
  for (const CutAxis& axis : cut.axes()) names.push_back(mesh.axes()[axis.axis].name);
  return world.group(mesh.slice(names).flatten(), 0);
}

DimExchange::DimExchange(const World& world, const DTensorSpec& spec, std::int64_t dim,
                         const WantedAt& wanted)
    : dim_(dim) {
  const DimCut& cut = spec.dim_cuts()[static_cast<std::size_t>(dim)];
  const Coordinate at = spec.mesh().coordinate_of(world.rank()).value();
  const std::int64_t shard = shard_at(cut, at);
  shard_ = static_cast<std::size_t>(shard);
  tile_size_ = cut.local_size(at);
  plan_ = interval_exchange(cut, wanted_by_all(spec, cut, wanted), shard);
  if (plan_.communicates) group_ = group_along(world, spec.mesh(), cut);
}

at::Tensor DimExchange::sent_around(const at::Tensor& tensor, const Parts& sent,
                                    const Parts& received) const {
  std::vector<at::Tensor> parts{tensor.narrow(dim_, 0, 0)};
  Group::Sizes sent_sizes(sent.size(), 0);
  Group::Sizes received_sizes(sent.size(), 0);
  for (std::size_t peer = 0; peer < sent.size(); ++peer) {
    if (peer == shard_) continue;
    for (const Interval& part : sent[peer]) {
      parts.push_back(tensor.narrow(dim_, part.begin, part.size));
    }
    sent_sizes[peer] = total(sent[peer]);
    received_sizes[peer] = total(received[peer]);
  }
  return group_->all_to_all(at::cat(parts, dim_), dim_, dim_, sent_sizes, received_sizes);
}

at::Tensor DimExchange::fetch(const at::Tensor& tile, const at::Scalar& outside) const {
  const std::vector<Interval>& kept = plan_.sent[shard_];
  const std::vector<Interval>& kept_at = plan_.received[shard_];
  if (!group_ && kept.size() == 1 && kept_at.front() == Interval{0, plan_.size}) {
    return tile.narrow(dim_, kept.front().begin, plan_.size);
  }
  const at::Tensor result = like(tile, dim_, plan_.size, outside);
  const auto put = [&](const Interval& place, const at::Tensor& from, std::int64_t begin) {
    result.narrow(dim_, place.begin, place.size).copy_(from.narrow(dim_, begin, place.size));
  };
  for (std::size_t k = 0; k < kept.size(); ++k) put(kept_at[k], tile, kept[k].begin);
  if (!group_) return result;
  const at::Tensor arrived = sent_around(tile, plan_.sent, plan_.received);
  std::int64_t begin = 0;
  for (std::size_t peer = 0; peer < plan_.received.size(); ++peer) {
    if (peer == shard_) continue;
    for (const Interval& place : plan_.received[peer]) {
      put(place, arrived, begin);
      begin += place.size;
    }
  }
  return result;
}

at::Tensor DimExchange::add_up(const at::Tensor& given) const {
  at::Tensor result = like(given, dim_, tile_size_, 0);
  const auto add = [&](const Interval& place, const at::Tensor& from, std::int64_t begin) {
    result.narrow(dim_, place.begin, place.size).add_(from.narrow(dim_, begin, place.size));
  };
  const std::vector<Interval>& kept = plan_.sent[shard_];
  for (std::size_t k = 0; k < kept.size(); ++k) {
    add(kept[k], given, plan_.received[shard_][k].begin);
  }
  if (!group_) return result;
  const at::Tensor arrived = sent_around(given, plan_.received, plan_.sent);
  std::int64_t begin = 0;
  for (std::size_t peer = 0; peer < plan_.sent.size(); ++peer) {
    if (peer == shard_) continue;
    for (const Interval& place : plan_.sent[peer]) {
      add(place, arrived, begin);
      begin += place.size;
    }
  }
  return result;
}

}  // namespace tegula::inner
