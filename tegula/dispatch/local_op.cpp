// The idea: tiles take the tensors' places on the stack, the op is called on it, results are
// wrapped where they lie. Arguments that the op writes are kept, since they are also its results.
#include "tegula/dispatch/local_op.h"

#include <ATen/ATen.h>

#include "tegula/base/error.h"
#include "tegula/base/text.h"
#include "tegula/bridge/torch_types.h"
#include "tegula/dispatch/universal.h"
#include "tegula/operators/arguments.h"
#include "tegula/payload/local_call.h"
#include "tegula/redistribute/tile_layout.h"

namespace tegula::inner {
namespace {

using torch::jit::Stack;

// What stays of the arguments while the op runs on tiles.
struct Kept {
  World world;
  c10::SmallVector<c10::IValue, 2> returned;  // arguments that are results, by return
};

Kept put_tiles(const OpFacts& facts, const LocalOp& decision, std::span<c10::IValue> arguments) {
  std::optional<World> world;
  c10::SmallVector<c10::IValue, 2> returned;
  for (const auto& same : facts.return_is) {
    returned.push_back(same ? arguments[*same] : c10::IValue());
  }
  std::size_t place = 0;
  replace_tensors(facts, arguments, [&](std::size_t, int, const at::Tensor& tensor) {
    const Payload* payload = payload_in(tensor);
    if (payload && !world) world = payload->world();
    return *tile_for(tensor, decision, place++);
  });
  if (!world) {
    throw InternalError("a decision was made for a call without DTensors").fact("op", facts.name);
  }
  for (const auto& [index, value] : decision.arguments) arguments[index] = value;
  return {std::move(*world), std::move(returned)};
}

std::span<c10::IValue> arguments_on(Stack& stack, const OpFacts& facts) {
  return std::span(stack).last(facts.kinds.size());
}

// The tile in the layout that its spec says.
at::Tensor fitted(at::Tensor tile, const ResultTile& wanted, const OpFacts& facts) {
  if (tile.sizes() != wanted.sizes) {
    throw InternalError("a rule says another shape than the op gives")
        .fact("op", facts.name)
        .fact("rule", bracketed(wanted.sizes))
        .fact("op gives", bracketed(tile.sizes().vec()))
        .fact("spec", to_string(wanted.spec));
  }
  if (lies_as(tile, wanted.strides)) return tile;
  at::Tensor laid = at::empty_strided(wanted.sizes, wanted.strides, tile.options());
  laid.copy_(tile);
  return laid;
}

void wrap_results(const OpFacts& facts, const LocalOp& decision, Kept& kept, Stack& stack) {
  const std::size_t count = facts.return_is.size();
  std::size_t next = 0;
  for (std::size_t index = 0; index < count; ++index) {
    c10::IValue& result = stack[stack.size() - count + index];
    if (facts.return_is[index]) {
      result = std::move(kept.returned[index]);
    } else if (result.isTensor()) {
      result = wrapped_result(std::move(result).toTensor(), decision, next++, facts, kept.world);
    } else {
      result = with_tensors(result, [&](int, const at::Tensor& tile) {
        return wrapped_result(tile, decision, next++, facts, kept.world);
      });
    }
  }
}

void check_indices(const at::Tensor& indices, std::int64_t extent) {
  if (indices.is_meta()) return;
  const at::Tensor is_bad = at::logical_or(indices.lt(0), indices.ge(extent));
  if (!is_bad.any().item<bool>()) return;
  throw UsageError("an index is out of range")
      .fact("index", std::to_string(indices.masked_select(is_bad)[0].item<std::int64_t>()))
      .fact("rows", std::to_string(extent))
      .hint("indices are 0 ... " + std::to_string(extent - 1));
}

// Looks up the rows that are here; what is elsewhere gives zeros.
at::Tensor looked_up(const c10::OperatorHandle& op, const RowsHere& rows, Stack& stack,
                     std::size_t first) {
  const at::Tensor indices = stack[first + rows.indices].toTensor();
  check_indices(indices, rows.extent);
  if (rows.begin == rows.end) {
    return at::zeros(rows.result, stack[first + rows.table].toTensor().options());
  }
  const at::Tensor elsewhere = at::logical_or(indices.lt(rows.begin), indices.ge(rows.end));
  stack[first + rows.indices] = indices.sub(rows.begin).masked_fill(elsewhere, 0);
  op.callBoxed(stack);
  return stack.back().toTensor().masked_fill_(elsewhere.reshape(rows.found), 0);
}

void call_local_op(const c10::OperatorHandle& op, const OpFacts& facts, const LocalOp& decision,
                   Stack& stack) {
  if (!decision.rows) {
    op.callBoxed(stack);
    return;
  }
  const std::size_t first = stack.size() - facts.kinds.size();
  const at::Tensor result = looked_up(op, *decision.rows, stack, first);
  stack.resize(first);
  stack.emplace_back(result);
}

ResultTile result_tile(const ResultSharding& sharding, const Call& call, at::ScalarType type) {
  const DTensorSpec spec = sharding.spec(call.mesh(), dtype_of(type));
  const std::optional<Coordinate> here = call.coordinate();
  const Coordinate at = here ? *here : Coordinate(call.mesh().ndim(), 0);
  return {spec, local_shape(spec, at), tile_stride(spec, at)};
}

// Results that are new tensors, one after the other.
std::vector<at::Tensor> new_tensors(const OpFacts& facts, const c10::IValue* results) {
  std::vector<at::Tensor> tensors;
  for (std::size_t index = 0; index < facts.return_is.size(); ++index) {
    if (facts.return_is[index]) continue;
    if (results[index].isTensor()) {
      tensors.push_back(results[index].toTensor());
    } else if (results[index].isTensorList()) {
      for (const at::Tensor& member : results[index].toTensorVector()) tensors.push_back(member);
    }
  }
  return tensors;
}

void complete(LocalOp& decision, const std::vector<ResultSharding>& shardings, const Call& call,
              const std::vector<at::Tensor>& tensors) {
  if (call.facts().writes) return;  // results are arguments
  if (shardings.size() != tensors.size()) {
    throw InternalError("a rule says another number of results than the op gives")
        .fact("op", call.text());
  }
  for (std::size_t k = 0; k < tensors.size(); ++k) {
    decision.results.push_back(
        tensors[k].defined()
            ? std::optional(result_tile(shardings[k], call, tensors[k].scalar_type()))
            : std::nullopt);
  }
}

void give_outside_rank(const Call& call, LocalOp& decision,
                       const std::vector<ResultSharding>& shardings, Stack& stack) {
  const std::size_t first = stack.size() - call.arguments().size();
  std::vector<c10::IValue> results = imagined_results(call);
  complete(decision, shardings, call, new_tensors(call.facts(), results.data()));
  std::size_t next = 0;
  stack.resize(first);
  for (std::size_t index = 0; index < results.size(); ++index) {
    if (const auto same = call.facts().return_is[index]) {
      stack.push_back(call.arguments()[*same]);
      continue;
    }
    stack.push_back(with_tensors(results[index], [&](int, const at::Tensor& result) {
      const std::optional<ResultTile>& tile = decision.results[next++];
      return result.defined() ? outer_tensor(no_tile(tile->spec), tile->spec, call.world())
                              : result;
    }));
  }
}

}  // namespace

at::Tensor tile_by_route(const at::Tensor& tensor, const Route& route) {
  const Payload* payload = payload_in(tensor);
  return payload ? payload->tile_by(route) : route.run(tensor.resolve_conj().resolve_neg());
}

at::Tensor wrapped_result(at::Tensor tile, const LocalOp& decision, std::size_t index,
                          const OpFacts& facts, const World& world) {
  if (!tile.defined()) return tile;
  const std::optional<ResultTile>& wanted = decision.results[index];
  if (!wanted) throw InternalError("a result came that was not expected").fact("op", facts.name);
  if (decision.share != 1) tile = decision.share == 0 ? tile.zero_() : tile.mul_(decision.share);
  tile = fitted(std::move(tile), *wanted, facts);
  const TensorMeta& meta = wanted->spec.meta();
  if (tile.scalar_type() == scalar_type_of(meta.dtype())) {
    return outer_tensor(c10::make_intrusive<Payload>(std::move(tile), wanted->spec, world,
                                                     Payload::Layout::Regular),
                        wanted->form);
  }
  // the op's own choice (of a wrapped number, say) may depend on more than the key says
  const TensorMeta other(meta.shape(), meta.stride(), dtype_of(tile.scalar_type()));
  return outer_tensor(std::move(tile), wanted->spec.with_meta(other), world);
}

void run_local_op(const OperatorEntry& entry, const LocalOp& decision, Stack& stack) {
  const BelowAutograd below;
  Kept kept = put_tiles(entry.facts, decision, arguments_on(stack, entry.facts));
  call_local_op(entry.op, entry.facts, decision, stack);
  wrap_results(entry.facts, decision, kept, stack);
}

LocalOp run_draft(const Call& call, LocalOpDraft draft, Stack& stack) {
  const BelowAutograd below;
  LocalOp decision = std::move(draft.local_op);
  if (!call.coordinate()) {
    give_outside_rank(call, decision, draft.results, stack);
    return decision;
  }
  Kept kept = put_tiles(call.facts(), decision, arguments_on(stack, call.facts()));
  call_local_op(call.op(), call.facts(), decision, stack);
  const std::size_t count = call.facts().return_is.size();
  complete(decision, draft.results, call,
           new_tensors(call.facts(), stack.data() + (stack.size() - count)));
  wrap_results(call.facts(), decision, kept, stack);
  return decision;
}

}  // namespace tegula::inner
