// A tensor with a cut of it elsewhere, for ops made of others: what is sent are the elements that
// come to another rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace tegula::inner::families {

// The axis that cuts the dim, if it alone does and each rank has one run of elements; the tensor
// has tiles.
std::optional<std::size_t> only_axis_along(const at::Tensor& tensor, std::int64_t dim);

// Its only cut dim, if there is one and one axis cuts it.
std::optional<std::int64_t> only_cut_dim(const at::Tensor& tensor);

// Cut along the dim by the axes that cut any other, evenly.
at::Tensor cut_along(const at::Tensor& tensor, std::int64_t dim);

// Each rank has a multiple of `unit` elements of a dim that one axis cuts; a tensor whose dim is
// whole stays as it is. The dim's size is a multiple, too.
at::Tensor cut_by_units(const at::Tensor& tensor, std::int64_t dim, std::int64_t unit);

}  // namespace tegula::inner::families
