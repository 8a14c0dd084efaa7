// Images: [batch, channels, space...], or [channels, space...] of a single one. Most ops on them
// work within the space of one channel, so that batch and channels may be cut.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "tegula/rules/signature.h"

namespace tegula::inner::families {

// Whether a shape has so many dims of space, after channels or after batch and channels.
bool is_image(const Shape& shape, std::size_t space);

// The sizes of the last dims.
Shape space_of(const Shape& shape, std::size_t space);

// An image as a term: batch and channels are factors that may be cut, those of space stay whole. No
// op takes an image without channels, all take a batch of none.
Term image_term(Signature& signature, const Shape& shape, std::size_t space);

// The same batch and channels, another space.
Term with_space(const Term& image, const Shape& space);

// Whether the shape is that of an image with these batch and channels, whatever its space.
bool has_same_channels(const Shape& shape, const Shape& image, std::size_t space);

// If the image lies with its channels innermost (libtorch's channels-last formats): the order of
// its dims in memory, from the outermost. Else empty.
std::vector<std::size_t> channels_last_order(const TensorMeta& meta);

// A result that lies as an image does, in one of libtorch's formats.
Result image_result(Term term, const TensorMeta& like);

// Whether an op that is linear over the reals is linear in numbers of this type: integers are
// rounded.
bool is_linear_in(DType dtype);

// Windows over space ------------------------------------------------------------------------------

// The entry for a dim of space; a list of one entry counts for all dims.
std::int64_t entry_at(const Ints& list, std::size_t dim);

// Of a kernel that moves over space. Lists as the operators take them.
struct Window {
  Ints kernel, stride, padding, dilation;
  bool ceil_mode = false;
};

// How many places the kernel has in each dim of space; none if it has none, or if libtorch refuses
// the numbers.
std::optional<Shape> places_of(const Window& window, const Shape& space);

}  // namespace tegula::inner::families
