// Pooling: within the space of one channel. Indices count the elements of that space, so that they
// do not depend on cuts of batch and channels.
#include "tegula/ops/families.h"
#include "tegula/ops/images.h"
#include "tegula/rules/signatures.h"

namespace tegula::inner::families {
namespace {

// What a pool gives besides values, and what a sum that is owed makes of it.
enum class Pool { Average, MaxWithIndices };

// An image to images of another space.
std::optional<Signature> pooled(const OpSchema& schema, Pool pool, std::size_t space,
                                const Shape& output) {
  Signature signature;
  const TensorMeta& meta = schema.spec(0).meta();
  const Term self = image_term(signature, meta.shape(), space);
  signature.operands = {
      {.term = self, .is_linear = pool == Pool::Average && is_linear_in(meta.dtype())}};
  const Result result = image_result(with_space(self, output), meta);
  signature.results = {result};
  if (pool == Pool::MaxWithIndices) signature.results.push_back(result);
  return signature;
}

// (self, kernel_size, stride, padding, ...): a window without dilation, or the one that follows.
SignatureOf window_pool(Pool pool, std::size_t space) {
  return [pool, space](const OpSchema& schema) -> std::optional<Signature> {
    const Shape& shape = schema.spec(0).shape();
    if (!is_image(shape, space)) return std::nullopt;
    const bool dilates = pool == Pool::MaxWithIndices;
    const Window window{schema.ints(1), schema.ints(2), schema.ints(3),
                        dilates ? schema.ints(4) : Ints{1}, schema.flag(dilates ? 5 : 4)};
    const std::optional<Shape> output = places_of(window, space_of(shape, space));
    return output ? pooled(schema, pool, space, *output) : std::nullopt;
  };
}

// (self, output_size)
SignatureOf adaptive_pool(Pool pool, std::size_t space) {
  return [pool, space](const OpSchema& schema) -> std::optional<Signature> {
    const Ints& output = schema.ints(1);
    if (!is_image(schema.spec(0).shape(), space) || output.size() != space) return std::nullopt;
    return pooled(schema, pool, space, output);
  };
}

// (grad, self, ..., indices?): of self. The tensors stand in this order.
SignatureOf pool_backward(std::size_t space) {
  return [space](const OpSchema& schema) -> std::optional<Signature> {
    const Shape& grad = schema.spec(0).shape();
    const TensorMeta& meta = schema.spec(1).meta();
    if (!is_image(meta.shape(), space) || !has_same_channels(grad, meta.shape(), space)) {
      return std::nullopt;
    }
    Signature signature;
    const Term self = image_term(signature, meta.shape(), space);
    const Term output = with_space(self, space_of(grad, space));
    signature.operands = {{.term = output, .is_linear = is_linear_in(meta.dtype())}, {self}};
    if (schema.tensors.size() == 3) {
      if (schema.spec(2).shape() != grad) return std::nullopt;
      signature.operands.push_back({output});
    }
    signature.results = {image_result(self, meta)};
    return signature;
  };
}

// (self, kernel_size, output_size, random_samples [n, c, space]) -> output, indices
SignatureOf fractional_pool(std::size_t space) {
  return [space](const OpSchema& schema) -> std::optional<Signature> {
    const Shape& shape = schema.spec(0).shape();
    const Shape& samples = schema.spec(1).shape();
    const Ints& output = schema.ints(2);
    if (!is_image(shape, space) || output.size() != space) return std::nullopt;
    const bool is_batch = shape.size() == space + 2;
    const Shape expected{is_batch ? shape[0] : 1, shape[shape.size() - space - 1],
                         static_cast<std::int64_t>(space)};
    if (samples != expected) return std::nullopt;
    Signature signature;
    const Term self = image_term(signature, shape, space);
    const Factor channels = self.factors[shape.size() - space - 1];
    signature.operands = {
        {self}, {{{is_batch ? self.factors[0] : kNoFactor, channels, kNoFactor}, samples}}};
    signature.results = {{with_space(self, output)}, {with_space(self, output)}};
    return signature;
  };
}

// (self, indices, output_size, ...) -> of this size
SignatureOf unpool(std::size_t space) {
  return [space](const OpSchema& schema) -> std::optional<Signature> {
    const TensorMeta& meta = schema.spec(0).meta();
    const Ints& output = schema.ints(2);
    if (!is_image(meta.shape(), space) || output.size() != space) return std::nullopt;
    if (schema.spec(1).shape() != meta.shape()) return std::nullopt;
    Signature signature;
    const Term self = image_term(signature, meta.shape(), space);
    signature.operands = {{self}, {self}};
    signature.results = {image_result(with_space(self, output), meta)};
    return signature;
  };
}

// Examples, with the lists that an operator of so many dims of space takes.
std::string image_text(std::size_t space, const std::string& dtype = "f32") {
  return dtype + (space == 2 ? "[8, 6, 10, 12]" : "[8, 6, 10, 12, 14]");
}
std::string output_text(std::size_t space, const std::string& dtype = "f32") {
  return dtype + (space == 2 ? "[8, 6, 5, 6]" : "[8, 6, 5, 6, 7]");
}
std::string list_of(std::size_t space, const std::string& entry) {
  return "[" + entry + ", " + entry + (space == 2 ? "" : ", " + entry) + "]";
}

void add_pools(RuleTable& rules, std::size_t space) {
  const std::string d = std::to_string(space) + "d";
  const std::string two = list_of(space, "2");
  const std::string none = list_of(space, "0");
  const std::string one = list_of(space, "1");
  const std::string windows = ", kernel_size=" + two + ", stride=" + two + ", padding=" + none;
  const std::string self = image_text(space);
  const std::string both = output_text(space) + ", " + self;
  const std::string size = space == 2 ? "[5, 6]" : "[5, 6, 7]";

  rules.add("avg_pool" + d, "pooling within space", window_pool(Pool::Average, space),
            self + windows + ", ceil_mode=false");
  rules.add("avg_pool" + d + "_backward", "gradient of pooling", pool_backward(space),
            both + windows);
  rules.add("max_pool" + d + "_with_indices", "pooling within space",
            window_pool(Pool::MaxWithIndices, space),
            self + windows + ", dilation=" + one + ", ceil_mode=false");
  rules.add("max_pool" + d + "_with_indices_backward", "gradient of pooling", pool_backward(space),
            both + windows + ", dilation=" + one +
                ", ceil_mode=false, indices=" + output_text(space, "i64"));
  rules.add("_adaptive_avg_pool" + d, "pooling within space", adaptive_pool(Pool::Average, space),
            self + ", output_size=" + size);
  rules.add("adaptive_avg_pool" + d, "pooling within space", adaptive_pool(Pool::Average, space),
            self + ", output_size=" + size);
  rules.add("_adaptive_avg_pool" + d + "_backward", "gradient of pooling", pool_backward(space),
            both);
  rules.add("adaptive_max_pool" + d, "pooling within space",
            adaptive_pool(Pool::MaxWithIndices, space), self + ", output_size=" + size);
  rules.add("adaptive_max_pool" + d + "_backward", "gradient of pooling", pool_backward(space),
            both + ", indices=" + output_text(space, "i64"));
  rules.add("fractional_max_pool" + d, "pooling within space", fractional_pool(space),
            self + ", kernel_size=" + two + ", output_size=" + size + ", f32[8, 6, " +
                std::to_string(space) + "]");
  rules.add("fractional_max_pool" + d + "_backward", "gradient of pooling", pool_backward(space),
            both + ", kernel_size=" + two + ", output_size=" + size +
                ", indices=" + output_text(space, "i64"));
  rules.add("max_unpool" + d, "pooling undone within space", unpool(space),
            output_text(space) + ", " + output_text(space, "i64") +
                ", output_size=" + (space == 2 ? "[10, 12]" : "[10, 12, 14]"));
}

}  // namespace

void add_pooling(RuleTable& rules) {
  add_pools(rules, 2);
  add_pools(rules, 3);
}

}  // namespace tegula::inner::families
