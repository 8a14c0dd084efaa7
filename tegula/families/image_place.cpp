// The idea: numbers of channels are cut as the image's channels are, and are the same along the
// axes that cut the batch or space.
#include "tegula/families/image_place.h"

#include <ATen/ATen.h>

#include "tegula/bridge/torch_types.h"
#include "tegula/families/operand_tiles.h"
#include "tegula/payload/payload.h"
#include "tegula/redistribute/tile_layout.h"
#include "tegula/spec/slices.h"

namespace tegula::inner::families {
namespace {

double elements_per_channel(const Shape& shape) {
  double count = 1;
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    if (dim != kChannels) count *= static_cast<double>(shape[dim]);
  }
  return count;
}

}  // namespace

std::vector<std::size_t> axes_beside_channels(const DTensorSpec& image) {
  std::vector<std::size_t> axes;
  for (std::size_t axis = 0; axis < image.placements().size(); ++axis) {
    const Shard* shard = as_shard(image.placements()[axis]);
    if (shard && shard->dim() != kChannels) axes.push_back(axis);
  }
  return axes;
}

DTensorSpec channels_spec(const DTensorSpec& image, const Shape& shape, at::ScalarType type,
                          const Placement& beside) {
  const auto last = static_cast<std::int64_t>(shape.size()) - 1;
  Placements placements(image.placements().size(), Replicate());
  ShardOrder order;
  const std::vector<std::size_t> axes = axes_beside_channels(image);
  for (const std::size_t axis : axes) placements[axis] = beside;
  if (as_shard(beside) && !axes.empty()) order.push_back({as_shard(beside)->dim(), axes});
  for (const CutAxis& cut : image.dim_cuts()[kChannels].axes()) {
    placements[cut.axis] = Shard(last, cut.cut);
    if (order.empty() || order.back().dim != last) order.push_back({last, {}});
    order.back().axes.push_back(cut.axis);
  }
  return {image.mesh(), placements, order, TensorMeta(shape, dtype_of(type))};
}

DTensorSpec spec_of_channels(const DTensorSpec& image, at::ScalarType type) {
  return channels_spec(image, {image.shape()[kChannels]}, type, Replicate());
}

at::Tensor ImagePlace::image_tile(const at::Tensor& tensor) const {
  const auto meta = TensorMeta(image_.shape(), dtype_of(tensor.scalar_type()));
  return tile_at(tensor, image_.with_meta(meta), world_);
}

at::Tensor ImagePlace::channels_tile(const at::Tensor& tensor, at::ScalarType type) const {
  if (!tensor.defined()) return tensor;
  return tile_at(tensor, spec_of_channels(image_, tensor.scalar_type()), world_).to(type);
}

at::Tensor ImagePlace::beside_image(const at::Tensor& channels) const {
  std::vector<std::int64_t> shape(image_.shape().size(), 1);
  shape[kChannels] = channels.numel();
  return channels.view(shape);
}

std::vector<std::int64_t> ImagePlace::dims_beside_channels() const {
  std::vector<std::int64_t> dims{0};
  for (std::int64_t dim = 2; dim < image_.ndim(); ++dim) dims.push_back(dim);
  return dims;
}

double ImagePlace::count() const { return elements_per_channel(image_.shape()); }

std::vector<double> ImagePlace::counts() const {
  const std::vector<std::size_t> axes = axes_beside_channels(image_);
  std::vector<double> counts;
  Coordinate at = *at_;
  for (const std::size_t axis : axes) at[axis] = 0;
  while (true) {
    counts.push_back(elements_per_channel(local_shape(image_, at)));
    std::size_t k = axes.size();
    while (k > 0 && ++at[axes[k - 1]] == image_.mesh().axes()[axes[k - 1]].size) {
      at[axes[--k]] = 0;
    }
    if (k == 0) return counts;
  }
}

at::Tensor ImagePlace::wrapped_image(const at::Tensor& tile, const at::Tensor& like) const {
  const bool is_row_major = like.suggest_memory_format() == at::MemoryFormat::Contiguous;
  const TensorMeta meta(
      image_.shape(),
      is_row_major ? row_major_strides(image_.shape()) : dense(meta_of(like)).stride(),
      dtype_of(like.scalar_type()));
  return wrapped(tile, image_.with_meta(meta));
}

at::Tensor ImagePlace::wrapped_channels(const at::Tensor& tile, at::ScalarType type) const {
  return wrapped(is_here() ? tile.to(type) : tile, spec_of_channels(image_, type));
}

at::Tensor ImagePlace::nothing(at::ScalarType type) const {
  return replicated(at::empty({0}, at::TensorOptions(type)), image_.mesh(), world_);
}

at::Tensor ImagePlace::wrapped(const at::Tensor& tile, const DTensorSpec& spec) const {
  return outer_tensor(is_here() ? in_tile_layout(tile, spec, *at_) : no_tile(spec), spec, world_);
}

}  // namespace tegula::inner::families
