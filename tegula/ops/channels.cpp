// What mixes the channels of an image, or takes them apart: shuffles, gated units, patches as
// columns, norms over groups of channels.
#include <algorithm>

#include "tegula/ops/families.h"
#include "tegula/ops/images.h"
#include "tegula/rules/signatures.h"

namespace tegula::inner::families {
namespace {

// (self [..., c, h, w], factor): what stands before the channels may be cut.
enum class Shuffle { ToSpace, ToChannels };

SignatureOf pixel_shuffle(Shuffle shuffle) {
  return [shuffle](const OpSchema& schema) -> std::optional<Signature> {
    const Shape& shape = schema.spec(0).shape();
    const std::int64_t factor = schema.integer(1);
    if (shape.size() < 3 || factor <= 0) return std::nullopt;
    Shape image = space_of(shape, 3);
    if (shuffle == Shuffle::ToSpace) {
      if (image[0] % (factor * factor) != 0) return std::nullopt;
      image = {image[0] / (factor * factor), image[1] * factor, image[2] * factor};
    } else {
      if (image[1] % factor != 0 || image[2] % factor != 0) return std::nullopt;
      image = {image[0] * factor * factor, image[1] / factor, image[2] / factor};
    }
    Signature signature;
    Term self = own_factors(signature, shape);
    for (std::size_t dim = shape.size() - 3; dim < shape.size(); ++dim) {
      signature.is_whole[static_cast<std::size_t>(self.factors[dim])] = true;
    }
    signature.needs_elements = true;
    signature.operands = {{.term = self, .is_linear = true}};
    signature.results = {{with_space(self, image)}};
    return signature;
  };
}

// (self [n, c, space...], groups)
std::optional<Signature> channel_shuffle(const OpSchema& schema) {
  const TensorMeta& meta = schema.spec(0).meta();
  if (meta.shape().size() < 3) return std::nullopt;
  Signature signature;
  const Term self = own_factors(signature, meta.shape());
  signature.is_whole[1] = true;
  signature.operands = {{.term = self, .is_linear = true}};
  signature.results = {image_result(self, meta)};
  return signature;
}

// (self, dim) -> half as long along dim
std::optional<Signature> gated_unit(const OpSchema& schema) {
  const Shape& shape = schema.spec(0).shape();
  if (shape.empty()) return std::nullopt;
  const std::size_t along = wrapped_dim(schema.integer(1), shape.size());
  if (shape[along] % 2 != 0) return std::nullopt;
  Signature signature;
  const Term self = own_factors(signature, shape);
  signature.is_whole[along] = true;
  Term result = self;
  result.factors[along] = kNoFactor;
  result.sizes[along] = shape[along] / 2;
  signature.operands = {{self}};
  signature.results = {{result}};
  return signature;
}

// (grad, self, dim) -> of self
std::optional<Signature> gated_unit_backward(const OpSchema& schema) {
  const Shape& shape = schema.spec(1).shape();
  if (shape.empty()) return std::nullopt;
  const std::size_t along = wrapped_dim(schema.integer(2), shape.size());
  Signature signature;
  const Term self = own_factors(signature, shape);
  signature.is_whole[along] = true;
  Term grad = self;
  grad.factors[along] = kNoFactor;
  grad.sizes[along] = shape[along] / 2;
  if (shape[along] % 2 != 0 || schema.spec(0).shape() != grad.sizes) return std::nullopt;
  signature.operands = {{.term = grad, .is_linear = true}, {self}};
  signature.results = {{self}};
  return signature;
}

// Patches -----------------------------------------------------------------------------------------

// Of an image [n, c, h, w] (or [c, h, w]) the patches are columns [n, c * kernel, places].
struct Patches {
  Term image, columns;
};

std::optional<Patches> number_dims(Signature& signature, const Shape& image, const Window& window) {
  if (!is_image(image, 2)) return std::nullopt;
  const std::optional<Shape> places = places_of(window, space_of(image, 2));
  if (!places) return std::nullopt;
  const bool is_batch = image.size() == 4;
  const std::int64_t channels = image[image.size() - 3];
  Patches patches;
  if (is_batch) {
    const Factor batch = signature.add_factor(image[0]);
    patches.image = {{batch}, {image[0]}};
    patches.columns = patches.image;
  }
  const auto add = [](Term& term, std::int64_t size) {
    term.factors.push_back(kNoFactor);
    term.sizes.push_back(size);
  };
  for (std::int64_t size : space_of(image, 3)) add(patches.image, size);
  add(patches.columns, channels * entry_at(window.kernel, 0) * entry_at(window.kernel, 1));
  add(patches.columns, (*places)[0] * (*places)[1]);
  return patches;
}

// (self, kernel_size, dilation, padding, stride) -> columns
std::optional<Signature> to_columns(const OpSchema& schema) {
  const Window window{schema.ints(1), schema.ints(4), schema.ints(3), schema.ints(2)};
  Signature signature;
  const auto patches = number_dims(signature, schema.spec(0).shape(), window);
  if (!patches) return std::nullopt;
  signature.operands = {{.term = patches->image, .is_linear = true}};
  signature.results = {{patches->columns}};
  return signature;
}

// (columns, output_size, kernel_size, dilation, padding, stride) -> image
std::optional<Signature> from_columns(const OpSchema& schema) {
  const Shape& columns = schema.spec(0).shape();
  const Ints& output = schema.ints(1);
  const Ints& kernel = schema.ints(2);
  if (columns.size() != 2 && columns.size() != 3) return std::nullopt;
  if (output.size() != 2 || kernel.size() != 2 || kernel[0] * kernel[1] <= 0) return std::nullopt;
  Shape image = columns;
  image.resize(columns.size() - 2);
  image.push_back(columns[columns.size() - 2] / (kernel[0] * kernel[1]));
  image.insert(image.end(), output.begin(), output.end());
  Signature signature;
  const auto patches =
      number_dims(signature, image, {kernel, schema.ints(5), schema.ints(4), schema.ints(3)});
  if (!patches || patches->columns.sizes != columns) return std::nullopt;
  signature.operands = {{.term = patches->columns, .is_linear = true}};
  signature.results = {{patches->image}};
  return signature;
}

// Norms over groups of channels -------------------------------------------------------------------

// Tensors of a group norm: images [n, c, ...], numbers of the channels [c] and of groups [n, g].
struct Groups {
  Term image, channels, groups;
};

// Sizes of N, C and space stand from argument `sizes` on, the number of groups after them.
std::optional<Groups> number_groups(Signature& signature, const OpSchema& schema,
                                    const Shape& image, std::size_t sizes) {
  const std::int64_t channels = schema.integer(sizes + 1);
  const std::int64_t groups = schema.integer(sizes + 3);
  if (image.size() < 2 || image[0] != schema.integer(sizes) || image[1] != channels) {
    return std::nullopt;
  }
  if (groups <= 0 || channels % groups != 0) return std::nullopt;
  Groups terms;
  terms.image = own_factors(signature, image);
  std::fill(signature.is_whole.begin() + 1, signature.is_whole.end(), true);
  terms.channels = {{terms.image.factors[1]}, {channels}};
  terms.groups = {{terms.image.factors[0], kNoFactor}, {image[0], groups}};
  signature.size_arguments = {{sizes, {{terms.image.factors[0]}, {image[0]}}}};
  return terms;
}

// (input, weight?, bias?, N, C, HxW, group, eps) -> output, mean, rstd
std::optional<Signature> group_norm(const OpSchema& schema) {
  Signature signature;
  const TensorMeta& meta = schema.spec(0).meta();
  const auto terms = number_groups(signature, schema, meta.shape(), 3);
  if (!terms) return std::nullopt;
  for (const std::size_t argument : {1, 2}) {
    if (!has_shape_if_given(schema, argument, terms->channels.sizes)) return std::nullopt;
  }
  signature.operands = {{terms->image}};
  add_optional_operand(signature, schema, 1, terms->channels);
  add_optional_operand(signature, schema, 2, terms->channels);
  signature.results = {image_result(terms->image, meta), {terms->groups}, {terms->groups}};
  return signature;
}

// (grad, input, mean, rstd, weight?, N, C, HxW, group, mask) -> of input, weight, bias
std::optional<Signature> group_norm_backward(const OpSchema& schema) {
  Signature signature;
  const TensorMeta& meta = schema.spec(1).meta();
  const auto terms = number_groups(signature, schema, meta.shape(), 5);
  if (!terms || schema.spec(0).shape() != meta.shape()) return std::nullopt;
  for (const std::size_t of_groups : {2, 3}) {
    if (schema.spec(of_groups).shape() != terms->groups.sizes) return std::nullopt;
  }
  if (!has_shape_if_given(schema, 4, terms->channels.sizes)) return std::nullopt;
  signature.operands = {
      {.term = terms->image, .is_linear = true}, {terms->image}, {terms->groups}, {terms->groups}};
  add_optional_operand(signature, schema, 4, terms->channels);
  signature.results = {image_result(terms->image, meta), {terms->channels}, {terms->channels}};
  return signature;
}

// Gradient of a norm over batches -----------------------------------------------------------------

// (grad, input, weight?, running_mean?, running_var?, mean?, deviation?, train, eps, mask, ...) ->
// of input, weight, bias. With fixed statistics every element is by itself; else the channels are.
std::optional<Signature> batch_norm_backward(const OpSchema& schema) {
  const TensorMeta& meta = schema.spec(1).meta();
  const Shape& shape = meta.shape();
  if (shape.size() < 2 || schema.spec(0).shape() != shape) return std::nullopt;
  Signature signature;
  const Term image = own_factors(signature, shape);
  if (schema.flag(7)) {
    std::fill(signature.is_whole.begin(), signature.is_whole.end(), true);
    signature.is_whole[1] = false;
  }
  signature.needs_elements = true;
  const Term channels{{image.factors[1]}, {shape[1]}};
  signature.operands = {{.term = image, .is_linear = true}, {image}};
  for (std::size_t tensor = 2; tensor < schema.tensors.size(); ++tensor) {
    if (!schema.has(tensor)) {
      signature.operands.push_back({.term = {}, .is_given = false});
      continue;
    }
    // statistics that were not needed have no elements
    const Shape& of_tensor = schema.spec(tensor).shape();
    const bool is_nothing = of_tensor == Shape{0};
    if (!is_nothing && of_tensor != channels.sizes) return std::nullopt;
    signature.operands.push_back({is_nothing ? Term{{kNoFactor}, of_tensor} : channels});
  }
  signature.results = {image_result(image, meta), {channels}, {channels}};
  return signature;
}

}  // namespace

void add_channels(RuleTable& rules) {
  rules.add("pixel_shuffle", "before the last three dims", pixel_shuffle(Shuffle::ToSpace),
            "f32[8, 12, 6, 10], upscale_factor=2");
  rules.add("pixel_unshuffle", "before the last three dims", pixel_shuffle(Shuffle::ToChannels),
            "f32[8, 3, 6, 10], downscale_factor=2");
  for (const char* op : {"channel_shuffle", "native_channel_shuffle"}) {
    rules.add(op, "all but the channels", channel_shuffle, "f32[8, 12, 6, 10], groups=3");
  }
  rules.add("glu", "within a dim", gated_unit, "f32[8, 6], dim=1");
  rules.add("glu_backward", "within a dim", gated_unit_backward, "f32[8, 3], f32[8, 6], dim=1");
  rules.add(
      "im2col", "n -> n", to_columns,
      "f32[8, 6, 10, 12], kernel_size=[2, 3], dilation=[1, 1], padding=[0, 0], stride=[1, 1]");
  rules.add("col2im", "n -> n", from_columns,
            "f32[8, 36, 90], output_size=[10, 12], kernel_size=[2, 3], dilation=[1, 1], "
            "padding=[0, 0], stride=[1, 1]");
  rules.add("native_group_norm", "over groups of channels", group_norm,
            "f32[8, 6, 10], weight=f32[6], bias=f32[6], N=8, C=6, HxW=10, group=3");
  rules.add("native_group_norm_backward", "over groups of channels", group_norm_backward,
            "f32[8, 6, 10], f32[8, 6, 10], mean=f32[8, 3], rstd=f32[8, 3], weight=f32[6], N=8, "
            "C=6, HxW=10, group=3");
  for (const char* op : {"native_batch_norm_backward", "batch_norm_backward"}) {
    rules.add(op, "over a batch", batch_norm_backward,
              "f32[8, 6, 10], f32[8, 6, 10], weight=f32[6], f32[6], f32[6], f32[6], f32[6], "
              "train=true");
  }
}

}  // namespace tegula::inner::families
