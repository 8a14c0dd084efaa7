// DTensorSpec: everything that all ranks agree on about one distributed tensor: the mesh, one
// placement per axis, the shard order, and the whole tensor's shape, strides and element type.
//
//   f32[8, 16] on (dp=2, tp=4) as [R, S(0)]
//   f32[10, 7] on (a=2, b=2) as [S(0)[1], S(0)[0]]       dim 0 is cut by b first, then by a
//
// Immutable and interned: equal specs are one object, so that == compares two pointers and hash()
// is a stored number. A DTensorSpec is a counted reference to that object; the last one to go
// removes it. Any thread may make, copy and use specs.
//
// Specs are stored in simplest form: shard dims count from the front, given shard sizes that are
// the even ones are an even cut.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "tegula/mesh/device_mesh.h"
#include "tegula/placement/placement.h"
#include "tegula/spec/dim_cut.h"
#include "tegula/spec/shard_order.h"
#include "tegula/spec/tensor_meta.h"

namespace tegula {

class DTensorSpec {
 public:
  // The default shard order. UsageError: not one placement per axis, a shard dim the tensor does
  // not have, shard sizes that do not add up, owed reductions that cannot be done in either order
  // (a sum and a max, say).
  DTensorSpec(const DeviceMesh& mesh, const Placements& placements, const TensorMeta& meta);
  // UsageError also: an order that does not fit the placements.
  DTensorSpec(const DeviceMesh& mesh, const Placements& placements, const ShardOrder& order,
              const TensorMeta& meta);

  DTensorSpec(const DTensorSpec& other) noexcept;
  DTensorSpec(DTensorSpec&& other) noexcept;
  DTensorSpec& operator=(DTensorSpec other) noexcept;
  ~DTensorSpec();

  // Without its owner: specs are shared by all ranks of a process.
  const DeviceMesh& mesh() const;
  const Placements& placements() const;
  const ShardOrder& shard_order() const;
  const TensorMeta& meta() const;
  const Shape& shape() const { return meta().shape(); }
  std::int64_t ndim() const { return meta().ndim(); }

  // How each dim of the tensor is cut; one per dim.
  const std::vector<DimCut>& dim_cuts() const;

  bool is_replicated() const;  // every placement is R
  bool is_sharded() const;     // some axis cuts a dim
  bool is_partial() const;     // some axis owes a reduction
  bool has_default_order() const;

  // The same but for one part: other placements come with the default shard order, another meta
  // must fit the placements.
  DTensorSpec with_placements(const Placements& placements) const;
  DTensorSpec with_meta(const TensorMeta& meta) const;

  bool operator==(const DTensorSpec& other) const { return data_ == other.data_; }
  std::size_t hash() const;
  // Different for every spec that this process ever made; never reused.
  std::uint64_t id() const;

 private:
  struct Data;
  class Table;
  friend std::size_t interned_spec_count();
  const Data* data_;
};

// The number of different specs alive in this process.
std::size_t interned_spec_count();

std::string to_string(const DTensorSpec& spec);
std::ostream& operator<<(std::ostream& out, const DTensorSpec& spec);
// The reverse of to_string. Placements may also be written as PyTorch prints them, _S(0, 2) and all
// (strided_shard.h).
DTensorSpec parse_spec(std::string_view text);

}  // namespace tegula

template <>
struct std::hash<tegula::DTensorSpec> {
  std::size_t operator()(const tegula::DTensorSpec& spec) const noexcept { return spec.hash(); }
};
