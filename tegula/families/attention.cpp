// Attention where its rule does not hold: what is causal becomes a mask, since a tile does not know
// which rows it holds; heads that several queries share become rows of one query; and where keys
// are cut, scores are made key by key and two totals per row travel, the greatest score and the
// sum.
#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <map>

#include "tegula/families/families.h"
#include "tegula/families/totals.h"
#include "tegula/gradient/differentiable.h"
#include "tegula/operators/call.h"
#include "tegula/spec/view_draft.h"

namespace tegula::inner::families {
namespace {

constexpr std::int64_t kHeads = 1;
constexpr std::int64_t kRows = 2;

// Autograd may pass an undefined tensor for one that is not given.
std::optional<at::Tensor> given(const c10::IValue& value) {
  if (!value.isTensor() || !value.toTensor().defined()) return std::nullopt;
  return value.toTensor();
}

struct Attention {
  at::Tensor query, key, value;
  double dropout = 0;
  bool is_causal = false;
  std::optional<at::Tensor> mask;
  std::optional<double> scale;

  // The arguments of the forward, or of the backward behind the gradient.
  static Attention of(Arguments a, std::size_t first, std::size_t dropout) {
    return {a[first].toTensor(),
            a[first + 1].toTensor(),
            a[first + 2].toTensor(),
            a[dropout].toDouble(),
            a[dropout + 1].toBool(),
            given(a[dropout + 2]),
            a[dropout + 3].toOptional<double>()};
  }
  static Attention forward(Arguments a) { return of(a, 0, 3); }
  static Attention backward(Arguments a) { return of(a, 1, 6); }
};

const DTensorSpec* spec_in(const at::Tensor& tensor) {
  const Payload* payload = payload_in(tensor);
  return payload && !payload->link() ? &payload->spec() : nullptr;
}

bool is_like_attention(const Attention& a) {
  return a.query.dim() == 4 && a.key.dim() == 4 && a.value.dim() == 4 && spec_in(a.query);
}

// Several heads of queries for each of the keys and values.
bool shares_heads(const Attention& a) {
  const std::int64_t heads = a.key.size(kHeads);
  return heads == a.value.size(kHeads) && heads > 0 && a.query.size(kHeads) > heads &&
         a.query.size(kHeads) % heads == 0;
}

// Causal --------------------------------------------------------------------------------------

// Also where heads are shared: they become rows, of which several are the same row of the query.
bool needs_causal_mask(const Attention& a) {
  if (!a.is_causal || a.mask) return false;
  for (const at::Tensor& tensor : {a.query, a.key, a.value}) {
    const DTensorSpec* spec = spec_in(tensor);
    if (is_cut(tensor, kRows) || (shares_heads(a) && spec && spec->is_sharded())) return true;
  }
  return false;
}

// Minus infinity where a key comes after the query's row. Cut as the query's rows are.
at::Tensor causal_mask(const Attention& a) {
  const PayloadPtr query = payload_of(a.query);
  const DeviceMesh& mesh = query->spec().mesh();
  const at::Tensor keys =
      replicated(at::arange(a.key.size(kRows)).unsqueeze(0), mesh, query->world());
  at::Tensor rows = replicated(at::arange(a.query.size(kRows)).unsqueeze(1), mesh, query->world());
  const DTensorSpec whole = payload_in(rows)->spec();
  ViewDraft draft(whole);
  draft.cut(0, query->spec().dim_cuts()[kRows].axes());
  rows = move_to(rows, draft.finish(whole.meta()), CallMode::Sync, {});
  const at::Tensor none =
      replicated(at::zeros({}, a.query.options().device(query->device())), mesh, query->world());
  return at::where(at::gt(keys, rows), -std::numeric_limits<double>::infinity(), none)
      .to(a.query.scalar_type());
}

Values causal(Arguments arguments) {
  const Attention a = Attention::forward(arguments);
  const auto [out, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(
      a.query, a.key, a.value, a.dropout, false, causal_mask(a), a.scale);
  return {out, logsumexp};
}

Values causal_backward(Arguments arguments) {
  const Attention a = Attention::backward(arguments);
  const auto [query, key, value] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      arguments[0].toTensor(), a.query, a.key, a.value, arguments[4].toTensor(),
      arguments[5].toTensor(), a.dropout, false, causal_mask(a), a.scale);
  return {query, key, value};
}

// Heads that queries share ----------------------------------------------------------------------

// [b, g * h, q, ...] -> [b, h, g * q, ...]: the g heads that share one key stand one after the
// other.
at::Tensor heads_to_rows(const at::Tensor& tensor, std::int64_t heads) {
  return tensor.unflatten(kHeads, {heads, -1}).flatten(2, 3);
}
at::Tensor rows_to_heads(const at::Tensor& tensor, std::int64_t shared) {
  return tensor.unflatten(kRows, {shared, -1}).flatten(1, 2);
}

std::optional<at::Tensor> mask_of_rows(const Attention& a, std::int64_t shared) {
  if (!a.mask) return std::nullopt;
  if (a.mask->dim() == 4 && a.mask->size(kHeads) > 1) {
    return heads_to_rows(*a.mask, a.key.size(kHeads));
  }
  std::vector<std::int64_t> shape = a.mask->sizes().vec();
  shape.insert(shape.end() - 2, shared);
  return a.mask->unsqueeze(-3).expand(shape).flatten(-3, -2);
}

Values sharing_heads(Arguments arguments) {
  const Attention a = Attention::forward(arguments);
  const std::int64_t heads = a.key.size(kHeads);
  const std::int64_t shared = a.query.size(kHeads) / heads;
  const auto [out, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(
      heads_to_rows(a.query, heads), a.key, a.value, a.dropout, false, mask_of_rows(a, shared),
      a.scale);
  return {rows_to_heads(out, shared), rows_to_heads(logsumexp, shared)};
}

Values sharing_heads_backward(Arguments arguments) {
  const Attention a = Attention::backward(arguments);
  const std::int64_t heads = a.key.size(kHeads);
  const std::int64_t shared = a.query.size(kHeads) / heads;
  const auto rows = [&](const c10::IValue& one) { return heads_to_rows(one.toTensor(), heads); };
  const auto [query, key, value] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      rows(arguments[0]), heads_to_rows(a.query, heads), a.key, a.value, rows(arguments[4]),
      rows(arguments[5]), a.dropout, false, mask_of_rows(a, shared), a.scale);
  return {rows_to_heads(query, shared), key, value};
}

// Cut keys --------------------------------------------------------------------------------------

// An axis that cuts keys, but not the query's rows. Where it cuts both, keys and values are
// gathered.
bool cuts_keys_alone(const Attention& a) {
  const auto cuts_rows = [&](const at::Tensor& tensor, std::size_t axis) {
    const DTensorSpec* spec = spec_in(tensor);
    const Shard* shard = spec ? as_shard(spec->placements()[axis]) : nullptr;
    return shard && shard->dim() == kRows;
  };
  for (std::size_t axis = 0; axis < spec_in(a.query)->mesh().ndim(); ++axis) {
    if (cuts_rows(a.query, axis)) continue;
    if (cuts_rows(a.key, axis) || cuts_rows(a.value, axis)) return true;
  }
  return false;
}

// As libtorch's own: a row without any key to look at gives zeros. Halves are added up as floats.
Values by_totals(Arguments arguments) {
  const Attention a = Attention::forward(arguments);
  if (a.dropout != 0) return {};  // libtorch refuses it
  const at::ScalarType type = a.query.scalar_type();
  const at::ScalarType wide = type == at::kDouble ? at::kDouble : at::kFloat;
  const double scale = a.scale.value_or(1 / std::sqrt(static_cast<double>(a.query.size(-1))));
  at::Tensor scores = at::matmul(a.query.to(wide) * scale, a.key.to(wide).transpose(-2, -1));
  if (a.mask) scores = scores + a.mask->to(wide);
  const at::Tensor greatest = at::amax(scores, {-1}, true);
  const at::Tensor base =
      greatest.masked_fill(at::eq(greatest, -std::numeric_limits<double>::infinity()), 0.0);
  const at::Tensor weights = at::exp(scores - base);
  const at::Tensor total = at::sum(weights, {-1}, true);
  const at::Tensor has_none = at::eq(total, 0.0);
  at::Tensor out =
      (at::matmul(weights, a.value.to(wide)) / total.masked_fill(has_none, 1.0)).to(type);
  if (!a.query.is_contiguous() && a.query.transpose(1, 2).is_contiguous()) {
    out = out.transpose(1, 2).contiguous().transpose(1, 2);
  }
  const at::Tensor logsumexp = (base + at::log(total)).masked_fill(has_none, 0.0).squeeze(-1);
  return {out, logsumexp};
}

// -----------------------------------------------------------------------------------------------

Recipe make_attention(const Call& call) {
  const Attention a = Attention::forward(call.arguments());
  if (!is_like_attention(a)) return nullptr;
  if (needs_causal_mask(a)) return causal;
  if (!a.is_causal && shares_heads(a)) return sharing_heads;
  const bool has_own_heads = a.query.size(kHeads) == a.key.size(kHeads);
  return !a.is_causal && has_own_heads && a.dropout == 0 && cuts_keys_alone(a) ? by_totals
                                                                               : nullptr;
}

Recipe make_attention_backward(const Call& call) {
  const Attention a = Attention::backward(call.arguments());
  if (!is_like_attention(a)) return nullptr;
  if (needs_causal_mask(a)) return causal_backward;
  return !a.is_causal && shares_heads(a) ? sharing_heads_backward : nullptr;
}

}  // namespace

void attention(const c10::OperatorHandle& op, OperatorNotes& notes) {
  static const std::map<std::string, MakeRecipe> table = {
      {"aten::_scaled_dot_product_flash_attention_for_cpu", make_attention},
      {"aten::_scaled_dot_product_flash_attention_for_cpu_backward", make_attention_backward},
  };
  const auto found = table.find(toString(op.operator_name()));
  if (found != table.end()) notes.decomposition = found->second;
}

}  // namespace tegula::inner::families
