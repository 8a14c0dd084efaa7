// Copies, tensors like another, fills, and tensors from nothing: each rank makes or fills its own
// tile.
#include <ATen/ATen.h>

#include <map>

#include "tegula/bridge/torch_types.h"
#include "tegula/dispatch/build.h"
#include "tegula/families/families.h"
#include "tegula/families/fresh_tensors.h"
#include "tegula/operators/call.h"
#include "tegula/payload/local_call.h"
#include "tegula/random/random_fill.h"

namespace tegula::inner::families {
namespace {

const Payload& self_in(Arguments arguments) { return *payload_in(arguments[0].toTensor()); }

// Copies --------------------------------------------------------------------------------------

Recipe copy(const Call& call) {
  if (!makes_tensor_like_self(call)) return nullptr;
  const Payload& self = *call.tensors().front().payload;
  if (self.link()) return nullptr;
  return [spec = self.spec().with_meta(whole_result(call))](Arguments arguments) -> Values {
    const Payload& source = self_in(arguments);
    const at::Tensor tile = fresh_tile(spec, source.world());
    if (source.coordinate()) tile.copy_(source.tile());
    return {outer_tensor(tile, spec, source.world())};
  };
}

// (self, dtype, layout, device, pin_memory, non_blocking, memory_format). Parts of a sum cannot be
// rounded one by one; the rule says what becomes of them. It looks at the dtype alone, so what
// gradients say beside it, and is so already, is left out.
Recipe convert(const Call& call) {
  const PayloadPtr& self = call.tensors().front().payload;
  if (!self || !self->spec().is_partial()) return copy(call);
  const Arguments a = call.arguments();
  const bool says_more = !a[2].isNone() || !a[3].isNone();
  const bool is_pinned = !a[4].isNone() && a[4].toBool();
  if (!makes_tensor_like_self(call) || !says_more || is_pinned) return nullptr;
  return [op = call.op()](Arguments arguments) -> Values {
    Values stack(arguments.begin(), arguments.end());
    for (const std::size_t option : {2, 3, 4}) stack[option] = c10::IValue();
    op.callBoxed(&stack);
    return stack;
  };
}

// Tensors like another ------------------------------------------------------------------------

Recipe empty_like(const Call& call) {
  if (!makes_tensor_like_self(call)) return nullptr;
  return [spec = spec_like_self(call)](Arguments arguments) -> Values {
    const World& world = self_in(arguments).world();
    return {outer_tensor(fresh_tile(spec, world), spec, world)};
  };
}

Recipe filled_like(const Call& call, const at::Scalar& value) {
  if (!makes_tensor_like_self(call)) return nullptr;
  return [spec = spec_like_self(call), value](Arguments arguments) -> Values {
    const World& world = self_in(arguments).world();
    return {outer_tensor(fresh_tile(spec, world).fill_(value), spec, world)};
  };
}

Recipe zeros_like(const Call& call) { return filled_like(call, 0); }
Recipe ones_like(const Call& call) { return filled_like(call, 1); }

Recipe full_like(const Call& call) {
  if (!makes_tensor_like_self(call)) return nullptr;
  const std::size_t value = *call.argument_named("fill_value");
  return [spec = spec_like_self(call), value](Arguments arguments) -> Values {
    const World& world = self_in(arguments).world();
    const at::Tensor tile = fresh_tile(spec, world).fill_(arguments[value].toScalar());
    return {outer_tensor(tile, spec, world)};
  };
}

// ... without data: plain, of the whole's shape.
Recipe on_meta_device(const Call& call) {
  const std::optional<std::size_t> device = call.argument_named("device");
  if (!device || !call.tensors().front().payload || !call.arguments()[*device].isDevice()) {
    return nullptr;
  }
  const bool asks_for_meta = call.arguments()[*device].toDevice().is_meta();
  if (!asks_for_meta || device_of(call.mesh()).is_meta()) return nullptr;
  return [op = call.op()](Arguments arguments) -> Values {
    Values plain(arguments.begin(), arguments.end());
    plain[0] = without_data(arguments[0].toTensor());
    return call_plain(op, std::move(plain));
  };
}

// Fills ---------------------------------------------------------------------------------------

bool fills_tile(const Call& call) {
  const PayloadPtr& self = call.tensors().front().payload;
  return self && holds_values(*self);
}

Recipe fill(const Call& call) {
  if (!fills_tile(call)) return nullptr;
  return [](Arguments arguments) -> Values {
    const Payload& self = self_in(arguments);
    if (self.coordinate()) self.tile().fill_(arguments[1].toScalar());
    return {arguments[0]};
  };
}

Recipe zero(const Call& call) {
  if (!fills_tile(call)) return nullptr;
  return [](Arguments arguments) -> Values {
    const Payload& self = self_in(arguments);
    if (self.coordinate()) self.tile().zero_();
    return {arguments[0]};
  };
}

// (self, ..., out): a tensor of the size that the op would give is filled, whatever was in it.
enum class Filling { None, Zeros, Ones, Given };

template <Filling filling>
Recipe fill_out(const Call& call) {
  const Arguments a = call.arguments();
  const at::Tensor& out = a.back().toTensor();
  const bool is_like = call.op().operator_name().name.ends_with("_like");
  const std::vector<std::int64_t> size =
      is_like ? a[0].toTensor().sizes().vec() : a[1].toIntVector();
  if (!payload_in(out) || out.sizes() != at::IntArrayRef(size)) return nullptr;
  return [is_like](Arguments arguments) -> Values {
    const at::Tensor& given = arguments.back().toTensor();
    switch (filling) {
      case Filling::None:
        break;
      case Filling::Zeros:
        given.zero_();
        break;
      case Filling::Ones:
        given.fill_(1);
        break;
      case Filling::Given:
        given.fill_(arguments[is_like ? 1 : 2].toScalar());
        break;
    }
    return {given};
  };
}

// (self, non_blocking, memory_format, out): converts as copying does.
Recipe convert_into(const Call& call) {
  const at::Tensor& self = call.arguments()[0].toTensor();
  const at::Tensor& out = call.arguments()[3].toTensor();
  if (!payload_in(self) || !payload_in(out) || self.sizes() != out.sizes()) return nullptr;
  return [](Arguments a) -> Values { return {a[3].toTensor().copy_(a[0].toTensor())}; };
}

// From nothing --------------------------------------------------------------------------------

void build_empty(const Call&, const BuiltTensor&) {}
void build_zeros(const Call&, const BuiltTensor& built) { built.tile.zero_(); }
void build_ones(const Call&, const BuiltTensor& built) { built.tile.fill_(1); }
void build_full(const Call& call, const BuiltTensor& built) {
  built.tile.fill_(call.arguments()[1].toScalar());
}

void build_random(const BuiltTensor& built, const Distribution& distribution) {
  const Draw draw = next_draw(built.world, built.spec.mesh());
  if (built.at) fill_random(built.tile, built.spec, *built.at, distribution, draw);
}
void build_rand(const Call&, const BuiltTensor& built) { build_random(built, Uniform{}); }
void build_randn(const Call&, const BuiltTensor& built) { build_random(built, Normal{}); }

}  // namespace

void new_tensors(const c10::OperatorHandle& op, OperatorNotes& notes) {
  static const std::map<std::string, MakeRecipe> tile_ops = {
      {"aten::clone", copy},
      {"aten::_to_copy", convert},
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
  };
  using Build = void (*)(const Call&, const BuiltTensor&);
  static const std::map<std::string, Build> factories = {
      {"aten::empty.memory_format", build_empty},
      {"aten::empty_strided", build_empty},
      {"aten::zeros", build_zeros},
      {"aten::ones", build_ones},
      {"aten::full", build_full},
      {"aten::rand", build_rand},
      {"aten::randn", build_randn},
  };
  static const std::map<std::string, MakeRecipe> fillings = {
      {"aten::empty_like.out", fill_out<Filling::None>},
      {"aten::zeros_like.out", fill_out<Filling::Zeros>},
      {"aten::ones_like.out", fill_out<Filling::Ones>},
      {"aten::full_like.out", fill_out<Filling::Given>},
      {"aten::new_empty.out", fill_out<Filling::None>},
      {"aten::new_empty_strided.out", fill_out<Filling::None>},
      {"aten::new_zeros.out", fill_out<Filling::Zeros>},
      {"aten::new_ones.out", fill_out<Filling::Ones>},
      {"aten::new_full.out", fill_out<Filling::Given>},
  };
  const std::string name = toString(op.operator_name());
  if (const auto found = tile_ops.find(name); found != tile_ops.end()) {
    notes.tile_op = found->second;
    notes.is_copy = found->second == copy || found->second == convert;
  }
  if (op.operator_name().name.ends_with("_like") || name.starts_with("aten::new_")) {
    notes.decomposition = on_meta_device;
  }
  if (const auto found = fillings.find(name); found != fillings.end()) {
    notes.decomposition = found->second;
  }
  if (name == "aten::_to_copy.out") notes.decomposition = convert_into;
  if (const auto found = factories.find(name); found != factories.end()) {
    notes.build = found->second;
  }
}

}  // namespace tegula::inner::families
