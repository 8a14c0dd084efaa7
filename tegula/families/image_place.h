// Images on tiles, and numbers of their channels beside them: what batch norm needs to know of
// where they are.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "tegula/comm/world.h"
#include "tegula/spec/dtensor_spec.h"

namespace tegula::inner::families {

constexpr std::int64_t kChannels = 1;  // the dim of them

// The axes that cut the batch or space.
std::vector<std::size_t> axes_beside_channels(const DTensorSpec& image);

// Of a tensor whose last dim are the channels, cut as those of the image; the axes beside them do
// what is said.
DTensorSpec channels_spec(const DTensorSpec& image, const Shape& shape, at::ScalarType type,
                          const Placement& beside);
// One dim, replicated over the axes beside the channels.
DTensorSpec spec_of_channels(const DTensorSpec& image, at::ScalarType type);

// Where images and numbers of channels are in one call.
class ImagePlace {
 public:
  ImagePlace(const DTensorSpec& image, const World& world)
      : image_(image), world_(world), at_(image.mesh().coordinate_of(world.rank())) {}

  const DTensorSpec& image() const { return image_; }
  const World& world() const { return world_; }
  bool is_here() const { return at_.has_value(); }

  at::Tensor image_tile(const at::Tensor& tensor) const;
  // Numbers of the channels, one dim; undefined stays so.
  at::Tensor channels_tile(const at::Tensor& tensor, at::ScalarType type) const;
  // Numbers of channels so that they meet an image.
  at::Tensor beside_image(const at::Tensor& channels) const;
  std::vector<std::int64_t> dims_beside_channels() const;

  // Elements of a channel, on all ranks together.
  double count() const;
  // ... on each rank along the axes beside channels, in the order of channels_spec.
  std::vector<double> counts() const;

  at::Tensor wrapped_image(const at::Tensor& tile, const at::Tensor& like) const;
  at::Tensor wrapped_channels(const at::Tensor& tile, at::ScalarType type) const;
  // A tensor without elements, as libtorch gives it where there is nothing to say.
  at::Tensor nothing(at::ScalarType type) const;

 private:
  at::Tensor wrapped(const at::Tensor& tile, const DTensorSpec& spec) const;

  DTensorSpec image_;
  World world_;
  std::optional<Coordinate> at_;
};

}  // namespace tegula::inner::families
