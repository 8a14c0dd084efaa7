// The softmax family along a cut dim: the greatest element and the sum travel.
#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "tegula/families/operand_tiles.h"
#include "tegula/families/recipes.h"
#include "tegula/families/totals.h"
#include "tegula/operators/call.h"

namespace tegula::inner::families {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

enum class SoftmaxKind { Softmax, LogSoftmax };

// Tiles are worked on block by block, so that what one op writes is still near when the next one
// reads it: memory is read and written once per pass over the tile, not once per op.
constexpr std::int64_t kBlockBytes = 256 * 1024;

// Calls `work` on intervals that cover a dim of the tile, other than `dim` if there is one.
void in_blocks(const at::Tensor& tile, std::int64_t dim,
               const std::function<void(std::int64_t along, const Interval& block)>& work) {
  const std::int64_t along = dim == 0 && tile.dim() > 1 ? 1 : 0;
  const std::int64_t size = tile.size(along);
  if (along == dim) return work(along, {0, size});
  const std::int64_t bytes = std::max<std::int64_t>(1, tile.numel() * tile.element_size());
  const std::int64_t step = std::max<std::int64_t>(1, size * kBlockBytes / bytes);
  for (std::int64_t begin = 0; begin < size; begin += step) {
    work(along, {begin, std::min(step, size - begin)});
  }
}

at::Tensor part_of(const at::Tensor& tensor, std::int64_t along, const Interval& block) {
  return tensor.narrow(along, block.begin, block.size);
}

// What exponentials of a tile are made of and add up to, with a dim of one element.
struct OfTile {
  at::Tensor greatest;
  at::Tensor sum;  // of exp(x - base), where base is the greatest, or the finite number next to it
};

OfTile of_nothing(const at::Tensor& tile, std::int64_t dim) {
  std::vector<std::int64_t> shape = tile.sizes().vec();
  shape[static_cast<std::size_t>(dim)] = 1;
  return {at::full(shape, kMinusInfinity, tile.options()), at::zeros(shape, tile.options())};
}

OfTile of_block(const at::Tensor& block, std::int64_t dim, at::Tensor exponentials) {
  const at::Tensor greatest = at::amax(block, {dim}, true);
  const double most = block.scalar_type() == at::kDouble ? std::numeric_limits<double>::max()
                                                         : std::numeric_limits<float>::max();
  const at::Tensor base = at::clamp(greatest, -most, most);
  at::sub_out(exponentials, block, base).exp_();
  return {greatest, exponentials.sum({dim}, true)};
}

// The exponentials are left in `exponentials`, if it is defined.
OfTile of_tile(const at::Tensor& tile, std::int64_t dim, const at::Tensor& exponentials) {
  OfTile all = of_nothing(tile, dim);
  if (tile.size(dim) == 0) return all;
  in_blocks(tile, dim, [&](std::int64_t along, const Interval& interval) {
    const at::Tensor block = part_of(tile, along, interval);
    const OfTile one = of_block(block, dim,
                                exponentials.defined() ? part_of(exponentials, along, interval)
                                                       : at::empty(block.sizes(), block.options()));
    if (along == dim) {
      all = one;
    } else {
      part_of(all.greatest, along, interval).copy_(one.greatest);
      part_of(all.sum, along, interval).copy_(one.sum);
    }
  });
  return all;
}

// Each rank adds up the exponentials of its tile; the greatest elements and the sums travel.
at::Tensor softmax_of_tile(const Payload& self, std::int64_t dim, const Dims& dims,
                           SoftmaxKind form) {
  const auto paid_tile = [&](const at::Tensor& part, ReduceOp op) {
    return payload_of(with_sum_paid(owed_part(part, self, dims, op)))->tile();
  };
  const at::Tensor tile = self.resolved_tile();
  at::Tensor result = at::empty(tile.sizes(), tile.options());
  const bool is_log = form == SoftmaxKind::LogSoftmax;
  const OfTile mine = of_tile(tile, dim, is_log ? at::Tensor() : result);
  const at::Tensor greatest = paid_tile(mine.greatest, ReduceOp::Max);
  const at::Tensor share = at::exp(mine.greatest - greatest);
  const at::Tensor sum = paid_tile(mine.sum * share, ReduceOp::Sum);
  if (!is_log) return result.mul_(share.div_(sum));
  const at::Tensor log_sum = at::log(sum);
  in_blocks(tile, dim, [&](std::int64_t along, const Interval& block) {
    const auto of = [&](const at::Tensor& rows) {
      return along == dim ? rows : part_of(rows, along, block);
    };
    at::Tensor part = part_of(result, along, block);
    at::sub_out(part, part_of(tile, along, block), of(greatest)).sub_(of(log_sum));
  });
  return result;
}

template <SoftmaxKind form>
Values softmax(Arguments a) {
  const at::Tensor self = with_sum_paid(to_add_up(tensor_at(a, 0)));
  const PayloadPtr payload = payload_of(self);
  const std::int64_t dim = a[1].toInt() < 0 ? a[1].toInt() + self.dim() : a[1].toInt();
  const TensorMeta& meta = payload->spec().meta();
  const DTensorSpec spec = payload->spec().with_meta(TensorMeta(meta.shape(), meta.dtype()));
  const at::Tensor tile = payload->coordinate()
                              ? softmax_of_tile(*payload, dim, one_dim(self, dim), form)
                              : at::Tensor();
  return {in_type(result_of_tile(tile, spec, payload->world()), tensor_at(a, 0).scalar_type())};
}

// (self, dim, dtype): zeros where nothing but minus infinity is.
Values safe_softmax(Arguments a) {
  const at::Tensor& self = tensor_at(a, 0);
  const std::int64_t dim = a[1].toInt();
  const at::Tensor is_out = self.eq(kMinusInfinity).all(dim, true);
  return {at::softmax(self, dim, a[2].toOptional<at::ScalarType>()).masked_fill(is_out, 0)};
}

Recipe make_safe_softmax(const Call& call) {
  const at::Tensor& self = tensor_at(call.arguments(), 0);
  const std::int64_t dim = call.arguments()[1].toInt();
  const bool can_be_out = at::isFloatingType(self.scalar_type()) && self.dim() > 0;
  return can_be_out && is_cut(self, dim) && self.size(dim) > 0 ? safe_softmax : nullptr;
}

// An empty dim has no greatest element. Where halves are to be computed as floats, the rule holds.
template <Values (*run)(Arguments)>
Recipe make_along_cut_dim(const Call& call) {
  const Arguments a = call.arguments();
  const at::Tensor& self = tensor_at(a, 0);
  const std::int64_t dim = a[1].toInt();
  return is_cut(self, dim) && self.size(dim) > 0 && !a[2].toBool() ? run : nullptr;
}

// grad - exp(output) * sum.
at::Tensor less_share(const at::Tensor& grad, const at::Tensor& output, const at::Tensor& sum,
                      std::int64_t dim) {
  at::Tensor result = at::empty(output.sizes(), output.options());
  in_blocks(output, dim, [&](std::int64_t along, const Interval& block) {
    at::Tensor part = part_of(result, along, block);
    at::exp_out(part, part_of(output, along, block));
    part.mul_(along == dim ? sum : part_of(sum, along, block)).neg_();
    part.add_(part_of(grad, along, block));
  });
  return result;
}

Values softmax_backward(Arguments a) {
  const at::Tensor& grad = tensor_at(a, 0);
  const at::Tensor share = to_add_up(tensor_at(a, 1));
  const at::Tensor weighed = to_add_up(grad) * share;
  const at::Tensor sum = with_sum_paid(at::sum(weighed, {a[2].toInt()}, true));
  return {in_type(at::addcmul(weighed, share, sum, -1), grad.scalar_type())};
}

Values log_softmax_backward(Arguments a) {
  const at::Tensor grad = to_add_up(tensor_at(a, 0));
  const at::Tensor output = to_add_up(tensor_at(a, 1));
  const at::ScalarType type = tensor_at(a, 0).scalar_type();
  const std::int64_t dim = a[2].toInt() < 0 ? a[2].toInt() + grad.dim() : a[2].toInt();
  const at::Tensor sum = with_sum_paid(at::sum(grad, {dim}, true));
  const PayloadPtr of_grad = payload_of(grad), of_output = payload_of(output);
  const bool is_alike = of_grad && of_output && has_tile(grad) && has_tile(output) &&
                        of_grad->spec() == of_output->spec() && !of_grad->spec().is_partial();
  if (!is_alike) return {in_type(at::addcmul(grad, at::exp(output), sum, -1), type)};
  const at::Tensor tile = less_share(of_grad->resolved_tile(), of_output->resolved_tile(),
                                     payload_of(sum)->resolved_tile(), dim);
  const TensorMeta& meta = of_grad->spec().meta();
  const DTensorSpec spec = of_grad->spec().with_meta(TensorMeta(meta.shape(), meta.dtype()));
  return {in_type(result_of_tile(tile, spec, of_grad->world()), type)};
}

template <Values (*run)(Arguments)>
Recipe make_backward_along_cut_dim(const Call& call) {
  const Arguments a = call.arguments();
  const at::Tensor& grad = tensor_at(a, 0);
  const at::Tensor& output = tensor_at(a, 1);
  const bool fits = grad.scalar_type() == output.scalar_type() && grad.sizes() == output.sizes();
  const std::int64_t dim = a[2].toInt();
  return fits && (is_cut(output, dim) || is_cut(grad, dim)) ? run : nullptr;
}

}  // namespace

const RecipeTable& softmax_recipes() {
  static const RecipeTable table = {
      {"_softmax", make_along_cut_dim<softmax<SoftmaxKind::Softmax>>},
      {"_log_softmax", make_along_cut_dim<softmax<SoftmaxKind::LogSoftmax>>},
      {"_safe_softmax", make_safe_softmax},
      {"_softmax_backward_data", make_backward_along_cut_dim<softmax_backward>},
      {"_log_softmax_backward_data", make_backward_along_cut_dim<log_softmax_backward>},
  };
  return table;
}

}  // namespace tegula::inner::families
