#include "tegula/ops/images.h"

#include <algorithm>

#include "tegula/rules/signatures.h"

namespace tegula::inner::families {

bool is_image(const Shape& shape, std::size_t space) {
  return shape.size() == space + 1 || shape.size() == space + 2;
}

Shape space_of(const Shape& shape, std::size_t space) {
  return {shape.end() - static_cast<std::ptrdiff_t>(space), shape.end()};
}

Term image_term(Signature& signature, const Shape& shape, std::size_t space) {
  Term term = own_factors(signature, shape);
  for (std::size_t dim = shape.size() - space; dim < shape.size(); ++dim) {
    signature.is_whole[static_cast<std::size_t>(term.factors[dim])] = true;
  }
  signature.needs_elements = true;
  if (shape.size() == space + 2) signature.may_be_empty.push_back(term.factors[0]);
  return term;
}

Term with_space(const Term& image, const Shape& space) {
  Term term = image;
  const std::size_t first = image.factors.size() - space.size();
  for (std::size_t dim = 0; dim < space.size(); ++dim) {
    term.factors[first + dim] = kNoFactor;
    term.sizes[first + dim] = space[dim];
  }
  return term;
}

bool has_same_channels(const Shape& shape, const Shape& image, std::size_t space) {
  return shape.size() == image.size() &&
         std::equal(shape.begin(), shape.end() - static_cast<std::ptrdiff_t>(space), image.begin());
}

std::vector<std::size_t> channels_last_order(const TensorMeta& meta) {
  const std::size_t dims = meta.shape().size();
  if (dims != 4 && dims != 5) return {};
  std::vector<std::size_t> order{0};
  for (std::size_t dim = 2; dim < dims; ++dim) order.push_back(dim);
  order.push_back(1);
  // as libtorch tells it: strides grow from the channels over the last dim to the batch
  const Shape& stride = meta.stride();
  if (stride[1] == 0) return {};
  std::int64_t least = 0;
  for (auto dim = order.rbegin(); dim != order.rend(); ++dim) {
    if (stride[*dim] < least) return {};
    if (*dim == 0 && least == stride[1]) return {};  // one element: contiguous just as well
    least = stride[*dim] * std::max<std::int64_t>(meta.shape()[*dim], 1);
  }
  return order;
}

Result image_result(Term term, const TensorMeta& like) {
  Result result{std::move(term)};
  if (result.term.factors.size() == like.shape().size()) {
    result.memory_order = channels_last_order(like);
  }
  return result;
}

bool is_linear_in(DType dtype) {
  return is_floating(dtype) || dtype == DType::C64 || dtype == DType::C128;
}

std::int64_t entry_at(const Ints& list, std::size_t dim) {
  return list.size() == 1 ? list[0] : list[dim];
}

std::optional<Shape> places_of(const Window& window, const Shape& space) {
  const Ints& stride = window.stride.empty() ? window.kernel : window.stride;
  for (const Ints* list : {&window.kernel, &stride, &window.padding, &window.dilation}) {
    if (list->size() != 1 && list->size() != space.size()) return std::nullopt;
  }
  Shape places;
  for (std::size_t dim = 0; dim < space.size(); ++dim) {
    const std::int64_t step = entry_at(stride, dim);
    const std::int64_t padding = entry_at(window.padding, dim);
    if (step <= 0) return std::nullopt;
    const std::int64_t reach = entry_at(window.dilation, dim) * (entry_at(window.kernel, dim) - 1);
    const std::int64_t room = space[dim] + 2 * padding - reach - 1;
    if (room < 0) return std::nullopt;
    std::int64_t count = (room + (window.ceil_mode ? step - 1 : 0)) / step + 1;
    // the last place begins inside of the image or of the padding before it
    if (window.ceil_mode && (count - 1) * step >= space[dim] + padding) --count;
    places.push_back(count);
  }
  return places;
}

}  // namespace tegula::inner::families
