// Losses that divide by what all rows weigh, or look up a class where the classes are cut: totals
// travel. Losses of sequences: each rank has its part of the batch.
#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "tegula/bridge/torch_types.h"
#include "tegula/families/picked.h"
#include "tegula/families/recipes.h"
#include "tegula/families/recut.h"
#include "tegula/families/totals.h"
#include "tegula/gradient/differentiable.h"
#include "tegula/operators/call.h"

namespace tegula::inner::families {
namespace {

bool is_mean(const c10::IValue& reduction) { return reduction.toInt() == at::Reduction::Mean; }

// What the class of each row weighs; 0 where it is ignored.
at::Tensor weights_of_rows(const at::Tensor& weight, const at::Tensor& target,
                           std::int64_t ignored) {
  const at::Tensor is_ignored = at::eq(target, ignored);
  const at::Tensor rows =
      at::embedding(weight.unsqueeze(1), target.masked_fill(is_ignored, 0)).squeeze(1);
  return rows.masked_fill(is_ignored, 0);
}

// The class of each row is looked up where it is.
Values nll_loss(Arguments a) {
  const at::Tensor& self = tensor_at(a, 0);
  const at::Tensor& target = tensor_at(a, 1);
  const std::int64_t reduction = a[3].toInt();
  const std::int64_t ignored = a[4].toInt();
  const at::ScalarType type = self.scalar_type();
  at::Tensor losses = at::neg(picked_along_rows(self, target, ignored));
  at::Tensor total;
  if (is_given(a[2])) {
    const at::Tensor weights = weights_of_rows(tensor_at(a, 2), target, ignored);
    losses = losses * weights;
    total = at::sum(to_add_up(weights));
  } else {
    total = at::sum(at::ne(target, ignored), sum_type(type));
  }
  if (reduction == at::Reduction::None) return {losses, in_type(at::zeros_like(total), type)};
  const at::Tensor loss = at::sum(to_add_up(losses));
  if (reduction != at::Reduction::Mean) return {rounded_to(loss, type), rounded_to(total, type)};
  const at::Tensor paid = with_sum_paid(total);  // the gradient divides by it, too
  return {in_type(loss / paid, type), in_type(paid, type)};
}

// A mean is a sum, divided by what all weigh.
template <auto forward>
Values mean_of_sum(Arguments a) {
  const at::Tensor& self = tensor_at(a, 0);
  std::optional<at::Tensor> weight;
  if (is_given(a[2])) weight = to_add_up(tensor_at(a, 2));
  const auto [sum, total] =
      forward(to_add_up(self), tensor_at(a, 1), weight, at::Reduction::Sum, a[4].toInt());
  const at::Tensor paid = with_sum_paid(total);
  return {in_type(sum / paid, self.scalar_type()), in_type(paid, self.scalar_type())};
}

// Whether several ranks have different parts of it.
bool is_divided(const at::Tensor& tensor) {
  if (!is_spread(tensor)) return false;
  const DTensorSpec& spec = payload_in(tensor)->spec();
  for (std::size_t axis = 0; axis < spec.placements().size(); ++axis) {
    if (spec.mesh().axes()[axis].size > 1 && !is_replicate(spec.placements()[axis])) return true;
  }
  return false;
}

// Where the classes are not cut, the rule covers all but the mean of several ranks' rows.
Recipe make_nll_loss(const Call& call) {
  const Arguments a = call.arguments();
  const at::Tensor& self = tensor_at(a, 0);
  if (self.dim() != 2 || tensor_at(a, 1).dim() != 1) return nullptr;
  if (is_cut(self, 1)) return can_pick_along_rows(self) ? nll_loss : nullptr;
  const bool is_there = is_divided(self) || is_divided(tensor_at(a, 1));
  return is_there && is_mean(a[3]) ? mean_of_sum<at::nll_loss_forward> : nullptr;
}

// Images [n, classes, h, w] whose classes are cut: their points are rows.
at::Tensor points_as_rows(const at::Tensor& self) {
  const std::int64_t points = self.size(0) * self.size(2) * self.size(3);
  return self.permute({0, 2, 3, 1}).reshape({points, self.size(1)});
}

std::optional<at::Tensor> optional_at(Arguments a, std::size_t index) {
  return is_given(a[index]) ? std::optional(tensor_at(a, index)) : std::nullopt;
}

Values nll_loss2d_by_rows(Arguments a) {
  const at::Tensor& target = tensor_at(a, 1);
  const std::int64_t reduction = a[3].toInt();
  const auto [loss, total] =
      at::nll_loss_forward(points_as_rows(tensor_at(a, 0)), target.reshape({target.numel()}),
                           optional_at(a, 2), reduction, a[4].toInt());
  return {reduction == at::Reduction::None ? loss.reshape(target.sizes()) : loss, total};
}

Values nll_loss2d_backward_by_rows(Arguments a) {
  const at::Tensor& self = tensor_at(a, 1);
  const at::Tensor& target = tensor_at(a, 2);
  const at::Tensor& grad = tensor_at(a, 0);
  const at::Tensor of_rows =
      at::nll_loss_backward(grad.dim() == 0 ? grad : grad.reshape({target.numel()}),
                            points_as_rows(self), target.reshape({target.numel()}),
                            optional_at(a, 3), a[4].toInt(), a[5].toInt(), tensor_at(a, 6));
  return {of_rows.reshape({self.size(0), self.size(2), self.size(3), self.size(1)})
              .permute({0, 3, 1, 2})
              .contiguous()};
}

bool has_cut_classes(const at::Tensor& self, const at::Tensor& target) {
  return self.dim() == 4 && target.dim() == 3 && is_cut(self, 1);
}

Recipe make_nll_loss2d(const Call& call) {
  const Arguments a = call.arguments();
  const at::Tensor& self = tensor_at(a, 0);
  if (has_cut_classes(self, tensor_at(a, 1))) return nll_loss2d_by_rows;
  const bool can_sum = self.dim() == 4 && tensor_at(a, 1).dim() == 3 && is_mean(a[3]);
  const bool is_there = is_divided(self) || is_divided(tensor_at(a, 1));
  return can_sum && is_there ? mean_of_sum<at::nll_loss2d_forward> : nullptr;
}

Recipe make_nll_loss2d_backward(const Call& call) {
  const Arguments a = call.arguments();
  return has_cut_classes(tensor_at(a, 1), tensor_at(a, 2)) ? nll_loss2d_backward_by_rows : nullptr;
}

Values nll_loss_backward(Arguments a) {
  const at::Tensor& target = tensor_at(a, 2);
  at::Tensor grad = is_mean(a[4]) ? tensor_at(a, 0) / tensor_at(a, 6) : tensor_at(a, 0);
  if (is_given(a[3])) grad = grad * weights_of_rows(tensor_at(a, 3), target, a[5].toInt());
  return {put_along_rows(at::neg(grad), tensor_at(a, 1), target, a[5].toInt())};
}

Recipe make_nll_loss_backward(const Call& call) {
  const Arguments a = call.arguments();
  const at::Tensor& self = tensor_at(a, 1);
  if (self.dim() != 2 || tensor_at(a, 2).dim() != 1) return nullptr;
  return is_cut(self, 1) && can_pick_along_rows(self) ? nll_loss_backward : nullptr;
}

// The mean of the rows' losses.
Values multilabel_margin_loss(Arguments a) {
  const auto [losses, is_target] =
      at::multilabel_margin_loss_forward(tensor_at(a, 0), tensor_at(a, 1), at::Reduction::None);
  return {at::mean(losses), is_target};
}

Recipe make_multilabel_margin_loss(const Call& call) {
  const Arguments a = call.arguments();
  const bool has_rows = tensor_at(a, 0).dim() == 2 && tensor_at(a, 0).numel() > 0;
  const bool is_there = is_spread(tensor_at(a, 0)) || is_spread(tensor_at(a, 1));
  return has_rows && is_there && is_mean(a[2]) ? multilabel_margin_loss : nullptr;
}

// (self [c], target, p, margin, weight?, reduction): one row of scores whose classes are cut.
Values multi_margin_loss(Arguments a) {
  const at::Tensor x = with_sum_paid(tensor_at(a, 0));
  const at::Tensor target = tensor_at(a, 1).reshape({1});
  const at::Tensor score = with_sum_paid(x.index_select(0, target));
  at::Tensor excess = (x - score + a[3].toScalar()).clamp_min(0);
  if (a[2].toScalar().toDouble() == 2) excess = excess.square();
  if (is_given(a[4])) excess = excess * with_sum_paid(tensor_at(a, 4).index_select(0, target));
  const at::Tensor loss = excess.index_fill(0, target, 0).sum() / x.size(0);
  const bool is_list = a[5].toInt() == at::Reduction::None && tensor_at(a, 1).dim() > 0;
  return {is_list ? loss.reshape({1}) : loss};
}

Recipe make_multi_margin_loss(const Call& call) {
  const Arguments a = call.arguments();
  const at::Tensor& self = tensor_at(a, 0);
  const double p = a[2].toScalar().toDouble();
  const bool is_row = self.dim() == 1 && only_axis_along(self, 0) && tensor_at(a, 1).numel() == 1;
  const bool fits = !is_given(a[4]) || (tensor_at(a, 4).sizes() == self.sizes() &&
                                        tensor_at(a, 4).scalar_type() == self.scalar_type());
  const bool is_simple = self.scalar_type() == at::kFloat || self.scalar_type() == at::kDouble;
  return is_row && fits && is_simple && (p == 1 || p == 2) ? multi_margin_loss : nullptr;
}

// Sequences whose batch is cut: each rank aligns its own ------------------------------------------

// What a rank has of a batch: log_probs is [time, batch, classes].
struct BatchHere {
  at::Tensor targets;
  std::vector<std::int64_t> input_lengths;
  std::vector<std::int64_t> target_lengths;
  std::int64_t most = 0;  // of target_lengths
};

BatchHere batch_here(const Payload& log_probs, Arguments targets_and_lengths) {
  const Interval here = log_probs.spec().dim_cuts()[1].intervals(*log_probs.coordinate()).front();
  const auto part_of = [&](const c10::IValue& lengths) {
    const std::vector<std::int64_t> all = lengths.toIntVector();
    return std::vector<std::int64_t>(all.begin() + here.begin, all.begin() + here.end());
  };
  const std::vector<std::int64_t> all = targets_and_lengths[2].toIntVector();
  BatchHere batch{{}, part_of(targets_and_lengths[1]), part_of(targets_and_lengths[2]), 0};
  for (const std::int64_t length : batch.target_lengths) batch.most = std::max(batch.most, length);
  const at::Tensor& targets = targets_and_lengths[0].toTensor();
  const PayloadPtr payload = payload_of(targets);
  const at::Tensor whole = payload ? payload->whole() : targets;
  if (whole.dim() == 2) {
    batch.targets = whole.narrow(0, here.begin, here.size);
  } else {
    const auto sum = [](auto begin, auto end) {
      return std::accumulate(begin, end, std::int64_t{0});
    };
    batch.targets = whole.narrow(0, sum(all.begin(), all.begin() + here.begin),
                                 sum(batch.target_lengths.begin(), batch.target_lengths.end()));
  }
  return batch;
}

// Of a tensor whose first dim is the batch, cut as that of log_probs.
DTensorSpec batch_first(const DTensorSpec& log_probs, const TensorMeta& meta) {
  Placements placements = log_probs.placements();
  for (Placement& placement : placements) {
    if (const Shard* shard = as_shard(placement)) placement = Shard(0, shard->cut());
  }
  ShardOrder order = log_probs.shard_order();
  for (ShardOrderEntry& entry : order) entry.dim = 0;
  return {log_probs.mesh(), placements, order, meta};
}

// A tensor that has the batch first, whose other dims are whole.
at::Tensor with_batch_first(const at::Tensor& tile, const Payload& log_probs) {
  Shape shape = tile.sizes().vec();
  shape[0] = log_probs.spec().shape()[1];
  const DTensorSpec spec =
      batch_first(log_probs.spec(), TensorMeta(shape, dtype_of(tile.scalar_type())));
  return outer_tensor(tile.contiguous(), spec, log_probs.world());
}

at::Tensor tile_with_batch_first(const at::Tensor& tensor, const Payload& log_probs) {
  const TensorMeta meta(tensor.sizes().vec(), dtype_of(tensor.scalar_type()));
  const at::Tensor placed =
      move_to(tensor, batch_first(log_probs.spec(), meta), CallMode::Sync, {});
  return payload_of(placed)->resolved_tile();
}

std::int64_t most_of(const c10::IValue& lengths) {
  const std::vector<std::int64_t> all = lengths.toIntVector();
  return all.empty() ? 0 : *std::max_element(all.begin(), all.end());
}

// (log_probs, targets, input_lengths, target_lengths, blank, zero_infinity) -> losses, log_alpha
// [batch, time, 2 * longest target + 1]
Values ctc_loss(Arguments a) {
  const at::Tensor log_probs = with_sum_paid(tensor_at(a, 0));
  const PayloadPtr payload = payload_of(log_probs);
  const BatchHere batch = batch_here(*payload, a.subspan(1, 3));
  const at::Tensor tile = payload->resolved_tile();
  const std::int64_t width = 2 * most_of(a[3]) + 1;
  at::Tensor losses = at::empty({0}, tile.options());
  at::Tensor log_alpha = at::empty({0, tile.size(0), width}, tile.options());
  if (tile.size(1) > 0) {
    std::tie(losses, log_alpha) = at::_ctc_loss(tile, batch.targets, batch.input_lengths,
                                                batch.target_lengths, a[4].toInt(), a[5].toBool());
    log_alpha = at::constant_pad_nd(log_alpha, {0, width - log_alpha.size(2)});
  }
  return {with_batch_first(losses, *payload), with_batch_first(log_alpha, *payload)};
}

// (grad, log_probs, targets, input_lengths, target_lengths, losses, log_alpha, blank,
// zero_infinity) -> of log_probs
Values ctc_loss_backward(Arguments a) {
  const at::Tensor log_probs = with_sum_paid(tensor_at(a, 1));
  const PayloadPtr payload = payload_of(log_probs);
  const BatchHere batch = batch_here(*payload, a.subspan(2, 3));
  const at::Tensor tile = payload->resolved_tile();
  const at::Tensor grad = tile_with_batch_first(tensor_at(a, 0), *payload);
  const at::Tensor losses = tile_with_batch_first(tensor_at(a, 5), *payload);
  const at::Tensor log_alpha = tile_with_batch_first(tensor_at(a, 6), *payload);
  at::Tensor of_tile = at::zeros_like(tile);
  if (tile.size(1) > 0) {
    of_tile = at::_ctc_loss_backward(
        grad, tile, batch.targets, batch.input_lengths, batch.target_lengths, losses,
        log_alpha.narrow(2, 0, 2 * batch.most + 1).contiguous(), a[7].toInt(), a[8].toBool());
  }
  const TensorMeta meta(payload->spec().shape(), dtype_of(of_tile.scalar_type()));
  return {outer_tensor(of_tile.contiguous(), payload->spec().with_meta(meta), payload->world())};
}

// Whether the batch alone is cut, in single runs, and there is a length for each of it.
bool has_cut_batch(const at::Tensor& log_probs, const at::Tensor& targets, Arguments lengths) {
  if (!has_tile(log_probs) || log_probs.dim() != 3 || !is_cut(log_probs, 1)) return false;
  if (is_cut(log_probs, 0) || is_cut(log_probs, 2)) return false;
  const DimCut& cut = payload_of(log_probs)->spec().dim_cuts()[1];
  const Payload* of_targets = payload_in(targets);
  if (of_targets && (of_targets->link() || !of_targets->coordinate())) return false;
  if (cut.most_intervals() != 1) return false;
  return std::all_of(lengths.begin(), lengths.end(), [&](const c10::IValue& one) {
    return static_cast<std::int64_t>(one.toIntVector().size()) == cut.size();
  });
}

// What is wrong with lengths and targets, libtorch says of the whole.
bool fits_lengths(const at::Tensor& targets, const c10::IValue& target_lengths) {
  const std::vector<std::int64_t> lengths = target_lengths.toIntVector();
  if (std::any_of(lengths.begin(), lengths.end(), [](std::int64_t n) { return n < 0; })) {
    return false;
  }
  if (targets.dim() == 2) {
    return targets.size(0) == static_cast<std::int64_t>(lengths.size()) &&
           targets.size(1) >= most_of(target_lengths);
  }
  return targets.dim() == 1 &&
         targets.size(0) == std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
}

Recipe make_ctc_loss(const Call& call) {
  const Arguments a = call.arguments();
  const std::vector<std::int64_t> inputs = a[2].toIntVector();
  const bool fits = fits_lengths(tensor_at(a, 1), a[3]) &&
                    std::all_of(inputs.begin(), inputs.end(), [&](std::int64_t length) {
                      return length >= 0 && length <= tensor_at(a, 0).size(0);
                    });
  return fits && has_cut_batch(tensor_at(a, 0), tensor_at(a, 1), a.subspan(2, 2)) ? ctc_loss
                                                                                  : nullptr;
}

Recipe make_ctc_loss_backward(const Call& call) {
  const Arguments a = call.arguments();
  const bool are_placed =
      payload_in(tensor_at(a, 0)) && payload_in(tensor_at(a, 5)) && payload_in(tensor_at(a, 6));
  const bool fits = are_placed && fits_lengths(tensor_at(a, 2), a[4]);
  return fits && has_cut_batch(tensor_at(a, 1), tensor_at(a, 2), a.subspan(3, 2))
             ? ctc_loss_backward
             : nullptr;
}

}  // namespace

const RecipeTable& loss_recipes() {
  static const RecipeTable table = {
      {"nll_loss_forward", make_nll_loss},
      {"nll_loss_backward", make_nll_loss_backward},
      {"nll_loss2d_forward", make_nll_loss2d},
      {"nll_loss2d_backward", make_nll_loss2d_backward},
      {"multi_margin_loss", make_multi_margin_loss},
      {"multilabel_margin_loss_forward", make_multilabel_margin_loss},
      {"_ctc_loss", make_ctc_loss},
      {"_ctc_loss_backward", make_ctc_loss_backward},
  };
  return table;
}

}  // namespace tegula::inner::families
