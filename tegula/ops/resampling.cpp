// Images sampled anew: interpolation to another size, sampling at the points of a grid, padding.
#include "tegula/ops/families.h"
#include "tegula/ops/images.h"
#include "tegula/rules/signatures.h"

namespace tegula::inner::families {
namespace {

// Interpolation -----------------------------------------------------------------------------------

// (self, output_size, ...)
SignatureOf interpolation(std::size_t space) {
  return [space](const OpSchema& schema) -> std::optional<Signature> {
    const TensorMeta& meta = schema.spec(0).meta();
    const Ints& output = schema.ints(1);
    if (meta.shape().size() != space + 2 || output.size() != space) return std::nullopt;
    Signature signature;
    const Term self = image_term(signature, meta.shape(), space);
    signature.operands = {{.term = self, .is_linear = is_linear_in(meta.dtype())}};
    signature.results = {image_result(with_space(self, output), meta)};
    return signature;
  };
}

// (grad, output_size, input_size, ...) -> of input_size
SignatureOf interpolation_backward(std::size_t space) {
  return [space](const OpSchema& schema) -> std::optional<Signature> {
    const TensorMeta& meta = schema.spec(0).meta();
    const Ints& input = schema.ints(2);
    if (meta.shape().size() != space + 2 || !has_same_channels(meta.shape(), input, space)) {
      return std::nullopt;
    }
    Signature signature;
    const Term grad = image_term(signature, meta.shape(), space);
    const Term result = with_space(grad, space_of(input, space));
    signature.operands = {{.term = grad, .is_linear = is_linear_in(meta.dtype())}};
    signature.results = {image_result(result, meta)};
    signature.size_arguments = {{2, result}};
    return signature;
  };
}

void add_interpolation(RuleTable& rules) {
  const auto add = [&](const std::string& op, std::size_t space) {
    const std::string sizes = space == 1 ? "5" : space == 2 ? "5, 6" : "5, 6, 7";
    const std::string wide = space == 1 ? "10" : space == 2 ? "10, 12" : "10, 12, 14";
    rules.add(op, "interpolation within space", interpolation(space),
              "f32[8, 6, " + wide + "], output_size=[" + sizes + "]");
    rules.add(
        op + "_backward", "gradient of interpolation", interpolation_backward(space),
        "f32[8, 6, " + sizes + "], output_size=[" + sizes + "], input_size=[8, 6, " + wide + "]");
  };
  add("upsample_linear1d", 1);
  add("upsample_nearest1d", 1);
  add("_upsample_nearest_exact1d", 1);
  for (const char* op : {"upsample_nearest2d", "_upsample_nearest_exact2d", "upsample_bilinear2d",
                         "upsample_bicubic2d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa",
                         "_upsample_lanczos2d_aa"}) {
    add(op, 2);
  }
  add("upsample_nearest3d", 3);
  add("_upsample_nearest_exact3d", 3);
  add("upsample_trilinear3d", 3);
}

// Grids -------------------------------------------------------------------------------------------

// An image, and a grid [n, space'..., coordinates] of the points to sample it at.
struct Sampling {
  Term image, grid, output;
};

std::optional<Sampling> number_dims(Signature& signature, const Shape& image, const Shape& grid) {
  const std::size_t space = image.size() - 2;
  if (image.size() < 4 || grid.size() != image.size() || grid[0] != image[0]) return std::nullopt;
  if (grid.back() != static_cast<std::int64_t>(space)) return std::nullopt;
  Sampling sampling{image_term(signature, image, space), {}, {}};
  sampling.grid = {{sampling.image.factors[0]}, grid};
  sampling.output = {{sampling.image.factors[0], sampling.image.factors[1]}, {image[0], image[1]}};
  for (std::size_t dim = 1; dim <= space; ++dim) {
    const Factor points = signature.add_factor(grid[dim]);
    sampling.grid.factors.push_back(points);
    sampling.output.factors.push_back(points);
    sampling.output.sizes.push_back(grid[dim]);
  }
  sampling.grid.factors.push_back(kNoFactor);
  return sampling;
}

// (input, grid, ...) -> output
std::optional<Signature> grid_sampler(const OpSchema& schema) {
  Signature signature;
  const auto sampling = number_dims(signature, schema.spec(0).shape(), schema.spec(1).shape());
  if (!sampling) return std::nullopt;
  signature.operands = {{.term = sampling->image, .is_linear = true}, {sampling->grid}};
  signature.results = {{sampling->output}};
  return signature;
}

// (grad, input, grid, ...) -> of input, of grid
std::optional<Signature> grid_sampler_backward(const OpSchema& schema) {
  Signature signature;
  const auto sampling = number_dims(signature, schema.spec(1).shape(), schema.spec(2).shape());
  if (!sampling || schema.spec(0).shape() != shape_of(sampling->output, signature)) {
    return std::nullopt;
  }
  signature.operands = {
      {.term = sampling->output, .is_linear = true}, {sampling->image}, {sampling->grid}};
  signature.results = {{sampling->image}, {sampling->grid}};
  return signature;
}

// (theta [n, d, d + 1], size [n, c, space...], ...) -> [n, space..., d]
std::optional<Signature> affine_grid(const OpSchema& schema) {
  const Shape& theta = schema.spec(0).shape();
  const Ints& size = schema.ints(1);
  if (theta.size() != 3 || size.size() < 4 || theta[0] != size[0]) return std::nullopt;
  const auto space = static_cast<std::int64_t>(size.size()) - 2;
  if (theta[1] != space || theta[2] != space + 1) return std::nullopt;
  Signature signature;
  const Factor batch = signature.add_factor(theta[0]);
  signature.operands = {{.term = {{batch, kNoFactor, kNoFactor}, theta}, .is_linear = true}};
  Term result{{batch}, {size[0]}};
  for (std::size_t dim = 2; dim < size.size(); ++dim) {
    result.factors.push_back(kNoFactor);
    result.sizes.push_back(size[dim]);
  }
  result.factors.push_back(kNoFactor);
  result.sizes.push_back(space);
  signature.results = {{result}};
  Term sizes{std::vector<Factor>(size.size(), kNoFactor), size};
  sizes.factors[0] = batch;
  signature.size_arguments = {{1, sizes}};
  return signature;
}

void add_grids(RuleTable& rules) {
  const std::string modes = ", interpolation_mode=0, padding_mode=0, align_corners=false";
  const std::string flat = "f32[8, 6, 10, 12], f32[8, 5, 7, 2]";
  const std::string deep = "f32[8, 6, 10, 12, 14], f32[8, 5, 7, 9, 3]";
  for (const char* op : {"grid_sampler_2d", "_grid_sampler_2d_cpu_fallback"}) {
    rules.add(op, "nc, nxy -> ncxy", grid_sampler, flat + modes);
  }
  rules.add("grid_sampler_3d", "nc, nxyz -> ncxyz", grid_sampler, deep + modes);
  rules.add("grid_sampler_2d_backward", "ncxy, nc, nxy -> nc, nxy", grid_sampler_backward,
            "f32[8, 6, 5, 7], " + flat + modes);
  rules.add("grid_sampler_3d_backward", "ncxyz, nc, nxyz -> nc, nxyz", grid_sampler_backward,
            "f32[8, 6, 5, 7, 9], " + deep + modes);
  rules.add("affine_grid_generator", "n -> n", affine_grid,
            "f32[8, 2, 3], size=[8, 6, 10, 12], align_corners=false");
}

// Padding -----------------------------------------------------------------------------------------

// Pads of the last dims, the last first, a pair for each: the shape that comes of it; none if
// nothing is left of a dim.
std::optional<Shape> padded(const Shape& shape, const Ints& pad) {
  if (pad.size() % 2 != 0 || pad.size() > 2 * shape.size()) return std::nullopt;
  Shape result = shape;
  for (std::size_t k = 0; k < pad.size() / 2; ++k) {
    std::int64_t& size = result[shape.size() - 1 - k];
    size += pad[2 * k] + pad[2 * k + 1];
    if (size <= 0) return std::nullopt;
  }
  return result;
}

// Dims that are not padded are free. The longer side is what a padded dim becomes.
struct Padding {
  Term before, after;
};

Padding number_padded_dims(Signature& signature, const Shape& before, const Shape& after,
                           const Ints& pad) {
  Padding terms;
  for (std::size_t dim = 0; dim < before.size(); ++dim) {
    const std::size_t k = before.size() - 1 - dim;
    const bool is_padded = k < pad.size() / 2 && (pad[2 * k] != 0 || pad[2 * k + 1] != 0);
    const Factor factor = is_padded ? kNoFactor : signature.add_factor(before[dim]);
    terms.before.factors.push_back(factor);
    terms.after.factors.push_back(factor);
  }
  terms.before.sizes = before;
  terms.after.sizes = after;
  return terms;
}

// (self, pad, value): not linear, since no decision depends on the value.
std::optional<Signature> constant_pad(const OpSchema& schema) {
  const TensorMeta& meta = schema.spec(0).meta();
  const auto after = padded(meta.shape(), schema.ints(1));
  if (!after) return std::nullopt;
  Signature signature;
  const Padding terms = number_padded_dims(signature, meta.shape(), *after, schema.ints(1));
  signature.operands = {{terms.before}};
  signature.results = {image_result(terms.after, meta)};
  return signature;
}

// (self, padding): what is put around are elements of the same channel.
SignatureOf mirroring_pad(std::size_t space) {
  return [space](const OpSchema& schema) -> std::optional<Signature> {
    const TensorMeta& meta = schema.spec(0).meta();
    const Ints& pad = schema.ints(1);
    const auto after = padded(meta.shape(), pad);
    if (!is_image(meta.shape(), space) || pad.size() != 2 * space || !after) return std::nullopt;
    Signature signature;
    const Padding terms = number_padded_dims(signature, meta.shape(), *after, pad);
    signature.needs_elements = true;
    if (meta.shape().size() == space + 2) signature.may_be_empty = {terms.before.factors[0]};
    signature.operands = {{.term = terms.before, .is_linear = true}};
    signature.results = {image_result(terms.after, meta)};
    return signature;
  };
}

// (grad, self, padding) -> of self
SignatureOf mirroring_pad_backward(std::size_t space) {
  return [space](const OpSchema& schema) -> std::optional<Signature> {
    const TensorMeta& meta = schema.spec(1).meta();
    const Ints& pad = schema.ints(2);
    const auto after = padded(meta.shape(), pad);
    if (!is_image(meta.shape(), space) || pad.size() != 2 * space || !after) return std::nullopt;
    if (schema.spec(0).shape() != *after) return std::nullopt;
    Signature signature;
    const Padding terms = number_padded_dims(signature, meta.shape(), *after, pad);
    signature.needs_elements = true;
    if (meta.shape().size() == space + 2) signature.may_be_empty = {terms.before.factors[0]};
    signature.operands = {{.term = terms.after, .is_linear = true}, {terms.before}};
    signature.results = {image_result(terms.before, meta)};
    return signature;
  };
}

void add_padding(RuleTable& rules) {
  rules.add("constant_pad_nd", "dims that are not padded", constant_pad,
            "f32[8, 6, 10, 12], pad=[1, 2, 0, 0], value=0");
  for (std::size_t space = 1; space <= 3; ++space) {
    const std::string d = std::to_string(space) + "d";
    const std::string self = space == 1   ? "[8, 6, 10]"
                             : space == 2 ? "[8, 6, 10, 12]"
                                          : "[8, 6, 10, 12, 14]";
    const std::string after = space == 1   ? "[8, 6, 12]"
                              : space == 2 ? "[8, 6, 12, 14]"
                                           : "[8, 6, 12, 14, 16]";
    const std::string pad = space == 1   ? "[1, 1]"
                            : space == 2 ? "[1, 1, 1, 1]"
                                         : "[1, 1, 1, 1, 1, 1]";
    for (const std::string kind : {"reflection_pad", "replication_pad"}) {
      rules.add(kind + d, "dims that are not padded", mirroring_pad(space),
                "f32" + self + ", padding=" + pad);
      rules.add(kind + d + "_backward", "dims that are not padded", mirroring_pad_backward(space),
                "f32" + after + ", f32" + self + ", padding=" + pad);
    }
  }
}

}  // namespace

void add_resampling(RuleTable& rules) {
  add_interpolation(rules);
  add_grids(rules);
  add_padding(rules);
}

}  // namespace tegula::inner::families
