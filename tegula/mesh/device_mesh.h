// DeviceMesh: ranks arranged in a grid with named axes.
//
//   DeviceMesh mesh({{"dp", 2}, {"tp", 4}});        // ranks 0 ... 7, tp runs fastest
//   mesh["tp"]                                      // (tp=4) of (dp=2, tp=4)
//   mesh[{"tp", "dp"}]                              // transposed
//   mesh.flatten("all")                             // one axis of 8
//
// A mesh made from axes and ranks is a root. Slicing, flattening, unflattening and concatenating
// give meshes over the same root: they name other axes, the ranks stay. A slice that leaves axes
// of the root out is a family of grids, one for each coordinate of the axes left out; these grids
// are its fibers. Every rank of the root lies in exactly one fiber, and a program that runs on all
// ranks uses the one it is in: coordinate_of(rank) is its place there.
//
// A mesh makes no connections; an axis only carries the wish for a backend and its options. A mesh
// that a world made carries an opaque owner along, as do the meshes made from it: that is how
// functions on distributed tensors know which rank is asking. It is no part of the value.
// Immutable, cheap to copy, any thread may use it. Creating one costs O(ranks) if the ranks are
// listed and O(axes) if they are 0 ... n-1; slicing costs O(axes).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tegula/base/coordinate.h"
#include "tegula/mesh/layout.h"

namespace tegula {

class Scanner;

// How ranks along an axis should talk: a backend's name ("shm", "gloo", "mpi", ...; empty: the
// world's default) and options for it.
struct AxisBackend {
  std::string name;
  std::map<std::string, std::string> options;
  bool operator==(const AxisBackend&) const = default;
};

struct MeshAxis {
  std::string name;
  std::int64_t size = 1;
  AxisBackend backend = {};
  bool operator==(const MeshAxis&) const = default;
};

class DeviceMesh {
 public:
  // The most ranks a mesh may have.
  static constexpr std::int64_t kMostRanks = std::int64_t{1} << 24;

  // A root. `ranks` in row-major order, any ranks in any order; empty: 0 ... product of sizes - 1.
  // UsageError: no axes, a size below 1, a name that is no identifier or appears twice, more than
  // kMostRanks ranks; not as many ranks as the sizes need, a rank twice or negative; a device type
  // that is not a plain lower-case word ("cuda:0" has an index too much).
  explicit DeviceMesh(std::vector<MeshAxis> axes, std::vector<std::int64_t> ranks = {},
                      std::string device_type = "cpu");

  std::size_t ndim() const;
  const std::vector<MeshAxis>& axes() const;
  std::vector<std::int64_t> shape() const;
  // Ranks in one fiber: the product of the shape.
  std::int64_t size() const;
  const std::string& device_type() const;
  // UsageError that lists the axes if there is none of this name.
  std::size_t axis_index(std::string_view name) const;

  // Where a rank is in its fiber; none if the rank is not in the root. O(axes), and O(log ranks) if
  // the ranks are listed.
  std::optional<Coordinate> coordinate_of(std::int64_t rank) const;
  std::optional<std::int64_t> fiber_of(std::int64_t rank) const;
  std::int64_t fiber_count() const;
  // The rank at a place. UsageError if there is no such place.
  std::int64_t rank_at(const Coordinate& coordinate, std::int64_t fiber = 0) const;
  // All ranks of a fiber in row-major order.
  std::vector<std::int64_t> ranks(std::int64_t fiber = 0) const;

  // The ranks that differ from this one along one axis only, itself included, by coordinate; none
  // if the rank is not in the root; UsageError if the axis does not exist. O(size of the axis).
  std::optional<std::vector<std::int64_t>> group_of(std::int64_t rank, std::size_t axis) const;
  // All groups along one axis, of all fibers. Law: they partition the root's ranks.
  std::vector<std::vector<std::int64_t>> groups(std::size_t axis) const;

  // The axes of these names in this order. UsageError: no names, an unknown one, one twice.
  // Law: slicing all axes in their own order gives an equal mesh.
  DeviceMesh slice(const std::vector<std::string>& names) const;
  DeviceMesh operator[](std::string_view name) const { return slice({std::string(name)}); }
  DeviceMesh operator[](std::initializer_list<std::string_view> names) const {
    return slice({names.begin(), names.end()});
  }

  // All axes as one. The default name joins theirs: "dp_tp".
  DeviceMesh flatten(const std::string& name = "") const;
  // These axes as one, in the order given, in the place of the first; the others stay.
  DeviceMesh flatten(const std::vector<std::string>& names, const std::string& name = "") const;
  // One axis as several, the last running fastest. Law: flattening them again gives an equal mesh,
  // but for the wish for a backend. UsageError: sizes that do not multiply to the axis's, or that
  // do not follow the steps in which a flattened axis walks through the root.
  DeviceMesh unflatten(std::string_view axis, std::vector<MeshAxis> into) const;
  // The axes of several meshes over one root, side by side. UsageError: other roots, an axis of the
  // root used twice, a name twice.
  static DeviceMesh concatenate(const std::vector<DeviceMesh>& meshes);

  DeviceMesh root() const;
  bool is_root() const;

  // Whether the ranks of each of the part's fibers lie in one fiber of mine: a tensor on the part
  // then counts as replicated over the rest of me. False for another root.
  bool covers(const DeviceMesh& part) const;

  // Null unless given.
  const std::shared_ptr<void>& owner() const { return owner_; }
  DeviceMesh with_owner(std::shared_ptr<void> owner) const;

  // Equal: same root (axes, ranks, device type, wishes for backends) and same axes over it.
  bool operator==(const DeviceMesh& other) const;
  std::size_t hash() const;

 private:
  struct Root;
  struct State;
  DeviceMesh(std::shared_ptr<const State> state, std::shared_ptr<void> owner)
      : state_(std::move(state)), owner_(std::move(owner)) {}
  // Other axes over my root, with my owner.
  DeviceMesh over_root(std::vector<MeshAxis> axes, std::vector<Layout> layouts) const;
  std::int64_t offset_of(const Coordinate& coordinate, std::int64_t fiber) const;

  friend std::string to_string(const DeviceMesh& mesh);
  friend DeviceMesh parse_mesh(Scanner& scan);

  std::shared_ptr<const State> state_;
  std::shared_ptr<void> owner_;
};

// "(dp=2, tp=4)"; further parts only where they are needed:
//   cuda (dp=2, tp=4)                       another device type than cpu
//   (dp=2, tp=4) over [4:8, 0, 2, 1, 3]     other ranks than 0 ... n-1; 4:8 stands for 4, 5, 6, 7
//   (dp=2@gloo{iface=lo}, tp=4)             a backend and its options wanted for an axis
//   (tp=4) of (dp=2, tp=4)                  a mesh over a root
//   (all=8:1) of (dp=2, tp=4)               an axis that is none of the root's, as size:stride
//   (x=(2, 2):(4, 1)) of (a=2, b=2, c=2)    ... with several steps
std::string to_string(const DeviceMesh& mesh);
std::ostream& operator<<(std::ostream& out, const DeviceMesh& mesh);
// The reverse of to_string; the parentheses of a root may be left out.
DeviceMesh parse_mesh(std::string_view text);
DeviceMesh parse_mesh(Scanner& scan);

}  // namespace tegula
