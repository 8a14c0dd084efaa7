// What decompositions along a cut dim have in common: a tile gives a small part of the answer (a
// total), and the parts travel instead of the tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "tegula/operators/arguments.h"
#include "tegula/payload/payload.h"

namespace tegula::inner::families {

const at::Tensor& tensor_at(Arguments arguments, std::size_t index);
bool is_given(const c10::IValue& tensor);

// Whether some axis cuts the dim; a negative one counts from the end.
bool is_cut(const at::Tensor& tensor, std::int64_t dim);
// Whether the tensor has tiles of its own that are not the whole.
bool is_spread(const at::Tensor& tensor);
// Whether a tile can be worked on once nothing is owed: this rank is in the mesh, and the tensor
// has tiles of its own. The same on all ranks of the mesh.
bool has_tile(const at::Tensor& tensor);

// The same tensor, owing nothing.
at::Tensor with_sum_paid(const at::Tensor& tensor);

// Dims --------------------------------------------------------------------------------------------

// Per dim of the tensor: whether it is among those listed (an integer, a list; none or an empty
// list: all). UsageError if there is no such dim.
using Dims = std::vector<bool>;
Dims dims_of(const at::Tensor& tensor, const c10::IValue& listed);
Dims one_dim(const at::Tensor& tensor, std::int64_t dim);
std::vector<std::int64_t> listed(const Dims& dims);
// Whether some axis cuts one of them.
bool is_cut(const at::Tensor& tensor, const Dims& dims);
// Of elements that one result is made of.
std::int64_t count_of(const at::Tensor& tensor, const Dims& dims);
// Whether a rank is left without elements of one of them.
bool has_empty_shard(const at::Tensor& tensor, const Dims& dims);

// Element types -----------------------------------------------------------------------------------

// Real or complex, not integers.
bool is_floating(const at::Tensor& tensor);
// The type to add up in. libtorch adds halves up as floats and rounds once, at the end: their sum
// may be more than a half can hold where their mean is not.
at::ScalarType sum_type(at::ScalarType type);
// The same in another floating-point type. What is owed stays owed: each rank converts its part.
at::Tensor in_type(const at::Tensor& tensor, at::ScalarType type);
// A half as a float, for sums.
at::Tensor to_add_up(const at::Tensor& tensor);
// A sum that was made as floats in the type asked for: what is owed is added up before it is
// rounded.
at::Tensor rounded_to(const at::Tensor& sum, at::ScalarType type);

// Parts of tiles ----------------------------------------------------------------------------------

// What `reduce` makes of the tile of a tensor that owes nothing, its dims `dims` of one element
// each; `empty`, in the given type, if the tile has no elements along them.
at::Tensor reduced_tile(const Payload& self, const Dims& dims, const at::Scalar& empty,
                        at::ScalarType type,
                        const std::function<at::Tensor(const at::Tensor&)>& reduce);

// A tensor whose dims `dims` have one element: `part` is what this rank's tile of `self` gives, and
// the axes that cut those dims owe the reduction.
at::Tensor owed_part(const at::Tensor& part, const Payload& self, const Dims& dims, ReduceOp op);

// A tensor that has, along each of `dims`, one element per shard of self's: `part`, of one element
// along them, is this rank's.
at::Tensor part_per_shard(const at::Tensor& part, const Payload& self, const Dims& dims);

// The parts of all shards along one dim, side by side, on every rank of the axes that cut it.
// `sizes` says how many elements each shard gives; empty: one.
at::Tensor parts_of_all(const at::Tensor& part, const Payload& self, std::int64_t dim,
                        std::vector<std::int64_t> sizes = {});
// A tensor of `tile`'s size along the dim, which is the same on all ranks of the axes that cut
// self's; other dims are cut as self's.
at::Tensor joined_along(const Payload& self, std::int64_t dim, const at::Tensor& tile);
// This rank's place among the shards along a dim.
std::int64_t shard_here(const Payload& self, std::int64_t dim);
// The elements of each shard along it, by place.
std::vector<std::int64_t> shard_sizes(const Payload& self, std::int64_t dim);

// Where the elements of this rank's tile stand in the whole, along a dim: integers, in order.
at::Tensor positions_along(const Payload& self, std::int64_t dim);

// Dims that are reduced to one element, left out.
at::Tensor without(const Dims& dims, const at::Tensor& tensor);

}  // namespace tegula::inner::families
