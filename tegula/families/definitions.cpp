// Ops by what they are defined to be, of other ops, where those know what to send if a dim is cut.
// libtorch's own kernels make a new tensor, which would be replicated, or look at memory.
#include <ATen/ATen.h>

#include <algorithm>
#include <cstdlib>
#include <numbers>
#include <set>
#include <string>

#include "tegula/bridge/torch_types.h"
#include "tegula/families/call_tensors.h"
#include "tegula/families/operand_tiles.h"
#include "tegula/families/recipes.h"
#include "tegula/families/recut.h"
#include "tegula/families/totals.h"
#include "tegula/operators/call.h"
#include "tegula/payload/guards.h"
#include "tegula/spec/slices.h"

namespace tegula::inner::families {
namespace {

using Sizes = std::vector<std::int64_t>;

at::Tensor dense_copy(const at::Tensor& x) { return x.clone(at::MemoryFormat::Contiguous); }

// Pixels ------------------------------------------------------------------------------------------

// (self [..., c * r * r, h, w], r) -> [..., c, h * r, w * r]
Values pixel_shuffle(Arguments a) {
  const std::int64_t r = a[1].toInt();
  at::Tensor x = with_sum_paid(tensor_at(a, 0));
  const std::int64_t channels = x.dim() - 3;
  if (is_cut(x, channels)) x = cut_by_units(x, channels, r * r);
  Sizes apart = x.sizes().vec(), together = apart;
  const auto c = static_cast<std::size_t>(channels);
  apart[c] /= r * r;
  apart.insert(apart.begin() + channels + 1, {r, r});
  together[c] /= r * r;
  together[c + 1] *= r;
  together[c + 2] *= r;
  Sizes order(apart.size());
  for (std::size_t k = 0; k < order.size(); ++k) order[k] = static_cast<std::int64_t>(k);
  std::copy_n(Sizes{channels + 3, channels + 1, channels + 4, channels + 2}.begin(), 4,
              order.begin() + channels + 1);
  return {dense_copy(dense_copy(x).view(apart).permute(order)).view(together)};
}

// (self [..., c, h * r, w * r], r) -> [..., c * r * r, h, w]
Values pixel_unshuffle(Arguments a) {
  const std::int64_t r = a[1].toInt();
  at::Tensor x = with_sum_paid(tensor_at(a, 0));
  const std::int64_t channels = x.dim() - 3;
  for (const std::int64_t dim : {channels + 1, channels + 2}) x = cut_by_units(x, dim, r);
  Sizes apart = x.sizes().vec(), together = apart;
  const auto c = static_cast<std::size_t>(channels);
  apart[c + 1] /= r;
  apart[c + 2] /= r;
  apart.insert(apart.begin() + channels + 3, r);
  apart.insert(apart.begin() + channels + 2, r);
  together[c] *= r * r;
  together[c + 1] /= r;
  together[c + 2] /= r;
  Sizes order(apart.size());
  for (std::size_t k = 0; k < order.size(); ++k) order[k] = static_cast<std::int64_t>(k);
  std::copy_n(Sizes{channels + 2, channels + 4, channels + 1, channels + 3}.begin(), 4,
              order.begin() + channels + 1);
  return {dense_copy(dense_copy(x).view(apart).permute(order)).view(together)};
}

// Where one dim is cut, and shards of whole pixels are possible.
template <Values (*run)(Arguments)>
Recipe make_of_pixels(const Call& call) {
  const at::Tensor& self = tensor_at(call.arguments(), 0);
  const std::int64_t r = call.arguments()[1].toInt();
  const std::optional<std::int64_t> dim = only_cut_dim(self);
  if (!dim || self.dim() < 3 || r < 1 || self.numel() == 0 || StrictMode::is_on()) return nullptr;
  const bool is_shuffle = run == &pixel_shuffle;
  const std::int64_t first = self.dim() - 3;
  if (*dim < first) return nullptr;
  if (is_shuffle && self.size(first) % (r * r) != 0) return nullptr;
  if (!is_shuffle && (self.size(first + 1) % r != 0 || self.size(first + 2) % r != 0)) {
    return nullptr;
  }
  return run;
}

// Gated linear units ------------------------------------------------------------------------------

// The halves of a dim, both cut evenly.
std::pair<at::Tensor, at::Tensor> halves_of(const at::Tensor& x, std::int64_t dim) {
  const std::int64_t half = x.size(dim) / 2;
  const auto part = [&](std::int64_t begin) {
    const at::Tensor one = dense_copy(x.narrow(dim, begin, half));
    return is_cut(one, dim) ? cut_along(one, dim) : one;
  };
  return {part(0), part(half)};
}

bool is_computed_as_it_is(const at::Tensor& x) {
  return x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble;
}

// (self, dim)
Recipe make_glu(const Call& call) {
  const at::Tensor& self = tensor_at(call.arguments(), 0);
  if (self.dim() != 1 || !only_axis_along(self, 0) || self.size(0) % 2 != 0 ||
      !is_computed_as_it_is(self) || StrictMode::is_on()) {
    return nullptr;
  }
  return [](Arguments a) -> Values {
    const auto [value, gate] = halves_of(with_sum_paid(tensor_at(a, 0)), 0);
    return {value * gate.sigmoid()};
  };
}

// (grad, self, dim)
Recipe make_glu_backward(const Call& call) {
  const Arguments a = call.arguments();
  const at::Tensor& self = tensor_at(a, 1);
  if (self.dim() == 0 || !has_tiles(call) || !is_any_spread(call) || StrictMode::is_on()) {
    return nullptr;
  }
  const std::int64_t dim = at::maybe_wrap_dim(a[2].toInt(), self.dim());
  const bool is_simple = tensor_at(a, 0).scalar_type() == self.scalar_type() &&
                         is_computed_as_it_is(self) && self.size(dim) % 2 == 0;
  if (!is_simple || !payload_in(self) || !payload_in(tensor_at(a, 0))) return nullptr;
  const std::optional<std::int64_t> cut = only_cut_dim(self);
  if (is_spread(self) && !cut) return nullptr;
  return [dim](Arguments given) -> Values {
    const at::Tensor& grad = tensor_at(given, 0);
    const auto [value, gate] = halves_of(with_sum_paid(tensor_at(given, 1)), dim);
    const at::Tensor open = gate.sigmoid();
    const at::Tensor of_gate = (1 - open) * open * value * grad;
    return {at::cat({(open * grad).expand_as(of_gate), of_gate}, dim)};
  };
}

// Joins -------------------------------------------------------------------------------------------

bool are_of_one_type(const c10::IValue& list) {
  const c10::ArrayRef<c10::IValue> all = list.toListRef();
  return std::all_of(all.begin(), all.end(), [&](const c10::IValue& one) {
    return one.toTensor().scalar_type() == all[0].toTensor().scalar_type();
  });
}

// (tensors): each with zeros to its left and right, one below the other.
Recipe make_block_diag(const Call& call) {
  const c10::IValue& list = call.arguments()[0];
  if (!has_tiles(call) || !is_any_spread(call) || StrictMode::is_on() || !are_of_one_type(list)) {
    return nullptr;
  }
  for (const TensorPlace& place : call.tensors()) {
    if (place.tensor.dim() > 2 || place.tensor.numel() == 0 || !place.payload) return nullptr;
  }
  return [](Arguments a) -> Values {
    std::vector<at::Tensor> blocks;
    std::int64_t columns = 0;
    for (const at::Tensor& one : a[0].toTensorVector()) {
      blocks.push_back(one.dim() == 2 ? one : one.reshape({1, -1}));
      columns += blocks.back().size(1);
    }
    std::int64_t before = 0;
    for (at::Tensor& block : blocks) {
      const std::int64_t size = block.size(1);
      block = at::constant_pad_nd(block, {before, columns - before - size});
      before += size;
    }
    return {at::cat(blocks, 0)};
  };
}

// (sequences, batch_first, padding_value, padding_side)
Recipe make_pad_sequence(const Call& call) {
  const Arguments a = call.arguments();
  if (!has_tiles(call) || StrictMode::is_on() || !are_of_one_type(a[0])) return nullptr;
  const at::IntArrayRef first = a[0].toListRef()[0].toTensor().sizes();
  for (const TensorPlace& place : call.tensors()) {
    const at::Tensor& one = place.tensor;
    if (!place.payload || one.dim() == 0 || one.sizes().slice(1) != first.slice(1)) return nullptr;
  }
  return [](Arguments given) -> Values {
    std::vector<at::Tensor> all = given[0].toTensorVector();
    std::int64_t longest = 0;
    for (const at::Tensor& one : all) longest = std::max(longest, one.size(0));
    const bool is_left = given[3].toStringView() == "left";
    for (at::Tensor& one : all) {
      Sizes pads(static_cast<std::size_t>(2 * one.dim()), 0);
      pads[pads.size() - (is_left ? 2 : 1)] = longest - one.size(0);
      one = at::constant_pad_nd(one, pads, given[2].toDouble());
    }
    return {at::stack(all, given[1].toBool() ? 0 : 1)};
  };
}

// Of all elements in order ------------------------------------------------------------------------

// The elements as a vector that is cut where the first dim is.
at::Tensor flattened(const at::Tensor& x) {
  return dense_copy(is_cut(x, 0) ? x : cut_along(x, 0)).view({-1});
}

// Whether they become one: another dim than the first is cut, alone.
bool is_cut_inside(const at::Tensor& x) {
  const std::optional<std::int64_t> dim = only_cut_dim(x);
  return dim && *dim > 0 && x.size(0) > 1 && !StrictMode::is_on();
}

// (self, indices, dim), no dim
Recipe make_take_along(const Call& call) {
  const Arguments a = call.arguments();
  if (!a[2].isNone() || !is_cut_inside(tensor_at(a, 0))) return nullptr;
  return [](Arguments given) -> Values {
    return {
        at::take_along_dim(flattened(tensor_at(given, 0)), tensor_at(given, 1).reshape({-1}), 0)};
  };
}

// A diagonal --------------------------------------------------------------------------------------

// Rows of the matrix are where the elements of its diagonal are; nothing is sent.
at::Tensor with_diagonal(const at::Tensor& vector, std::int64_t rows, std::int64_t columns,
                         std::int64_t above) {
  const Payload& payload = *payload_in(vector);
  const std::int64_t rows_before = std::max<std::int64_t>(-above, 0);
  Sizes sizes = shard_sizes(payload, 0);
  sizes.front() += rows_before;
  sizes.back() += rows - rows_before - vector.size(0);
  Placements placements = payload.spec().placements();
  placements[*only_axis_along(vector, 0)] = Shard(0, Cut::ragged(sizes));
  const DTensorSpec spec(payload.spec().mesh(), placements,
                         TensorMeta({rows, columns}, payload.spec().meta().dtype()));
  const at::Tensor tile =
      at::zeros(local_shape(spec, *payload.coordinate()), payload.tile().options());
  const at::Tensor matrix = outer_tensor(tile, spec, payload.world());
  matrix.diagonal(above).copy_(vector);
  return matrix;
}

bool is_cut_vector(const at::Tensor& x) {
  return x.dim() == 1 && only_axis_along(x, 0) && !payload_in(x)->spec().is_partial();
}

// (self, offset, dim1, dim2)
Recipe make_diag_embed(const Call& call) {
  const Arguments a = call.arguments();
  const bool is_matrix =
      at::maybe_wrap_dim(a[2].toInt(), 2) == 0 && at::maybe_wrap_dim(a[3].toInt(), 2) == 1;
  if (!is_cut_vector(tensor_at(a, 0)) || !is_matrix) return nullptr;
  return [](Arguments given) -> Values {
    const std::int64_t above = given[1].toInt();
    const std::int64_t size = tensor_at(given, 0).size(0) + std::abs(above);
    return {with_diagonal(tensor_at(given, 0), size, size, above)};
  };
}

// (grad, input_sizes, offset, dim1, dim2)
Recipe make_diagonal_backward(const Call& call) {
  const Arguments a = call.arguments();
  const Sizes shape = a[1].toIntVector();
  if (!is_cut_vector(tensor_at(a, 0)) || shape.size() != 2) return nullptr;
  const bool is_matrix =
      at::maybe_wrap_dim(a[3].toInt(), 2) == 0 && at::maybe_wrap_dim(a[4].toInt(), 2) == 1;
  if (!is_matrix) return nullptr;
  return [shape](Arguments given) -> Values {
    return {with_diagonal(tensor_at(given, 0), shape[0], shape[1], given[2].toInt())};
  };
}

// (self, offset) of anything: of its elements, in order
Recipe make_diagflat(const Call& call) {
  const at::Tensor& self = tensor_at(call.arguments(), 0);
  const std::optional<std::int64_t> dim = only_cut_dim(self);
  if (!dim || self.size(0) < 2 || (*dim != 0 && StrictMode::is_on())) return nullptr;
  return [](Arguments a) -> Values {
    return {at::diag_embed(flattened(tensor_at(a, 0)), a[1].toInt())};
  };
}

// Others ------------------------------------------------------------------------------------------

// (input, weight, bias, running_mean, running_var, use_input_stats, ...): libtorch repeats weights
// for each image; those that are cut meet what is normalized instead.
Recipe make_instance_norm(const Call& call) {
  const Arguments a = call.arguments();
  const at::Tensor& input = tensor_at(a, 0);
  const bool has_weights = is_given(a[1]) || is_given(a[2]);
  if (!has_weights || is_given(a[3]) || is_given(a[4]) || !a[5].toBool() || input.dim() < 3 ||
      !is_computed_as_it_is(input)) {
    return nullptr;
  }
  bool is_cut_alone = false;
  for (const std::size_t k : {std::size_t{1}, std::size_t{2}}) {
    if (!is_given(a[k])) continue;
    if (tensor_at(a, k).scalar_type() != input.scalar_type()) return nullptr;
    is_cut_alone = is_cut_alone || (is_spread(tensor_at(a, k)) && !is_cut(input, 1));
  }
  if (!is_cut_alone) return nullptr;
  return [](Arguments given) -> Values {
    const at::Tensor& x = tensor_at(given, 0);
    Sizes shape(static_cast<std::size_t>(x.dim()), 1);
    shape[1] = x.size(1);
    at::Tensor result = at::instance_norm(x, {}, {}, {}, {}, true, given[6].toDouble(),
                                          given[7].toDouble(), given[8].toBool());
    if (is_given(given[1])) result = result * tensor_at(given, 1).view(shape);
    return {is_given(given[2]) ? result + tensor_at(given, 2).view(shape) : result};
  };
}

// What lies between the elements of a sorted dim at `ranks`, which count from 0 and may be broken
// numbers.
at::Tensor read_between(const at::Tensor& sorted, std::int64_t dim, const at::Tensor& ranks,
                        c10::string_view interpolation) {
  Sizes shape = sorted.sizes().vec();
  shape[static_cast<std::size_t>(dim)] = ranks.size(dim);
  const auto at_ranks = [&](const at::Tensor& whole_ranks) {
    return sorted.gather(dim, whole_ranks.to(at::kLong).expand(shape));
  };
  if (interpolation == "lower") return at_ranks(ranks.floor());
  if (interpolation == "higher") return at_ranks(ranks.ceil());
  if (interpolation == "nearest") return at_ranks(ranks.round());
  const at::Tensor below = ranks.floor();
  const at::Tensor share = interpolation == "midpoint" ? at::full_like(ranks, 0.5) : ranks - below;
  return at::lerp(at_ranks(below), at_ranks(ranks.ceil()), share.expand(shape));
}

// One number, or a tensor of them.
at::Tensor asked_quantiles(const c10::IValue& q, at::ScalarType type) {
  return q.isTensor() ? q.toTensor() : at::scalar_tensor(q.toDouble(), at::TensorOptions(type));
}

bool are_shares(const at::Tensor& q) {
  const at::Tensor given = q.detach();
  const at::Tensor all = whole_of(given.ge(0).logical_and(given.le(1)).all());
  return all.is_meta() || all.item().toBool();
}

// All elements as a vector, what is cut first.
at::Tensor in_any_order(const at::Tensor& x) {
  const std::optional<std::int64_t> cut = only_cut_dim(x);
  return cut ? x.movedim(*cut, 0).flatten() : x.flatten();
}

// (self, q, dim, keepdim, interpolation): self is sorted, then read at the ranks that q stands for.
// libtorch's own composition points into the data of its tensors since 2.14.
template <bool skips_nans>
Recipe make_quantile(const Call& call) {
  const Arguments a = call.arguments();
  const at::Tensor& self = tensor_at(a, 0);
  if (!is_computed_as_it_is(self) || self.numel() == 0) return nullptr;
  const std::set<std::string> known = {"linear", "lower", "higher", "midpoint", "nearest"};
  if (!known.contains(std::string(a[4].toStringView()))) return nullptr;
  const std::int64_t dims = std::max<std::int64_t>(self.dim(), 1);
  if (!a[2].isNone() && (a[2].toInt() < -dims || a[2].toInt() >= dims)) return nullptr;
  const at::Tensor asked = asked_quantiles(a[1], self.scalar_type());
  if (asked.dim() > 1 || asked.scalar_type() != self.scalar_type() || !are_shares(asked)) {
    return nullptr;
  }

  return [](Arguments given) -> Values {
    const at::Tensor& whole = tensor_at(given, 0);
    const at::Tensor shares = asked_quantiles(given[1], whole.scalar_type());
    if (!are_shares(shares)) return {};  // libtorch says what is wrong
    const bool keeps = given[3].toBool();
    const at::Tensor x = given[2].isNone() ? in_any_order(whole) : at::atleast_1d(whole);
    const std::int64_t dim = given[2].isNone() ? 0 : c10::maybe_wrap_dim(given[2].toInt(), x.dim());
    Sizes along_dim(static_cast<std::size_t>(x.dim()), 1);
    along_dim[static_cast<std::size_t>(dim)] = shares.numel();

    const at::Tensor sorted = std::get<0>(at::sort(x, dim));  // NaNs come last
    const at::Tensor nans = sorted.detach().isnan();
    const std::int64_t last = x.size(dim) - 1;
    at::Tensor ranks = shares.reshape(along_dim);
    if (skips_nans) {
      ranks = ranks * (last - nans.sum(dim, true)).clamp_min(0).to(shares.scalar_type());
    } else {
      ranks = (ranks * last).masked_fill(nans.any(dim, true), last);
    }
    at::Tensor result = read_between(sorted, dim, ranks, given[4].toStringView());
    // several quantiles are the first dim of the result
    result = shares.dim() == 1 ? result.unsqueeze(0).transpose(0, dim + 1) : result;
    if (!keeps || whole.dim() == 0) return {result.squeeze(shares.dim() + dim)};
    if (!given[2].isNone()) return {result};
    Sizes ones(static_cast<std::size_t>(whole.dim()), 1);
    if (shares.dim() == 1) ones.insert(ones.begin(), shares.numel());
    return {result.reshape(ones)};
  };
}

// (grad, self)
Recipe make_gelu_backward(const Call& call) {
  const at::Tensor& self = tensor_at(call.arguments(), 1);
  if (!is_any_spread(call) || !is_computed_as_it_is(self)) return nullptr;
  return [](Arguments a) -> Values {
    constexpr double alpha = std::numbers::inv_sqrtpi / std::numbers::sqrt2;
    const at::Tensor& x = tensor_at(a, 1);
    const at::Tensor below = (x * (1 / std::numbers::sqrt2)).erf().add(1).mul(0.5);
    const at::Tensor density = (x * x * -0.5).exp();
    return {below.addcmul(x, density, alpha).mul(tensor_at(a, 0))};
  };
}

// (x, N, increasing)
Recipe make_vander(const Call& call) {
  const Arguments a = call.arguments();
  const at::Tensor& x = tensor_at(a, 0);
  const std::int64_t columns = a[1].isNone() ? x.numel() : a[1].toInt();
  if (x.dim() != 1 || !payload_in(x) || !is_floating(x) || columns < 2) return nullptr;
  return [columns](Arguments given) -> Values {
    const at::Tensor powers = at::linalg_vander(tensor_at(given, 0), columns);
    return {given[2].toBool() ? powers : at::flip(powers, {1})};
  };
}

// The tensor itself, by another name.
Recipe make_lift(const Call& call) {
  if (!has_tile(tensor_at(call.arguments(), 0))) return nullptr;
  return [](Arguments a) -> Values { return {at::alias(tensor_at(a, 0))}; };
}

// (self, the_template, memory_format) of one shape
Recipe make_resize_as(const Call& call) {
  const Arguments a = call.arguments();
  if (!is_any_spread(call) || !payload_in(tensor_at(a, 0)) ||
      tensor_at(a, 0).sizes() != tensor_at(a, 1).sizes() || !a[2].isNone() ||
      !tensor_at(a, 0).is_contiguous()) {
    return nullptr;
  }
  return [](Arguments given) -> Values { return {dense_copy(tensor_at(given, 0))}; };
}

// Where the tile is.
Recipe make_is_pinned(const Call& call) {
  if (!has_tile(tensor_at(call.arguments(), 0))) return nullptr;
  return [](Arguments a) -> Values { return {payload_in(tensor_at(a, 0))->tile().is_pinned()}; };
}

// Writes to self where it can, and gives it.
Recipe make_saturate(const Call& call) {
  const at::Tensor& self = tensor_at(call.arguments(), 0);
  if (is_followed(call) || !is_spread(self) || self.dim() != 2 ||
      self.scalar_type() != at::kFloat || !self.is_contiguous() ||
      payload_in(self)->spec().is_partial()) {
    return nullptr;
  }
  return [](Arguments a) -> Values {
    constexpr double greatest_half = 65504;
    tensor_at(a, 0).clamp_(-greatest_half, greatest_half);
    return {a[0]};
  };
}

}  // namespace

const RecipeTable& definition_recipes() {
  static const RecipeTable table = {
      {"pixel_shuffle", make_of_pixels<pixel_shuffle>},
      {"pixel_unshuffle", make_of_pixels<pixel_unshuffle>},
      {"glu", make_glu},
      {"glu_backward", make_glu_backward},
      {"block_diag", make_block_diag},
      {"pad_sequence", make_pad_sequence},
      {"diag_embed", make_diag_embed},
      {"diagflat", make_diagflat},
      {"diagonal_backward", make_diagonal_backward},
      {"infinitely_differentiable_gelu_backward", make_gelu_backward},
      {"instance_norm", make_instance_norm},
      {"take_along_dim", make_take_along},
      {"vander", make_vander},
      {"quantile", make_quantile<false>},
      {"quantile.scalar", make_quantile<false>},
      {"nanquantile", make_quantile<true>},
      {"nanquantile.scalar", make_quantile<true>},
      {"lift", make_lift},
      {"resize_as", make_resize_as},
      {"is_pinned", make_is_pinned},
      {"_saturate_weight_to_fp16", make_saturate},
  };
  return table;
}

}  // namespace tegula::inner::families
