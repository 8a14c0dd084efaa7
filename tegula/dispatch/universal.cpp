// The idea: gather each operand once, however often it appears; a view without data of its own is
// looked at through its gathered base. After the op, every tensor that was written takes its tile
// back. What is passed as out= is written and not read: it is not gathered.
#include "tegula/dispatch/universal.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>

#include "tegula/base/error.h"
#include "tegula/bridge/torch_types.h"
#include "tegula/payload/expanded.h"
#include "tegula/payload/local_call.h"
#include "tegula/spec/placed_otherwise.h"

namespace tegula::inner {
namespace {

// The tensor that holds the data.
const Payload& base_of(const Payload& payload) {
  return payload.link() ? *payload.link()->base : payload;
}

class WholeOperands {
 public:
  explicit WholeOperands(const Call& call) : call_(call) {}

  at::Tensor of(const TensorPlace& place) {
    return is_only_written(place) ? room_for(*place.payload) : of(place.payload);
  }

 private:
  at::Tensor of(const PayloadPtr& payload) {
    if (const Link* link = payload->link()) {
      // a row by itself: nobody sees what becomes of the rest of its base meanwhile
      if (link->row && !meets_others(*payload)) return payload->tile();
      return link->of_whole(of(link->base));
    }
    const auto [entry, fresh] = wholes_.try_emplace(payload.get());
    // what is expanded stays so: a write to one element is a write to all that share its place
    if (fresh) entry->second = expanded_as(payload->whole(), payload->spec().meta().stride());
    return entry->second;
  }

  bool is_only_written(const TensorPlace& place) const {
    if (!call_.facts().is_out[place.argument] || place.payload->link()) return false;
    const Shape& stride = place.payload->spec().meta().stride();
    return std::count(stride.begin(), stride.end(), 0) == 0 && !meets_others(*place.payload);
  }

  // Zeros: an op may leave elements as they are, and they are to be the same on all ranks.
  static at::Tensor room_for(const Payload& payload) {
    const TensorMeta& meta = payload.spec().meta();
    const at::TensorOptions options(scalar_type_of(meta.dtype()));
    return at::empty_strided(meta.shape(), meta.stride(), options.device(payload.device())).zero_();
  }

  // Whether the base's memory is that of another operand, too; the same on all ranks.
  bool meets_others(const Payload& payload) const {
    const at::Tensor tile = base_of(payload).tile();
    std::size_t count = 0;
    for (const TensorPlace& place : call_.tensors()) {
      if (place.payload && base_of(*place.payload).tile().is_alias_of(tile)) ++count;
    }
    return count > 1;
  }

  const Call& call_;
  std::map<Payload*, at::Tensor> wholes_;
};

bool same_geometry(const at::Tensor& whole, const DTensorSpec& spec) {
  return whole.sizes().vec() == spec.shape() &&
         whole.scalar_type() == scalar_type_of(spec.meta().dtype());
}

// Placements for a tensor whose shape has changed: cut dims that still exist stay cut, evenly.
Placements refitted(const DTensorSpec& spec, std::int64_t ndim) {
  Placements placements = spec.placements();
  for (Placement& placement : placements) {
    if (const Shard* shard = as_shard(placement)) {
      placement = shard->dim() < ndim ? Placement(Shard(shard->dim())) : Placement(Replicate());
    }
  }
  return placements;
}

// An out= tensor that the op has resized.
void install_resized(const at::Tensor& outer, const Payload& payload, const at::Tensor& whole) {
  const DTensorSpec spec(payload.spec().mesh(), refitted(payload.spec(), whole.dim()),
                         meta_of(whole));
  install(outer, c10::make_intrusive<Payload>(
                     redistribute_tile(payload.world(), whole, replicated_spec(spec), spec), spec,
                     payload.world(), Payload::Layout::Regular));
}

at::Tensor distributed(const at::Tensor& result, const Call& call) {
  if (!result.defined()) return result;
  if (result.layout() != at::kStrided || result.is_quantized() || result.is_nested()) {
    throw UsageError("the op gives a tensor that has no distributed form")
        .fact("op", call.text())
        .fact("result", described(result))
        .hint("call it on full_tensor(x)");
  }
  return replicated(result, call.mesh(), call.world());
}

}  // namespace

// libtorch's own shape function where there is one, else the op on zeros or ones.
std::vector<c10::IValue> imagined_results(const Call& call) {
  const auto on = [&](const std::function<at::Tensor(const at::Tensor&)>& stand_in) {
    std::vector<c10::IValue> arguments;
    for (const c10::IValue& argument : call.arguments()) {
      arguments.push_back(with_tensors(argument, [&](int, const at::Tensor& tensor) {
        return tensor.defined() ? stand_in(tensor) : tensor;
      }));
    }
    return call_plain(call.op(), std::move(arguments));
  };
  if (call.op().hasTag(at::Tag::data_dependent_output) ||
      call.op().hasTag(at::Tag::dynamic_output_shape)) {
    throw UsageError("a rank outside of the mesh cannot know a result that depends on the data")
        .fact("op", call.text())
        .fact("rank", std::to_string(call.world().rank()))
        .hint("ask mesh.coordinate_of(world.rank()) first");
  }
  try {
    return on([](const at::Tensor& tensor) {
      return at::empty_strided(tensor.sizes(), tensor.strides(),
                               at::TensorOptions(tensor.scalar_type()).device(at::kMeta));
    });
  } catch (const c10::NotImplementedError&) {
  }
  const auto filled_with = [&](double value) {
    return on([value](const at::Tensor& tensor) {
      return at::full(tensor.sizes(), value, at::TensorOptions(tensor.scalar_type()));
    });
  };
  try {
    return filled_with(0);  // fine as indices
  } catch (const c10::Error&) {
    return filled_with(1);  // fine as probabilities
  }
}

void check_readable(const Call& call) {
  for (const TensorPlace& place : call.tensors()) {
    if (place.payload || !place.tensor.defined() || place.tensor.layout() == at::kStrided) continue;
    throw UsageError("an op cannot mix DTensors with a tensor that has no distributed form")
        .fact("op", call.text())
        .fact("tensor", described(place.tensor))
        .hint("call it on full_tensor(x)");
  }
}

std::vector<c10::IValue> distributed_results(const Call& call,
                                             const std::vector<c10::IValue>& results) {
  std::vector<c10::IValue> outer;
  for (std::size_t index = 0; index < results.size(); ++index) {
    const std::optional<std::size_t> same = call.facts().return_is[index];
    outer.push_back(same ? call.arguments()[*same]
                         : with_tensors(results[index], [&](int, const at::Tensor& result) {
                             return distributed(result, call);
                           }));
  }
  return outer;
}

std::vector<c10::IValue> run_universal(const Call& call) {
  return run_universal(call, [](const PlainOp& op) { return op(); });
}

std::vector<c10::IValue> run_universal(
    const Call& call, const std::function<std::vector<c10::IValue>(const PlainOp&)>& around) {
  check_readable(call);
  if (!call.coordinate()) {
    return distributed_results(call, imagined_results(call));
  }
  WholeOperands wholes(call);
  std::vector<c10::IValue> arguments = call.arguments();
  std::vector<std::pair<const TensorPlace*, at::Tensor>> written;
  std::map<std::pair<std::size_t, int>, at::Tensor> plain;
  for (const TensorPlace& place : call.tensors()) {
    const at::Tensor whole = place.payload ? wholes.of(place) : place.tensor;
    plain[{place.argument, place.member}] = whole;
    if (place.payload && call.facts().written[place.argument]) written.emplace_back(&place, whole);
  }
  for (std::size_t index = 0; index < arguments.size(); ++index) {
    arguments[index] = with_tensors(
        arguments[index], [&](int member, const at::Tensor&) { return plain.at({index, member}); });
  }
  const std::vector<c10::IValue> results =
      around([&] { return call_plain(call.op(), std::move(arguments)); });
  // In the order of the arguments, the same on all ranks. Views without data come last: they read
  // their base anew, with what was written to it through other arguments.
  const BelowAutograd below;
  for (const bool links : {false, true}) {
    for (const auto& [place, whole] : written) {
      const Payload& payload = *place->payload;
      if ((payload.link() != nullptr) != links) continue;
      if (same_geometry(whole, payload.spec())) {
        payload.write(whole);
      } else {
        install_resized(place->tensor, payload, whole);
      }
    }
  }
  return distributed_results(call, results);
}

}  // namespace tegula::inner
