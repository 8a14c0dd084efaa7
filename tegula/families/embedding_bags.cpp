// Bags of embeddings whose columns are cut: each rank makes its columns of the bags, or of the
// gradient. Indices and what libtorch notes about the bags are whole everywhere.
#include <ATen/ATen.h>

#include <map>

#include "tegula/bridge/torch_types.h"
#include "tegula/families/families.h"
#include "tegula/families/fresh_tensors.h"
#include "tegula/families/operand_tiles.h"
#include "tegula/operators/call.h"
#include "tegula/spec/placed_otherwise.h"

namespace tegula::inner::families {
namespace {

// Whether one axis cuts the columns, and nothing else; every rank has some, as libtorch wants it.
bool has_cut_columns(const Call& call) {
  const PayloadPtr& first = call.tensors().front().payload;
  if (!first || !is_on_mesh_of(call, first.get()) || !holds_values(*first)) return false;
  if (!first->coordinate() || first->spec().ndim() != 2) return false;
  const DimCut& columns = first->spec().dim_cuts()[1];
  if (first->spec().dim_cuts()[0].is_cut() || columns.axes().size() != 1) return false;
  Coordinate at(first->spec().mesh().ndim(), 0);
  for (std::int64_t rank = 0; rank < columns.axes()[0].ranks; ++rank) {
    at[columns.axes()[0].axis] = rank;
    if (columns.local_size(at) == 0) return false;
  }
  return columns.most_intervals() == 1;
}

// Cut like the first operand, with other rows.
DTensorSpec columns_like(const Payload& first, std::int64_t rows, at::ScalarType type) {
  return first.spec().with_meta(TensorMeta({rows, first.spec().shape()[1]}, dtype_of(type)));
}

// The op on this rank's columns of the first operand, and of those that have as many. Results that
// have these columns are cut as well.
Values run_on_columns(const c10::OperatorHandle& op, Arguments arguments) {
  const Payload& first = *payload_in(arguments[0].toTensor());
  const auto has_columns = [&](const at::Tensor& tensor, std::int64_t columns) {
    return tensor.dim() == 2 && tensor.size(1) == columns;
  };
  const auto tile_of = [&](int, const at::Tensor& tensor) {
    if (!tensor.defined() || !has_columns(tensor, first.spec().shape()[1])) return whole_of(tensor);
    return tile_at(tensor, columns_like(first, tensor.size(0), tensor.scalar_type()),
                   first.world());
  };
  Values stack;
  for (const c10::IValue& argument : arguments) stack.push_back(with_tensors(argument, tile_of));
  const std::int64_t mine = stack[0].toTensor().size(1);
  op.callBoxed(&stack);
  for (c10::IValue& result : stack) {
    const at::Tensor tile = result.toTensor();
    const World& world = first.world();
    result = has_columns(tile, mine)
                 ? outer_tensor(tile.contiguous(),
                                columns_like(first, tile.size(0), tile.scalar_type()), world)
                 : replicated(tile, first.spec().mesh(), world);
  }
  return stack;
}

Recipe on_columns(const Call& call) {
  if (!has_cut_columns(call)) return nullptr;
  return [op = call.op()](Arguments arguments) { return run_on_columns(op, arguments); };
}

// A gradient by rows alone has no distributed form.
Recipe backward_on_columns(const Call& call) {
  const bool is_sparse = call.arguments()[*call.argument_named("sparse")].toBool();
  return is_sparse ? nullptr : on_columns(call);
}

// (grad, indices, num_weights, padding_idx, scale_grad_by_freq, sparse), of embeddings without
// bags: a dense gradient, which optimizers take as well.
Values dense_gradient(Arguments a) {
  TORCH_WARN_ONCE(
      "tegula: the gradient of a distributed embedding is dense, although sparse=True asks for "
      "rows");
  return {at::embedding_dense_backward(a[0].toTensor(), a[1].toTensor(), a[2].toInt(), a[3].toInt(),
                                       a[4].toBool())};
}

Recipe make_dense_gradient(const Call& call) {
  return call.arguments()[5].toBool() ? dense_gradient : nullptr;
}

}  // namespace

void embedding_bags(const c10::OperatorHandle& op, OperatorNotes& notes) {
  static const std::map<std::string, MakeRecipe> table = {
      {"aten::embedding_backward", make_dense_gradient},
      {"aten::_embedding_bag", on_columns},
      {"aten::_embedding_bag_forward_only", on_columns},
      {"aten::_embedding_bag_backward", backward_on_columns},
      {"aten::_embedding_bag_dense_backward", on_columns},
  };
  const auto found = table.find(toString(op.operator_name()));
  if (found != table.end()) notes.decomposition = found->second;
}

}  // namespace tegula::inner::families
