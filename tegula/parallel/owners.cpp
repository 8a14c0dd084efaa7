// The idea: who owns what follows from the specs alone, so every rank knows what it sends and gets.
// A message to a rank is the tiles that it needs, one behind the other, in the order of the work.
#include "tegula/parallel/owners.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "tegula/bridge/tiles.h"
#include "tegula/bridge/torch_types.h"
#include "tegula/comm/comm_log.h"
#include "tegula/parallel/parameter_gradients.h"
#include "tegula/tensor/dtensor.h"

namespace tegula::inner {
namespace {

// A tensor in one fiber of its mesh.
struct Job {
  std::size_t which = 0;
  DTensorSpec spec;
  std::vector<std::int64_t> ranks;  // of the fiber, by place
  double cost = 0;
  std::size_t owner_place = 0;

  std::int64_t owner() const { return ranks[owner_place]; }
  Coordinate coordinate(std::size_t place) const {
    return spec.mesh().coordinate_at(static_cast<std::int64_t>(place));
  }
  // The place that gives the owner the tile of this place: of those that hold it the one that is
  // the owner's replica, so that owners need not send what they have.
  std::size_t holder(std::size_t place) const {
    const Coordinate of_owner = coordinate(owner_place);
    const Coordinate at = coordinate(place);
    std::int64_t index = 0;
    for (std::size_t axis = 0; axis < at.size(); ++axis) {
      const bool is_copy = is_replicate(spec.placements()[axis]);
      index = index * spec.mesh().axes()[axis].size + (is_copy ? of_owner : at)[axis];
    }
    return static_cast<std::size_t>(index);
  }
  std::int64_t bytes(std::size_t place) const {
    const Shape shape = local_shape(spec, coordinate(place));
    const std::int64_t count =
        std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
    return count * static_cast<std::int64_t>(c10::elementSize(scalar_type_of(spec.meta().dtype())));
  }
};

void choose_owners(std::vector<Job>& jobs) {
  std::vector<std::size_t> order(jobs.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return jobs[a].cost > jobs[b].cost; });
  std::map<std::int64_t, double> load;
  for (const std::size_t k : order) {
    Job& job = jobs[k];
    const auto least =
        std::min_element(job.ranks.begin(), job.ranks.end(),
                         [&](std::int64_t a, std::int64_t b) { return load[a] < load[b]; });
    job.owner_place = static_cast<std::size_t>(least - job.ranks.begin());
    load[job.owner()] += job.cost;
  }
}

std::vector<Job> jobs_of(const std::vector<OwnedWork>& work) {
  std::vector<Job> jobs;
  for (std::size_t which = 0; which < work.size(); ++which) {
    const DTensorSpec spec = spec_of(work[which].tensor);
    for (std::int64_t fiber = 0; fiber < spec.mesh().fiber_count(); ++fiber) {
      jobs.push_back({which, spec, spec.mesh().ranks(fiber), work[which].cost});
    }
  }
  choose_owners(jobs);
  return jobs;
}

// Parcels -----------------------------------------------------------------------------------------

// The tile of one place of a job, on its way.
struct Parcel {
  std::size_t job = 0;
  std::size_t place = 0;
  std::int64_t from = 0, to = 0;  // ranks of the world
};

std::vector<Parcel> to_owners(const std::vector<Job>& jobs) {
  std::vector<Parcel> parcels;
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    for (std::size_t place = 0; place < jobs[j].ranks.size(); ++place) {
      if (jobs[j].holder(place) != place) continue;
      parcels.push_back({j, place, jobs[j].ranks[place], jobs[j].owner()});
    }
  }
  return parcels;
}

std::vector<Parcel> from_owners(const std::vector<Job>& jobs) {
  std::vector<Parcel> parcels;
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    for (std::size_t place = 0; place < jobs[j].ranks.size(); ++place) {
      parcels.push_back({j, place, jobs[j].owner(), jobs[j].ranks[place]});
    }
  }
  return parcels;
}

at::Tensor as_bytes(const at::Tensor& tile) { return tile.contiguous().view({-1}).view(at::kByte); }

// The tile that a parcel holds, from bytes.
at::Tensor as_tile(const at::Tensor& bytes, const Job& job, std::size_t place) {
  return bytes
      .clone()  // at an address that any dtype may have
      .view(scalar_type_of(job.spec.meta().dtype()))
      .view(local_shape(job.spec, job.coordinate(place)));
}

using TileOf = std::function<at::Tensor(const Parcel&)>;
using Deliver = std::function<void(const Parcel&, const at::Tensor& tile)>;

// Sends the tiles of the parcels that leave this rank, and delivers those that arrive, in one call;
// what stays here is not sent.
void exchange(const std::vector<Parcel>& parcels, const std::vector<Job>& jobs, const Group& group,
              const TileOf& tile_of, const Deliver& deliver) {
  const std::vector<int>& members = group.ranks();
  const std::int64_t here = members[static_cast<std::size_t>(group.index())];
  std::map<std::int64_t, std::vector<Parcel>> leaving, arriving;  // by the other rank
  for (const Parcel& parcel : parcels) {
    if (parcel.from == here && parcel.to == here) {
      deliver(parcel, tile_of(parcel));
    } else if (parcel.from == here) {
      leaving[parcel.to].push_back(parcel);
    } else if (parcel.to == here) {
      arriving[parcel.from].push_back(parcel);
    }
  }
  std::vector<at::Tensor> sent{at::empty({0}, at::kByte)};
  Group::Sizes out_sizes, in_sizes;
  for (const int member : members) {
    std::int64_t& out = out_sizes.emplace_back(0);
    std::int64_t& in = in_sizes.emplace_back(0);
    for (const Parcel& parcel : leaving[member]) {
      sent.push_back(as_bytes(tile_of(parcel)));
      out += sent.back().numel();
    }
    for (const Parcel& parcel : arriving[member]) in += jobs[parcel.job].bytes(parcel.place);
  }
  const at::Tensor all = group.all_to_all(at::cat(sent), 0, 0, out_sizes, in_sizes);
  std::int64_t begin = 0;
  for (const int member : members) {
    for (const Parcel& parcel : arriving[member]) {
      const Job& job = jobs[parcel.job];
      const std::int64_t bytes = job.bytes(parcel.place);
      deliver(parcel, as_tile(all.narrow(0, begin, bytes), job, parcel.place));
      begin += bytes;
    }
  }
}

// Of a job that this rank owns: the whole, from the tiles that arrived.
at::Tensor joined(const Job& job, const std::map<std::size_t, at::Tensor>& tiles) {
  std::vector<at::Tensor> all;
  for (std::size_t place = 0; place < job.ranks.size(); ++place) {
    all.push_back(tiles.at(job.holder(place)));
  }
  return join_tiles(all, job.spec);
}

}  // namespace

std::vector<at::Tensor> on_owners(const std::vector<OwnedWork>& work,
                                  const WholeFunction& function) {
  std::vector<at::Tensor> tensors;
  for (const OwnedWork& one : work) tensors.push_back(one.tensor);
  std::vector<at::Tensor> results;  // for a rank outside of a mesh its tile, which is empty
  for (const at::Tensor& tensor : tensors) results.push_back(to_local(tensor));
  const std::optional<Group> group = group_of_meshes(tensors);
  if (!group) return results;
  const CommLabel label("wholes to their owners and back");
  const std::vector<Job> jobs = jobs_of(work);

  std::map<std::size_t, std::map<std::size_t, at::Tensor>> arrived;  // by job and place
  exchange(
      to_owners(jobs), jobs, *group,
      [&](const Parcel& parcel) { return to_local(tensors[jobs[parcel.job].which]); },
      [&](const Parcel& parcel, const at::Tensor& tile) {
        arrived[parcel.job][parcel.place] = tile;
      });
  std::map<std::size_t, at::Tensor> done;  // by job
  for (const auto& [job, tiles] : arrived) {
    done[job] = function(joined(jobs[job], tiles), jobs[job].which);
  }
  exchange(
      from_owners(jobs), jobs, *group,
      [&](const Parcel& parcel) {
        const Job& job = jobs[parcel.job];
        return cut_tile(done.at(parcel.job), job.spec, job.coordinate(parcel.place));
      },
      [&](const Parcel& parcel, const at::Tensor& tile) {
        results[jobs[parcel.job].which] = tile;
      });
  return results;
}

}  // namespace tegula::inner
