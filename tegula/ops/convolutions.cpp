// Convolutions: linear in the image and in the weight. A cut of the input channels leaves a sum;
// a cut of the output channels cuts the weight and the bias. Space stays whole where the kernel has
// more than one element.
#include "tegula/ops/families.h"
#include "tegula/ops/images.h"
#include "tegula/rules/signatures.h"

namespace tegula::inner::families {
namespace {

// Where the arguments stand, counted from the tensors' last.
struct ConvolutionArguments {
  std::size_t stride = 3;  // padding, dilation, transposed, output padding, groups follow
  std::size_t padding() const { return stride + 1; }
  std::size_t dilation() const { return stride + 2; }
  std::size_t transposed() const { return stride + 3; }
  std::size_t output_padding() const { return stride + 4; }
  std::size_t groups() const { return stride + 5; }
};

// How a convolution maps dims, in numbers.
struct Convolution {
  Ints stride, padding, dilation, output_padding;
  bool is_transposed = false;
  std::int64_t groups = 1;
};

Convolution convolution_at(const OpSchema& schema, const ConvolutionArguments& at) {
  return {schema.ints(at.stride),       schema.ints(at.padding()),
          schema.ints(at.dilation()),   schema.ints(at.output_padding()),
          schema.flag(at.transposed()), schema.integer(at.groups())};
}

// The space of the output; none if libtorch refuses the numbers.
std::optional<Shape> output_space(const Convolution& conv, const Shape& input,
                                  const Shape& kernel) {
  if (!conv.is_transposed) {
    return places_of({kernel, conv.stride, conv.padding, conv.dilation}, input);
  }
  for (const Ints* list : {&conv.stride, &conv.padding, &conv.dilation, &conv.output_padding}) {
    if (list->size() != 1 && list->size() != input.size()) return std::nullopt;
  }
  Shape output;
  for (std::size_t dim = 0; dim < input.size(); ++dim) {
    const std::int64_t size =
        (input[dim] - 1) * entry_at(conv.stride, dim) - 2 * entry_at(conv.padding, dim) +
        entry_at(conv.dilation, dim) * (kernel[dim] - 1) + entry_at(conv.output_padding, dim) + 1;
    if (size <= 0) return std::nullopt;
    output.push_back(size);
  }
  return output;
}

// Whether each place of a dim of space is computed from itself alone.
bool is_pointwise(const Convolution& conv, std::int64_t kernel, std::size_t dim) {
  return kernel == 1 && entry_at(conv.stride, dim) == 1 && entry_at(conv.padding, dim) == 0 &&
         (!conv.is_transposed || entry_at(conv.output_padding, dim) == 0);
}

// The tensors of a convolution and of its gradient.
struct ConvolutionTerms {
  Term input, weight, output, bias;
  // The number of groups is that of the channels, which may be cut: each channel by itself.
  bool is_depthwise = false;
};

std::optional<ConvolutionTerms> number_dims(Signature& signature, const Convolution& conv,
                                            const Shape& input, const Shape& weight) {
  if (input.size() != weight.size() || input.size() < 3 || conv.groups < 1) return std::nullopt;
  const std::size_t space = input.size() - 2;
  const std::optional<Shape> output =
      output_space(conv, space_of(input, space), space_of(weight, space));
  if (!output) return std::nullopt;
  const std::size_t of_inputs = conv.is_transposed ? 0 : 1;  // dims of the weight
  const std::size_t of_outputs = 1 - of_inputs;
  const std::int64_t inputs = weight[of_inputs] * (conv.is_transposed ? 1 : conv.groups);
  const std::int64_t outputs = weight[of_outputs] * (conv.is_transposed ? conv.groups : 1);
  if (inputs != input[1] || inputs == 0 || outputs == 0) return std::nullopt;

  ConvolutionTerms terms;
  terms.input = image_term(signature, input, space);
  terms.weight = {std::vector<Factor>(weight.size(), kNoFactor), weight};
  const Factor channels = terms.input.factors[1];
  Factor output_channels = kNoFactor;
  terms.is_depthwise = conv.groups > 1 && conv.groups == inputs && conv.groups == outputs;
  if (conv.groups == 1) {
    output_channels = signature.add_factor(outputs);
    terms.weight.factors[of_inputs] = channels;
    terms.weight.factors[of_outputs] = output_channels;
  } else if (terms.is_depthwise) {
    output_channels = channels;
    terms.weight.factors[0] = channels;
  } else {
    signature.is_whole[static_cast<std::size_t>(channels)] = true;
  }
  terms.bias = {{output_channels}, {outputs}};
  terms.output = with_space(terms.input, *output);
  terms.output.factors[1] = output_channels;
  terms.output.sizes[1] = outputs;
  for (std::size_t dim = 0; dim < space; ++dim) {
    if (!is_pointwise(conv, weight[2 + dim], dim)) continue;
    const Factor factor = terms.input.factors[2 + dim];
    signature.is_whole[static_cast<std::size_t>(factor)] = false;
    terms.output.factors[2 + dim] = factor;
  }
  return terms;
}

// libtorch computes with channels innermost if the image or the weight lies so.
const TensorMeta& leading_format(const TensorMeta& image, const TensorMeta& weight) {
  return channels_last_order(image).empty() ? weight : image;
}

// image * weight + bias -> output, the bias at an argument that may be left out.
std::optional<Signature> forward(const OpSchema& schema, const Convolution& conv,
                                 std::size_t bias) {
  Signature signature;
  const auto terms = number_dims(signature, conv, schema.spec(0).shape(), schema.spec(1).shape());
  if (!terms || !has_shape_if_given(schema, bias, terms->bias.sizes)) return std::nullopt;
  signature.operands = {{.term = terms->input, .is_linear = true},
                        {.term = terms->weight, .is_linear = true}};
  add_optional_operand(signature, schema, bias, terms->bias);
  if (signature.operands.size() == 3 && signature.operands[2].is_given) {
    signature.operands[2].is_linear = true;
    signature.operands[2].product = 1;
  }
  signature.results = {
      image_result(terms->output, leading_format(schema.spec(0).meta(), schema.spec(1).meta()))};
  if (terms->is_depthwise) {
    signature.size_arguments = {{ConvolutionArguments{bias + 1}.groups(), terms->bias}};
  }
  return signature;
}

// (input, weight, bias?, stride, padding, dilation, transposed, output_padding, groups) -> output
std::optional<Signature> convolution(const OpSchema& schema) {
  return forward(schema, convolution_at(schema, ConvolutionArguments{3}), 2);
}

// (grad, input, weight, bias_sizes?, stride, ..., groups, mask) -> of input, weight, bias
std::optional<Signature> convolution_backward(const OpSchema& schema) {
  const ConvolutionArguments at{4};
  Signature signature;
  const auto terms = number_dims(signature, convolution_at(schema, at), schema.spec(1).shape(),
                                 schema.spec(2).shape());
  if (!terms || schema.spec(0).shape() != shape_of(terms->output, signature)) return std::nullopt;
  enum : std::size_t { kGrad, kInput, kWeight };
  signature.operands = {
      {.term = terms->output, .is_linear = true}, {terms->input}, {terms->weight}};
  const TensorMeta& format = leading_format(schema.spec(1).meta(), schema.spec(2).meta());
  signature.results = {
      image_result(terms->input, format), image_result(terms->weight, format), {terms->bias}};
  signature.results[0].reads = {kGrad, kWeight};
  signature.results[1].reads = {kGrad, kInput};
  signature.results[2].reads = {kGrad};
  if (!schema.is_none(3) && schema.ints(3) == terms->bias.sizes) {
    signature.size_arguments.push_back({3, terms->bias});
  }
  if (terms->is_depthwise) signature.size_arguments.push_back({at.groups(), terms->bias});
  return signature;
}

// libtorch's own convolutions for one backend: (self, weight, kernel_size, bias?, stride, padding)
// -> output, or with more arguments that say how it is transposed or dilated.
enum class Kind { Plain, Transposed, Dilated };

SignatureOf slow_convolution(Kind kind) {
  return [kind](const OpSchema& schema) -> std::optional<Signature> {
    Convolution conv{schema.ints(4), schema.ints(5), {1}, {0}, kind == Kind::Transposed};
    if (kind == Kind::Dilated) conv.dilation = schema.ints(6);
    if (kind == Kind::Transposed) {
      conv.output_padding = schema.ints(6);
      conv.dilation = schema.ints(7);
    }
    std::optional<Signature> signature = forward(schema, conv, 3);
    if (signature && kind == Kind::Transposed) signature->may_be_empty.clear();
    return signature;
  };
}

// (self [t, b, i], weight [k, i, o], bias [o], pad) -> [t', b, o]
std::optional<Signature> convolution_over_time(const OpSchema& schema) {
  const Shape& self = schema.spec(0).shape();
  const Shape& weight = schema.spec(1).shape();
  if (self.size() != 3 || weight.size() != 3 || self[2] != weight[1]) return std::nullopt;
  if (schema.spec(2).shape() != Shape{weight[2]}) return std::nullopt;
  const std::int64_t steps = self[0] + 2 * schema.integer(3) - weight[0] + 1;
  if (steps <= 0) return std::nullopt;
  Signature signature;
  const Factor batch = signature.add_factor(self[1]);
  const Factor inputs = signature.add_factor(self[2]);
  const Factor outputs = signature.add_factor(weight[2]);
  signature.operands = {{.term = {{kNoFactor, batch, inputs}, self}, .is_linear = true},
                        {.term = {{kNoFactor, inputs, outputs}, weight}, .is_linear = true},
                        {.term = {{outputs}, {weight[2]}}, .is_linear = true, .product = 1}};
  signature.results = {{{{kNoFactor, batch, outputs}, {steps, self[1], weight[2]}}}};
  return signature;
}

}  // namespace

void add_convolutions(RuleTable& rules) {
  const std::string numbers =
      "stride=[1, 1], padding=[1, 1], dilation=[1, 1], transposed=false, output_padding=[0, 0], "
      "groups=1";
  rules.add("convolution", "ni * oi + o -> no", convolution,
            "f32[8, 4, 10, 12], f32[6, 4, 3, 3], bias=f32[6], " + numbers);
  rules.add("convolution_backward", "no, ni, oi -> ni, oi, o", convolution_backward,
            "f32[8, 6, 10, 12], f32[8, 4, 10, 12], f32[6, 4, 3, 3], bias_sizes=[6], " + numbers);
  const std::string image = "f32[8, 4, 10, 12], f32[6, 4, 3, 3], kernel=[3, 3], bias=f32[6], ";
  rules.add("_slow_conv2d_forward", "ni * oi + o -> no", slow_convolution(Kind::Plain),
            image + "stride=[1, 1], padding=[1, 1]");
  rules.add("slow_conv3d_forward", "ni * oi + o -> no", slow_convolution(Kind::Plain),
            "f32[8, 4, 9, 10, 12], f32[6, 4, 3, 3, 3], kernel=[3, 3, 3], bias=f32[6], "
            "stride=[1, 1, 1], padding=[1, 1, 1]");
  for (const char* op : {"slow_conv_dilated2d", "slow_conv_dilated3d"}) {
    rules.add(op, "ni * oi + o -> no", slow_convolution(Kind::Dilated),
              image + "stride=[1, 1], padding=[1, 1], dilation=[1, 1]");
  }
  for (const char* op : {"slow_conv_transpose2d", "slow_conv_transpose3d"}) {
    rules.add(op, "ni * io + o -> no", slow_convolution(Kind::Transposed),
              "f32[8, 4, 10, 12], f32[4, 6, 3, 3], kernel=[3, 3], bias=f32[6], stride=[1, 1], "
              "padding=[1, 1], output_padding=[0, 0], dilation=[1, 1]");
  }
  rules.add("conv_tbc", "tbi * kio + o -> sbo", convolution_over_time,
            "f32[12, 8, 4], f32[3, 4, 6], f32[6], pad=1");
}

}  // namespace tegula::inner::families
