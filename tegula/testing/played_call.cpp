#include "tegula/testing/played_call.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "tegula/base/error.h"
#include "tegula/bridge/torch_types.h"
#include "tegula/families/families.h"
#include "tegula/payload/local_call.h"
#include "tegula/random/random.h"
#include "tegula/rules/signature.h"
#include "tegula/spec/placed_otherwise.h"
#include "tegula/spec/slices.h"
#include "tegula/testing/parts.h"

namespace tegula::inner {
namespace {

CallSchema schema_of(const Call& call, const DeviceMesh& axis) {
  std::vector<std::optional<DTensorSpec>> specs;
  for (const TensorPlace& place : call.tensors()) {
    specs.push_back(place.tensor.defined()
                        ? std::optional(replicated_spec(axis, meta_of(place.tensor)))
                        : std::nullopt);
  }
  std::vector<CallSchema> schemas = schemas_of(call, specs);
  if (schemas.size() == 1) return std::move(schemas.front());
  throw UsageError("a call over lists is played with one member per list")
      .fact("op", call.text())
      .hint("leave the other members away");
}

// Rows that are elsewhere are zeros.
std::vector<at::Tensor> with_other_rows_zero(const at::Tensor& whole, std::int64_t dim,
                                             const std::vector<at::Tensor>& tiles) {
  std::vector<at::Tensor> padded;
  std::int64_t begin = 0;
  for (const at::Tensor& tile : tiles) {
    padded.push_back(at::zeros_like(whole));
    padded.back().narrow(dim, begin, tile.size(dim)).copy_(tile);
    begin += tile.size(dim);
  }
  return padded;
}

// A rank without elements has nothing to give, whatever the op makes of nothing.
at::Tensor shared(const at::Tensor& result, double share) {
  return share == 0 ? at::zeros_like(result) : result * share;
}

void append_results(const c10::IValue& value, std::vector<at::Tensor>& into) {
  if (value.isTensor()) into.push_back(value.toTensor());
  if (!value.isTensorList()) return;
  for (const at::Tensor& member : value.toTensorVector()) into.push_back(member);
}

}  // namespace

PlayedCall::PlayedCall(const Sample& sample, std::int64_t ranks, std::uint64_t seed)
    : call_(operator_table().entry(operator_of(sample)), arguments_of(sample, seed)),
      axis_({{"a", ranks}}),
      call_schema_(schema_of(call_, axis_)),
      random_(replicated_generator({seed, 1})) {
  std::vector<c10::IValue> arguments = call_.arguments();
  for (c10::IValue& argument : arguments) {
    argument = with_tensors(argument, [](int, const at::Tensor& one) { return one.clone(); });
  }
  results_ = run(std::move(arguments));
}

const at::Tensor& PlayedCall::operand(std::size_t tensor) const {
  return call_.tensors()[call_schema_.tensors[tensor]].tensor;
}

double PlayedCall::rounding() const {
  double coarsest = 0;
  for (const TensorPlace& place : call_.tensors()) {
    if (!place.tensor.defined()) continue;
    coarsest = std::max(coarsest, rounding_of(place.tensor.scalar_type()));
  }
  for (const at::Tensor& result : results_) {
    if (result.defined()) coarsest = std::max(coarsest, rounding_of(result.scalar_type()));
  }
  return coarsest;
}

std::vector<at::Tensor> PlayedCall::run(std::vector<c10::IValue> arguments) const {
  const std::vector<c10::IValue> returned = call_plain(call_.op(), arguments);
  std::vector<at::Tensor> results;
  for (std::size_t index = 0; index < returned.size(); ++index) {
    if (!call_.facts().return_is[index]) append_results(returned[index], results);
  }
  for (std::size_t index = 0; index < arguments.size(); ++index) {
    if (call_.facts().written[index]) append_results(arguments[index], results);
  }
  return results;
}

std::vector<at::Tensor> PlayedCall::tiles_of(std::size_t tensor, const Placing& placing) {
  const Placement& placement = placing.operands[tensor];
  std::vector<at::Tensor> tiles = parts_of(operand(tensor), placement, axis_, random_);
  if (placing.looked_up != tensor || !as_shard(placement)) return tiles;
  return with_other_rows_zero(operand(tensor), as_shard(placement)->dim(), tiles);
}

Shape PlayedCall::sizes_at(std::size_t argument, const Placement& placement,
                           std::int64_t rank) const {
  const TensorMeta meta(tegula::sizes_at(schema(), argument), DType::U8);
  return local_shape(DTensorSpec(axis_, {placement}, meta), {rank});
}

std::vector<std::vector<at::Tensor>> PlayedCall::play(const Placing& placing) {
  std::vector<std::vector<at::Tensor>> tiles(call_.tensors().size());
  for (std::size_t k = 0; k < call_schema_.tensors.size(); ++k) {
    if (schema().has(k)) tiles[call_schema_.tensors[k]] = tiles_of(k, placing);
  }
  std::vector<std::vector<at::Tensor>> parts(results_.size());
  for (std::int64_t rank = 0; rank < axis_.size(); ++rank) {
    std::vector<c10::IValue> arguments = call_.arguments();
    std::size_t next = 0;
    for (c10::IValue& argument : arguments) {
      argument = with_tensors(argument, [&](int, const at::Tensor& whole) {
        const std::vector<at::Tensor>& of_ranks = tiles[next++];
        return of_ranks.empty() ? whole : of_ranks[static_cast<std::size_t>(rank)];
      });
    }
    for (const auto& [index, placement] : placing.sizes) {
      const Shape sizes = sizes_at(index, placement, rank);
      arguments[index] = arguments[index].isInt() ? c10::IValue(sizes[0]) : sizes;
    }
    const std::vector<at::Tensor> results = run(std::move(arguments));
    for (std::size_t r = 0; r < results.size(); ++r) {
      parts[r].push_back(placing.shares.empty()
                             ? results[r]
                             : shared(results[r], placing.shares[static_cast<std::size_t>(rank)]));
    }
  }
  return parts;
}

}  // namespace tegula::inner
