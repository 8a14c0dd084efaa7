// Random numbers element by element: they go by global element index, so they do not care which
// tile they fill. Ops that are not here and draw are computed whole (dispatch/whole_calls.cpp).
#include <ATen/ATen.h>

#include <map>

#include "tegula/bridge/torch_types.h"
#include "tegula/families/families.h"
#include "tegula/families/fresh_tensors.h"
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

bool can_draw(at::ScalarType type) { return !at::isComplexType(type); }

at::Tensor plain_like(const at::Tensor& outer) {
  return at::empty(outer.sizes(), at::TensorOptions(outer.scalar_type()));
}

// In place ------------------------------------------------------------------------------------

using DistributionOf = Distribution (*)(Arguments);

template <DistributionOf distribution>
Recipe draw_into(const Call& call) {
  const at::Tensor self = call.arguments()[0].toTensor();
  if (!payload_in(self) || !can_draw(self.scalar_type())) return nullptr;
  return [generator = call.facts().generator](Arguments arguments) -> Values {
    const at::Tensor& outer = arguments[0].toTensor();
    const PayloadPtr payload = payload_of(outer);
    const Draw draw = draw_of(arguments, generator, *payload);
    const std::optional<Coordinate> at = payload->coordinate();
    if (at && holds_values(*payload)) {
      fill_random(payload->tile(), payload->spec(), *at, distribution(arguments), draw);
    } else if (at) {
      const at::Tensor whole = plain_like(outer);
      fill_random(whole, distribution(arguments), draw);
      payload->write(whole);
    }
    return {outer};
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

Recipe bernoulli_in_place_from(const Call& call) {
  if (!call.tensors().front().payload) return nullptr;
  return [generator = call.facts().generator](Arguments arguments) -> Values {
    const at::Tensor& outer = arguments[0].toTensor();
    const PayloadPtr payload = payload_of(outer);
    const at::Tensor& p = arguments[1].toTensor();
    const PayloadPtr p_payload = payload_of(p);
    const Draw draw = draw_of(arguments, generator, *payload);
    if (payload->coordinate()) {
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
  if (!can_draw(scalar_type_of(spec.meta().dtype()))) return nullptr;
  return [spec, generator = call.facts().generator](Arguments arguments) -> Values {
    const Payload& self = *payload_in(arguments[0].toTensor());
    const at::Tensor tile = fresh_tile(spec, self.world());
    const Draw draw = draw_of(arguments, generator, self);
    if (const std::optional<Coordinate> at = self.coordinate()) {
      fill_random(tile, spec, *at, distribution(arguments), draw);
    }
    return {outer_tensor(tile, spec, self.world())};
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
  static DTensorSpec with_dense_meta(const DTensorSpec& spec) {
    return spec.with_meta(dense(spec.meta()));
  }

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
  const auto found = tile_ops.find(toString(op.operator_name()));
  if (found != tile_ops.end()) notes.tile_op = found->second;
}

}  // namespace tegula::inner::families
