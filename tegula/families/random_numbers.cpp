// Random numbers element by element: they go by global element index, so they do not care which
// tile they fill. Ops that are not here and draw are computed whole (dispatch/whole_calls.cpp).
#include <ATen/ATen.h>

#include <cmath>
#include <map>

#include "tegula/bridge/torch_types.h"
#include "tegula/families/families.h"
#include "tegula/families/fresh_tensors.h"
#include "tegula/gradient/differentiable.h"
#include "tegula/operators/call.h"
#include "tegula/random/random_fill.h"
#include "tegula/redistribute/tile_layout.h"
#include "tegula/spec/placed_otherwise.h"

namespace tegula::inner::families {
namespace {

double number(Arguments arguments, std::size_t index) {
  return arguments[index].toScalar().toDouble();
}

// The next draw of a call: of the generator that was passed, or of the mesh.
Draw draw_of(Arguments arguments, const std::optional<std::size_t>& generator,
             const Payload& payload) {
  const DeviceMesh& mesh = payload.spec().mesh();
  if (generator && !arguments[*generator].isNone()) {
    return next_draw(payload.world(), mesh, arguments[*generator].toGenerator());
  }
  return next_draw(payload.world(), mesh);
}

// Of complex numbers libtorch draws real and imaginary parts, and only from these.
bool can_draw(at::ScalarType type, const Distribution& distribution) {
  return !at::isComplexType(type) || std::holds_alternative<Uniform>(distribution) ||
         std::holds_alternative<Normal>(distribution);
}

// The variance of a complex number is that of both parts together.
Distribution of_parts(Distribution distribution) {
  if (auto* normal = std::get_if<Normal>(&distribution)) normal->std /= std::sqrt(2.0);
  return distribution;
}

at::Tensor plain_like(const at::Tensor& outer) {
  return at::empty(outer.sizes(), at::TensorOptions(outer.scalar_type()));
}

// In place ------------------------------------------------------------------------------------

void draw_elements(const at::Tensor& outer, const Distribution& distribution, const Draw& draw) {
  if (outer.is_complex()) {
    return draw_elements(at::view_as_real(outer), of_parts(distribution), draw);
  }
  const PayloadPtr payload = payload_of(outer);
  const std::optional<Coordinate> at = payload->coordinate();
  if (at && holds_values(*payload)) {
    fill_random(payload->tile(), payload->spec(), *at, distribution, draw);
  } else if (at) {
    const at::Tensor whole = plain_like(outer);
    fill_random(whole, distribution, draw);
    payload->write(whole);
  }
}

using DistributionOf = Distribution (*)(Arguments);

template <DistributionOf distribution>
Recipe draw_into(const Call& call) {
  const at::Tensor self = call.arguments()[0].toTensor();
  if (!payload_in(self) || !can_draw(self.scalar_type(), distribution(call.arguments()))) {
    return nullptr;
  }
  return [generator = call.facts().generator](Arguments arguments) -> Values {
    const at::Tensor& outer = arguments[0].toTensor();
    const Draw draw = draw_of(arguments, generator, *payload_in(outer));
    draw_elements(outer, distribution(arguments), draw);
    return {outer};
  };
}

// ... into what is passed as out=, the last argument.
template <DistributionOf distribution>
Recipe draw_into_out(const Call& call) {
  const at::Tensor given = call.arguments().back().toTensor();
  if (!payload_in(given) || given.sizes() != call.arguments()[0].toTensor().sizes() ||
      !can_draw(given.scalar_type(), distribution(call.arguments()))) {
    return nullptr;
  }
  return [generator = call.facts().generator](Arguments arguments) -> Values {
    const at::Tensor& out = arguments.back().toTensor();
    const Draw draw = draw_of(arguments, generator, *payload_in(out));
    draw_elements(out, distribution(arguments), draw);
    return {out};
  };
}

Distribution uniform(Arguments a) { return Uniform{number(a, 1), number(a, 2)}; }
Distribution normal(Arguments a) { return Normal{number(a, 1), number(a, 2)}; }
Distribution log_normal(Arguments a) { return LogNormal{number(a, 1), number(a, 2)}; }
Distribution cauchy(Arguments a) { return Cauchy{number(a, 1), number(a, 2)}; }
Distribution exponential(Arguments a) { return Exponential{number(a, 1)}; }
Distribution geometric(Arguments a) { return Geometric{number(a, 1)}; }
Distribution bernoulli_p(Arguments a) { return Bernoulli{number(a, 1)}; }
Distribution integers(Arguments) { return Integers{}; }
Distribution integers_below(Arguments a) { return Integers{0, a[1].toInt()}; }
Distribution integers_between(Arguments a) {
  return Integers{a[1].toInt(), a[2].isNone() ? std::nullopt : std::optional(a[2].toInt())};
}
Distribution standard_uniform(Arguments) { return Uniform{}; }
Distribution standard_normal(Arguments) { return Normal{}; }

// The tile of another tensor of the same shape, placed as this one. All ranks of the mesh call it.
at::Tensor tile_placed_as(const Payload& payload, const at::Tensor& other) {
  const DTensorSpec& spec = payload.spec();
  const at::Tensor moved =
      move_to(other, spec.with_meta(dense(payload_in(other)->spec().meta())), CallMode::Sync, {});
  return payload_in(moved)->tile();
}

Recipe bernoulli_in_place_from(const Call& call) {
  if (!call.tensors().front().payload) return nullptr;
  return [generator = call.facts().generator](Arguments arguments) -> Values {
    const at::Tensor& outer = arguments[0].toTensor();
    const PayloadPtr payload = payload_of(outer);
    const at::Tensor& p = arguments[1].toTensor();
    const PayloadPtr p_payload = payload_of(p);
    const Draw draw = draw_of(arguments, generator, *payload);
    const std::optional<Coordinate> at = payload->coordinate();
    if (at && holds_values(*payload) && p_payload && p.sizes() == outer.sizes()) {
      fill_bernoulli(payload->tile(), payload->spec(), *at, tile_placed_as(*payload, p), draw);
    } else if (at) {
      const at::Tensor whole = plain_like(outer);
      fill_bernoulli(whole, p_payload ? p_payload->whole() : p, draw);
      payload->write(whole);
    }
    return {outer};
  };
}

// Like another --------------------------------------------------------------------------------

template <DistributionOf distribution>
Recipe drawn_like(const Call& call) {
  if (!makes_tensor_like_self(call)) return nullptr;
  const DTensorSpec spec = spec_like_self(call);
  if (!can_draw(scalar_type_of(spec.meta().dtype()), distribution(call.arguments()))) {
    return nullptr;
  }
  return [spec, generator = call.facts().generator](Arguments arguments) -> Values {
    const Payload& self = *payload_in(arguments[0].toTensor());
    const at::Tensor drawn = outer_tensor(fresh_tile(spec, self.world()), spec, self.world());
    draw_elements(drawn, distribution(arguments), draw_of(arguments, generator, self));
    return {drawn};
  };
}

// From an operand -----------------------------------------------------------------------------

// The operand in the form in which a result is computed element by element: its tile, or the whole
// if reductions are owed or it has no tile of its own.
struct Operand {
  explicit Operand(const Payload& self)
      : at(self.coordinate()),
        spec(holds_values(self) ? self.spec() : replicated_spec(self.spec())),
        data(!at ? no_tile(spec) : (holds_values(self) ? self.tile() : self.whole())) {}
  std::optional<Coordinate> at;
  DTensorSpec spec;
  at::Tensor data;

  // What was computed from an operand that may have gaps is laid out without them.
  at::Tensor outer_result(const at::Tensor& tile, const DTensorSpec& result,
                          const World& world) const {
    return outer_tensor(at ? in_tile_layout(tile, result, *at) : no_tile(result), result, world);
  }
};

Recipe bernoulli(const Call& call) {
  if (!call.tensors().front().payload) return nullptr;
  return [generator = call.facts().generator](Arguments arguments) -> Values {
    const at::Tensor& outer = arguments[0].toTensor();
    const PayloadPtr payload = payload_of(outer);
    const Operand p(*payload);
    const Draw draw = draw_of(arguments, generator, *payload);
    const at::Tensor tile = at::empty_like(p.data);
    if (p.at) fill_bernoulli(tile, p.spec, *p.at, p.data, draw);
    const DTensorSpec spec = p.spec.with_meta(dense(meta_of(outer)));
    return {p.outer_result(tile, spec, payload->world())};
  };
}

// By other ops on DTensors -----------------------------------------------------------------------

std::optional<at::Generator> generator_in(Arguments arguments, std::size_t index) {
  return arguments[index].toOptional<at::Generator>();
}

// Whether this rank has no part in the tensor, and so cannot look at it.
bool is_outside(const at::Tensor& tensor) {
  const Payload* payload = payload_in(tensor);
  return payload && !payload->coordinate();
}

// (mean, std, generator): one of the two may be a number.
Recipe normal_around(const Call& call) {
  const auto type_at = [&](std::size_t index) {
    const c10::IValue& value = call.arguments()[index];
    return value.isTensor() ? value.toTensor().scalar_type() : at::kFloat;
  };
  if (!at::isFloatingType(type_at(0)) || !at::isFloatingType(type_at(1))) return nullptr;
  return [](Arguments arguments) -> Values {
    const auto tensor_or_number = [&](std::size_t index) {
      const c10::IValue& value = arguments[index];
      return value.isTensor() ? value.toTensor() : at::scalar_tensor(value.toScalar());
    };
    const at::Tensor mean = tensor_or_number(0);
    const at::Tensor std = tensor_or_number(1);
    TORCH_CHECK(is_outside(std) || std.numel() == 0 || at::min(std).item<double>() >= 0,
                "normal expects all elements of std >= 0.0");
    const at::Tensor like = arguments[0].isTensor() ? at::add(mean, std).to(mean.scalar_type())
                                                    : at::add(std, mean).to(std.scalar_type());
    const at::Tensor drawn = at::empty_like(like).normal_(0, 1, generator_in(arguments, 2));
    return {drawn.mul_(std).add_(mean)};
  };
}

// (self, num_samples, replacement, generator): the greatest of probability / exponential, as
// libtorch does it. With replacement it draws several from one distribution, row by row.
Recipe multinomial(const Call& call) {
  const at::Tensor self = call.arguments()[0].toTensor();
  const std::int64_t samples = call.arguments()[1].toInt();
  const bool replaces = call.arguments()[2].toBool() && samples > 1;
  const bool fits = (self.dim() == 1 || self.dim() == 2) &&
                    at::isFloatingType(self.scalar_type()) && samples > 0 &&
                    samples <= self.size(-1) && self.numel() > 0;
  if (replaces || !fits || !payload_in(self)) return nullptr;
  return [](Arguments arguments) -> Values {
    const at::Tensor& p = arguments[0].toTensor();
    TORCH_CHECK(is_outside(p) || at::isfinite(p).logical_and(p.ge(0)).all().item<bool>(),
                "probability tensor contains either `inf`, `nan` or element < 0");
    TORCH_CHECK(is_outside(p) || !p.sum(-1).eq(0).any().item<bool>(),
                "invalid multinomial distribution (sum of probabilities <= 0)");
    const at::Tensor waits = at::empty_like(p).exponential_(1, generator_in(arguments, 3));
    const at::Tensor order = at::div(p, waits);
    const std::int64_t count = arguments[1].toInt();
    if (count == 1) return {at::argmax(order, -1, true)};
    return {std::get<1>(at::topk(order, count))};
  };
}

// (self, noise, lower, upper, training, generator) -> output; what is not positive is multiplied by
// a random number, which is the noise.
struct LeakyOutput {
  at::Tensor output;
  at::Tensor noise;
};

LeakyOutput rrelu(Arguments arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const at::Tensor& noise = arguments[1].toTensor();
  const double lower = number(arguments, 2);
  const double upper = number(arguments, 3);
  if (!arguments[4].toBool()) return {at::leaky_relu(self, (lower + upper) / 2), noise};
  const at::Tensor slope = at::empty_like(self).uniform_(lower, upper, generator_in(arguments, 5));
  const at::Tensor is_low = self.le(0);
  return {at::where(is_low, at::mul(self, slope), self), at::where(is_low, slope, 1)};
}

Recipe rrelu_with_noise(const Call&) {
  return [](Arguments arguments) -> Values {
    const LeakyOutput result = rrelu(arguments);
    if (arguments[4].toBool()) arguments[1].toTensor().copy_(result.noise);
    return {result.output};
  };
}

Recipe rrelu_with_noise_in_place(const Call&) {
  return [](Arguments arguments) -> Values {
    const LeakyOutput result = rrelu(arguments);
    if (arguments[4].toBool()) arguments[1].toTensor().copy_(result.noise);
    return {arguments[0].toTensor().copy_(result.output)};
  };
}

Recipe rrelu_with_noise_out(const Call& call) {
  const at::Tensor self = call.arguments()[0].toTensor();
  const at::Tensor out = call.arguments()[6].toTensor();
  const bool fits = out.sizes() == self.sizes() && out.scalar_type() == self.scalar_type();
  if (!fits || !payload_in(out)) return nullptr;
  return [](Arguments arguments) -> Values {
    const LeakyOutput result = rrelu(arguments);
    if (arguments[4].toBool()) arguments[1].toTensor().copy_(result.noise);
    return {arguments[6].toTensor().copy_(result.output)};
  };
}

Recipe rrelu_with_noise_functional(const Call&) {
  return [](Arguments arguments) -> Values {
    const LeakyOutput result = rrelu(arguments);
    return {result.output, arguments[4].toBool() ? result.noise : result.noise.clone()};
  };
}

// From an operand, by tiles
// ------------------------------------------------------------------------

// (input, p, train?) -> output, mask
struct Dropout {
  explicit Dropout(const Payload& input)
      : spec(with_dense_meta(holds_values(input) ? input.spec() : replicated_spec(input.spec()))),
        mask_spec(
            spec.with_meta(TensorMeta(spec.shape(), spec.meta().stride(), dtype_of(at::kBool)))),
        at(input.coordinate()) {
    if (!at) return;
    plan.emplace(mask_spec, *at);
    sizes = local_shape(spec, *at);
    strides = tile_stride(spec, *at);
  }
  static DTensorSpec with_dense_meta(const DTensorSpec& spec) { return densely(spec); }

  Values operator()(Arguments arguments) const {
    const Payload& input = *payload_in(arguments[0].toTensor());
    const World& world = input.world();
    const bool drops = arguments[2].isNone() || arguments[2].toBool();
    const double p = drops ? number(arguments, 1) : 0;
    const Draw draw = next_draw(world, spec.mesh());
    if (!at) {
      return {outer_tensor(no_tile(spec), spec, world),
              outer_tensor(no_tile(mask_spec), mask_spec, world)};
    }
    const at::Tensor data = holds_values(input) ? input.tile() : input.whole();
    at::Tensor mask = at::empty_strided(sizes, strides, data.options().dtype(at::kBool));
    plan->fill(mask, Bernoulli{1 - p}, draw);
    at::Tensor output = data.mul(mask);
    if (drops) output.mul_(p == 1 ? 0 : 1 / (1 - p));
    if (!lies_as(output, strides)) output = new_tile(spec, *at).copy_(output);  // the data has gaps
    return {outer_tensor(std::move(output), spec, world),
            outer_tensor(std::move(mask), mask_spec, world)};
  }

  DTensorSpec spec;
  DTensorSpec mask_spec;
  std::optional<Coordinate> at;
  std::optional<FillPlan> plan;
  Shape sizes;
  Shape strides;
};

Recipe dropout(const Call& call) {
  const PayloadPtr& input = call.tensors().front().payload;
  return input ? Recipe(Dropout(*input)) : nullptr;
}

}  // namespace

void random_numbers(const c10::OperatorHandle& op, OperatorNotes& notes) {
  static const std::map<std::string, MakeRecipe> tile_ops = {
      {"aten::uniform_", draw_into<uniform>},
      {"aten::normal_", draw_into<normal>},
      {"aten::log_normal_", draw_into<log_normal>},
      {"aten::cauchy_", draw_into<cauchy>},
      {"aten::exponential_", draw_into<exponential>},
      {"aten::geometric_", draw_into<geometric>},
      {"aten::random_", draw_into<integers>},
      {"aten::random_.to", draw_into<integers_below>},
      {"aten::random_.from", draw_into<integers_between>},
      {"aten::bernoulli_.float", draw_into<bernoulli_p>},
      {"aten::bernoulli_.Tensor", bernoulli_in_place_from},
      {"aten::uniform", drawn_like<uniform>},
      {"aten::normal_functional", drawn_like<normal>},
      {"aten::log_normal", drawn_like<log_normal>},
      {"aten::cauchy", drawn_like<cauchy>},
      {"aten::exponential", drawn_like<exponential>},
      {"aten::geometric", drawn_like<geometric>},
      {"aten::random", drawn_like<integers>},
      {"aten::random.to", drawn_like<integers_below>},
      {"aten::random.from", drawn_like<integers_between>},
      {"aten::normal.out", draw_into_out<normal>},
      {"aten::rand_like.out", draw_into_out<standard_uniform>},
      {"aten::randn_like.out", draw_into_out<standard_normal>},
      {"aten::randint_like.out", draw_into_out<integers_below>},
      {"aten::randint_like.low_dtype_out", draw_into_out<integers_between>},
      {"aten::bernoulli", bernoulli},
      {"aten::bernoulli.p", drawn_like<bernoulli_p>},
      {"aten::rand_like", drawn_like<standard_uniform>},
      {"aten::rand_like.generator", drawn_like<standard_uniform>},
      {"aten::randn_like", drawn_like<standard_normal>},
      {"aten::randn_like.generator", drawn_like<standard_normal>},
      {"aten::randint_like", drawn_like<integers_below>},
      {"aten::randint_like.generator", drawn_like<integers_below>},
      {"aten::randint_like.low_dtype", drawn_like<integers_between>},
      {"aten::randint_like.low_generator_dtype", drawn_like<integers_between>},
      {"aten::native_dropout", dropout},
  };
  static const std::map<std::string, MakeRecipe> decompositions = {
      {"aten::normal.Tensor_Tensor", normal_around},
      {"aten::normal.Tensor_float", normal_around},
      {"aten::normal.float_Tensor", normal_around},
      {"aten::multinomial", multinomial},
      {"aten::rrelu_with_noise", rrelu_with_noise},
      {"aten::rrelu_with_noise_", rrelu_with_noise_in_place},
      {"aten::rrelu_with_noise.out", rrelu_with_noise_out},
      {"aten::rrelu_with_noise_functional", rrelu_with_noise_functional},
  };
  const std::string name = toString(op.operator_name());
  if (const auto found = tile_ops.find(name); found != tile_ops.end()) {
    notes.tile_op = found->second;
  }
  if (const auto found = decompositions.find(name); found != decompositions.end()) {
    notes.decomposition = found->second;
  }
}

}  // namespace tegula::inner::families
