// The idea: a new tensor's spec comes from libtorch's own shape function on the whole without data;
// its tile is an empty one of the spec's local shape, filled by the op's meaning. Random fills go
// by global element index, so they do not care which tile they fill.
#include "tegula/dispatch/in_tiles.h"

#include <ATen/ATen.h>

#include <map>

#include "tegula/bridge/torch_types.h"
#include "tegula/dispatch/guards.h"
#include "tegula/dispatch/local_call.h"
#include "tegula/dispatch/random_fill.h"
#include "tegula/dispatch/tile_layout.h"
#include "tegula/spec/placed_otherwise.h"

namespace tegula {
namespace {

using Results = std::optional<std::vector<c10::IValue>>;

std::optional<std::size_t> argument_named(const Call& call, const std::string& name) {
  const std::optional<int> index = call.op().schema().argumentIndexWithName(name);
  return index ? std::optional(static_cast<std::size_t>(*index)) : std::nullopt;
}

// What the op makes of the whole, without data.
TensorMeta whole_result(const Call& call, const at::Tensor& self) {
  std::vector<c10::IValue> arguments = call.arguments();
  for (const char* name : {"device", "pin_memory"}) {
    if (const auto index = argument_named(call, name)) arguments[*index] = c10::IValue();
  }
  arguments[0] = at::empty_strided(self.sizes(), self.strides(),
                                   at::TensorOptions(self.scalar_type()).device(at::kMeta));
  return dense(meta_of(call_plain(call.op(), std::move(arguments)).front().toTensor()));
}

at::Tensor empty_tile(const DTensorSpec& spec, const std::optional<Coordinate>& at) {
  return at ? new_tile(spec, *at, at::kCPU) : no_tile(spec);
}

bool makes_plain_strided(const Call& call) {
  for (const c10::IValue& argument : call.arguments()) {
    if (argument.isDevice() && !argument.toDevice().is_cpu()) return false;
  }
  const auto layout = argument_named(call, "layout");
  return !layout || call.arguments()[*layout].isNone() ||
         call.arguments()[*layout].toLayout() == at::kStrided;
}

// self, its payload, and the shorthand that all of these ops need.
struct Self {
  explicit Self(const Call& c)
      : call(c), outer(c.arguments()[0].toTensor()), payload(payload_of(outer)) {}

  const Call& call;
  at::Tensor outer;
  PayloadPtr payload;

  const DTensorSpec& spec() const { return payload->spec(); }
  const World& world() const { return payload->world(); }
  std::optional<Coordinate> at() const { return payload->coordinate(); }
  bool has_true_tile() const { return !payload->link() && !spec().is_partial(); }
  double number(std::size_t index) const { return call.arguments()[index].toScalar().toDouble(); }
  Draw draw() const {
    const auto& generator = call.facts().generator;
    if (generator && !call.arguments()[*generator].isNone()) {
      return draw_from(call.arguments()[*generator].toGenerator());
    }
    return next_draw(world());
  }
  std::vector<c10::IValue> itself() const { return {outer}; }
};

// Copies --------------------------------------------------------------------------------------

Results copy(const Self& self) {
  const bool converts = self.call.facts().name == "aten::_to_copy";
  if (self.payload->link() || (converts && self.spec().is_partial())) return std::nullopt;
  const TensorMeta meta = whole_result(self.call, self.outer);
  const DTensorSpec spec = self.spec().with_meta(meta);
  const at::Tensor tile = empty_tile(spec, self.at());
  if (self.at()) tile.copy_(self.payload->tile());
  return {{outer_tensor(tile, spec, self.world())}};
}

// Tensors like another ------------------------------------------------------------------------

struct Fresh {
  at::Tensor outer;
  at::Tensor tile;
  DTensorSpec spec;
};

// Placed as self if the shape is the same, else replicated.
Fresh like(const Self& self) {
  const TensorMeta meta = whole_result(self.call, self.outer);
  const bool same_shape = meta.shape() == self.spec().shape();
  // reductions that self owes are not owed by a fresh tensor
  const DTensorSpec placed = with_reductions_done(self.spec());
  const DTensorSpec spec =
      same_shape ? placed.with_meta(meta) : replicated_spec(self.spec().mesh(), meta);
  const at::Tensor tile = empty_tile(spec, self.at());
  return {outer_tensor(tile, spec, self.world()), tile, spec};
}

Results empty_like(const Self& self) { return {{like(self).outer}}; }

Results filled_like(const Self& self, const at::Scalar& value) {
  const Fresh fresh = like(self);
  fresh.tile.fill_(value);
  return {{fresh.outer}};
}

Results zeros_like(const Self& self) { return filled_like(self, 0); }
Results ones_like(const Self& self) { return filled_like(self, 1); }
Results full_like(const Self& self) {
  const std::size_t value = *argument_named(self.call, "fill_value");
  return filled_like(self, self.call.arguments()[value].toScalar());
}

// Fills ---------------------------------------------------------------------------------------

Results fill_with(const Self& self, const at::Scalar& value) {
  if (!self.has_true_tile()) return std::nullopt;
  if (self.at()) self.payload->tile().fill_(value);
  return self.itself();
}

Results fill(const Self& self) { return fill_with(self, self.call.arguments()[1].toScalar()); }
Results zero(const Self& self) { return fill_with(self, 0); }

// Random numbers ------------------------------------------------------------------------------

bool can_draw(at::ScalarType type) { return !at::isComplexType(type); }

Results draw_into(const Self& self, const Distribution& distribution) {
  if (!can_draw(self.outer.scalar_type())) return std::nullopt;
  const Draw draw = self.draw();
  if (!self.at()) return self.itself();
  if (self.has_true_tile()) {
    fill_random(self.payload->tile(), self.spec(), *self.at(), distribution, draw);
  } else {
    const at::Tensor whole =
        at::empty(self.outer.sizes(), at::TensorOptions(self.outer.scalar_type()));
    fill_random(whole, distribution, draw);
    self.payload->write(whole);
  }
  return self.itself();
}

Results uniform(const Self& self) {
  return draw_into(self, Uniform{self.number(1), self.number(2)});
}
Results normal(const Self& self) { return draw_into(self, Normal{self.number(1), self.number(2)}); }
Results log_normal(const Self& self) {
  return draw_into(self, LogNormal{self.number(1), self.number(2)});
}
Results cauchy(const Self& self) { return draw_into(self, Cauchy{self.number(1), self.number(2)}); }
Results exponential(const Self& self) { return draw_into(self, Exponential{self.number(1)}); }
Results geometric(const Self& self) { return draw_into(self, Geometric{self.number(1)}); }
Results bernoulli_in_place(const Self& self) { return draw_into(self, Bernoulli{self.number(1)}); }
Results integers(const Self& self) { return draw_into(self, Integers{}); }
Results integers_below(const Self& self) {
  return draw_into(self, Integers{0, self.call.arguments()[1].toInt()});
}
Results integers_between(const Self& self) {
  const c10::IValue& high = self.call.arguments()[2];
  return draw_into(self, Integers{self.call.arguments()[1].toInt(),
                                  high.isNone() ? std::nullopt : std::optional(high.toInt())});
}

Results drawn_like(const Self& self, const Distribution& distribution) {
  const Fresh fresh = like(self);
  if (!can_draw(fresh.outer.scalar_type())) return std::nullopt;
  const Draw draw = self.draw();
  if (self.at()) fill_random(fresh.tile, fresh.spec, *self.at(), distribution, draw);
  return {{fresh.outer}};
}

Results rand_like(const Self& self) { return drawn_like(self, Uniform{}); }
Results randn_like(const Self& self) { return drawn_like(self, Normal{}); }
Results randint_like(const Self& self) {
  return drawn_like(self, Integers{0, self.call.arguments()[1].toInt()});
}
Results randint_like_between(const Self& self) {
  return drawn_like(self,
                    Integers{self.call.arguments()[1].toInt(), self.call.arguments()[2].toInt()});
}

// The operand in the form in which a result is computed element by element: its tile, or the whole
// if reductions are owed or it has no tile of its own.
struct Operand {
  explicit Operand(const Self& self)
      : spec(self.has_true_tile() ? self.spec() : replicated_spec(self.spec())),
        data(!self.at() ? no_tile(spec)
                        : (self.has_true_tile() ? self.payload->tile() : self.payload->whole())) {}
  DTensorSpec spec;
  at::Tensor data;
};

// What was computed from an operand that may have gaps is laid out without them.
at::Tensor outer_result(const at::Tensor& tile, const DTensorSpec& spec, const Self& self) {
  return outer_tensor(self.at() ? in_tile_layout(tile, spec, *self.at()) : no_tile(spec), spec,
                      self.world());
}

Results bernoulli(const Self& self) {
  const Operand p(self);
  const Draw draw = self.draw();
  const at::Tensor tile = at::empty_like(p.data);
  if (self.at()) fill_bernoulli(tile, p.spec, *self.at(), p.data, draw);
  return {{outer_result(tile, p.spec.with_meta(dense(meta_of(self.outer))), self)}};
}

Results bernoulli_with_p(const Self& self) { return drawn_like(self, Bernoulli{self.number(1)}); }

Results bernoulli_in_place_from(const Self& self) {
  const at::Tensor& p = self.call.arguments()[1].toTensor();
  const PayloadPtr p_payload = payload_of(p);
  if (self.at()) {
    const at::Tensor p_whole = p_payload ? p_payload->whole() : p;
    const at::Tensor whole =
        at::empty(self.outer.sizes(), at::TensorOptions(self.outer.scalar_type()));
    fill_bernoulli(whole, p_whole, self.draw());
    self.payload->write(whole);
  } else {
    self.draw();
  }
  return self.itself();
}

Results dropout(const Self& self) {
  const c10::IValue& train = self.call.arguments()[2];
  const double p = self.number(1);
  const Operand input(self);
  const bool drops = train.isNone() || train.toBool();
  const Draw draw = self.draw();
  const DTensorSpec spec = input.spec.with_meta(dense(input.spec.meta()));
  const DTensorSpec mask_spec =
      spec.with_meta(TensorMeta(spec.shape(), spec.meta().stride(), dtype_of(at::kBool)));
  const at::Tensor mask = at::empty_like(input.data, at::TensorOptions(at::kBool));
  if (!drops) {
    mask.fill_(true);
  } else if (self.at()) {
    fill_random(mask, mask_spec, *self.at(), Bernoulli{1 - p}, draw);
  }
  const double scale = !drops ? 1 : (p == 1 ? 0 : 1 / (1 - p));
  const at::Tensor output = input.data * mask * scale;
  return {{outer_result(output, spec, self), outer_result(mask, mask_spec, self)}};
}

using InTiles = Results (*)(const Self&);

const std::map<std::string, InTiles>& ops_in_tiles() {
  static const std::map<std::string, InTiles> table = {
      {"aten::clone", copy},
      {"aten::_to_copy", copy},
      {"aten::empty_like", empty_like},
      {"aten::zeros_like", zeros_like},
      {"aten::ones_like", ones_like},
      {"aten::full_like", full_like},
      {"aten::new_empty", empty_like},
      {"aten::new_empty_strided", empty_like},
      {"aten::new_zeros", zeros_like},
      {"aten::new_ones", ones_like},
      {"aten::new_full", full_like},
      {"aten::fill_.Scalar", fill},
      {"aten::zero_", zero},
      {"aten::uniform_", uniform},
      {"aten::normal_", normal},
      {"aten::log_normal_", log_normal},
      {"aten::cauchy_", cauchy},
      {"aten::exponential_", exponential},
      {"aten::geometric_", geometric},
      {"aten::random_", integers},
      {"aten::random_.to", integers_below},
      {"aten::random_.from", integers_between},
      {"aten::bernoulli_.float", bernoulli_in_place},
      {"aten::bernoulli_.Tensor", bernoulli_in_place_from},
      {"aten::bernoulli", bernoulli},
      {"aten::bernoulli.p", bernoulli_with_p},
      {"aten::rand_like", rand_like},
      {"aten::rand_like.generator", rand_like},
      {"aten::randn_like", randn_like},
      {"aten::randn_like.generator", randn_like},
      {"aten::randint_like", randint_like},
      {"aten::randint_like.generator", randint_like},
      {"aten::randint_like.low_dtype", randint_like_between},
      {"aten::randint_like.low_generator_dtype", randint_like_between},
      {"aten::native_dropout", dropout},
  };
  return table;
}

// Building from nothing -----------------------------------------------------------------------

void fill_built(const at::Tensor& tile, const DTensorSpec& spec, const Call& call,
                const World& world, const std::optional<Coordinate>& at) {
  const std::string& name = call.facts().name;
  if (name == "aten::zeros") {
    tile.zero_();
  } else if (name == "aten::ones") {
    tile.fill_(1);
  } else if (name == "aten::full") {
    tile.fill_(call.arguments()[1].toScalar());
  } else if (name == "aten::rand" || name == "aten::randn") {
    const Draw draw = next_draw(world);
    const Distribution distribution =
        name == "aten::rand" ? Distribution(Uniform{}) : Distribution(Normal{});
    if (at) fill_random(tile, spec, *at, distribution, draw);
  }
}

bool can_be_built(const std::string& name) {
  return name == "aten::empty.memory_format" || name == "aten::empty_strided" ||
         name == "aten::zeros" || name == "aten::ones" || name == "aten::full" ||
         name == "aten::rand" || name == "aten::randn";
}

at::ScalarType asked_dtype(const Call& call) {
  const auto index = argument_named(call, "dtype");
  return call.arguments()[*index].isNone() ? at::typeMetaToScalarType(at::get_default_dtype())
                                           : call.arguments()[*index].toScalarType();
}

}  // namespace

std::optional<std::vector<c10::IValue>> run_in_tiles(const Call& call) {
  const auto found = ops_in_tiles().find(call.facts().name);
  if (found == ops_in_tiles().end() || !call.tensors().front().payload) return std::nullopt;
  if (!makes_plain_strided(call)) return std::nullopt;
  const BelowAutograd below;
  return found->second(Self(call));
}

std::optional<std::vector<c10::IValue>> build_distributed(const Call& call) {
  const BuildDistributed* build = BuildDistributed::current();
  if (!build || !call.tensors().empty() || !can_be_built(call.facts().name)) return std::nullopt;
  const Shape shape = call.arguments()[0].toIntVector();
  const at::ScalarType type = asked_dtype(call);
  if (shape.empty() || !at::isFloatingType(type) || !makes_plain_strided(call)) return std::nullopt;
  const World world = World::of(build->mesh());
  const TensorMeta meta = call.facts().name == "aten::empty_strided"
                              ? TensorMeta(shape, call.arguments()[1].toIntVector(), dtype_of(type))
                              : TensorMeta(shape, dtype_of(type));
  const DTensorSpec spec(build->mesh(), build->placements_for(shape), meta);
  const BelowAutograd below;
  const std::optional<Coordinate> at = spec.mesh().coordinate_of(world.rank());
  const at::Tensor tile = empty_tile(spec, at);
  fill_built(tile, spec, call, world, at);
  return {{outer_tensor(tile, spec, world)}};
}

}  // namespace tegula
