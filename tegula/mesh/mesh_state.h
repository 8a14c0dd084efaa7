// What a DeviceMesh holds; for the files of this folder only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tegula/mesh/device_mesh.h"

namespace tegula {

struct DeviceMesh::Root {
  Root(std::vector<MeshAxis> axes, std::vector<std::int64_t> ranks, std::string device_type);

  // Where a rank stands in the list of ranks, if it does.
  std::optional<std::int64_t> place_of(std::int64_t rank) const;
  std::int64_t rank_at(std::int64_t place) const {
    return ranks.empty() ? place : ranks[static_cast<std::size_t>(place)];
  }
  bool operator==(const Root& other) const;

  std::vector<MeshAxis> axes;
  std::vector<std::int64_t> ranks;  // empty: 0 ... size - 1
  std::string device_type;
  std::vector<std::pair<std::int64_t, std::int64_t>> by_rank;  // (rank, place), sorted
  std::int64_t size = 0;
  std::size_t hash = 0;

 private:
  void index_ranks();
};

struct DeviceMesh::State {
  State(std::shared_ptr<const Root> root, std::vector<MeshAxis> axes, std::vector<Layout> layouts);
  static Layout fibers_of(const Root& root, const std::vector<MeshAxis>& axes,
                          const std::vector<Layout>& layouts);
  // UsageError if there is no such axis.
  const Layout& layout_of(std::size_t axis) const;

  std::shared_ptr<const Root> root;
  std::vector<MeshAxis> axes;
  std::vector<Layout> layouts;  // one per axis, coalesced: coordinate -> step in the list of ranks
  Layout fibers;                // fiber -> where it begins in the list of ranks
  std::int64_t size = 0;
  std::size_t hash = 0;
};

}  // namespace tegula

namespace tegula::inner {

// "(dp=2, tp=4)"
std::string axes_text(const std::vector<MeshAxis>& axes);
std::vector<std::string> names_of(const std::vector<MeshAxis>& axes);
// The product of the sizes; UsageError if there are no axes, a size is below 1, or it is too large.
std::int64_t check_sizes(const std::vector<MeshAxis>& axes);
// One layout per axis: the last runs fastest, without gaps.
std::vector<Layout> row_major_layouts(const std::vector<MeshAxis>& axes);

}  // namespace tegula::inner
