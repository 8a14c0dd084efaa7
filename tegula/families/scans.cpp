// Running totals along a cut dim: each rank scans its tile; the totals of all tiles travel, and
// each rank adds those of the tiles before it. The greatest few likewise: each rank sends its own.
//
// libtorch's gradient of a running sum flips, sums and flips back, and a flip along a cut dim sends
// all elements. Here the gradient is the running sum from the end: totals travel, of the tiles
// behind.
#include <ATen/ATen.h>
#include <ATen/FuncTorchTLS.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "tegula/bridge/torch_types.h"
#include "tegula/comm/comm_log.h"
#include "tegula/families/recipes.h"
#include "tegula/families/running_sum.h"
#include "tegula/families/totals.h"
#include "tegula/operators/call.h"
#include "tegula/payload/guards.h"
#include "tegula/payload/local_call.h"

namespace tegula::inner::families {
namespace {

std::int64_t wrapped(const at::Tensor& self, std::int64_t dim) {
  return dim < 0 ? dim + self.dim() : dim;
}

// A new tensor that is placed as self, of any element type.
at::Tensor placed_as(const Payload& self, const at::Tensor& tile) {
  const DTensorSpec spec =
      self.spec().with_meta(TensorMeta(self.spec().shape(), dtype_of(tile.scalar_type())));
  return outer_tensor(tile.contiguous(), spec, self.world());
}

enum class Begins : std::uint8_t { AtTheStart, AtTheEnd };

// How to scan a tile, and what came before it.
struct Scan {
  at::Tensor (*of_tile)(const at::Tensor& tile, std::int64_t dim);
  at::Tensor (*of_totals)(const at::Tensor& totals, std::int64_t dim);  // one element along dim
  at::Tensor (*joined)(const at::Tensor& before, const at::Tensor& tile);
  double nothing = 0;
  Begins begins = Begins::AtTheStart;
};

const Scan kSum = {
    [](const at::Tensor& tile, std::int64_t dim) { return at::cumsum(tile, dim); },
    [](const at::Tensor& totals, std::int64_t dim) { return at::sum(totals, dim, true); },
    [](const at::Tensor& before, const at::Tensor& tile) { return before + tile; }, 0};

const Scan kSumFromEnd = {[](const at::Tensor& tile, std::int64_t dim) {
                            return at::flip(at::cumsum(at::flip(tile, dim), dim), dim);
                          },
                          kSum.of_totals, kSum.joined, 0, Begins::AtTheEnd};

const Scan kProduct = {
    [](const at::Tensor& tile, std::int64_t dim) { return at::cumprod(tile, dim); },
    [](const at::Tensor& totals, std::int64_t dim) { return at::prod(totals, dim, true); },
    [](const at::Tensor& before, const at::Tensor& tile) { return before * tile; }, 1};

const Scan kLogSumExp = {
    [](const at::Tensor& tile, std::int64_t dim) { return at::logcumsumexp(tile, dim); },
    [](const at::Tensor& totals, std::int64_t dim) { return at::logsumexp(totals, dim, true); },
    [](const at::Tensor& before, const at::Tensor& tile) { return at::logaddexp(before, tile); },
    -std::numeric_limits<double>::infinity()};

// What the scan of a tile ends with.
at::Tensor total_of(const at::Tensor& scanned, std::int64_t dim, const Scan& scan) {
  const std::int64_t size = scanned.size(dim);
  if (size > 0) return scanned.narrow(dim, scan.begins == Begins::AtTheStart ? size - 1 : 0, 1);
  std::vector<std::int64_t> shape = scanned.sizes().vec();
  shape[static_cast<std::size_t>(dim)] = 1;
  return at::full(shape, scan.nothing, scanned.options());
}

// Of the totals of all tiles, those that come before the tile of shard `here`.
at::Tensor totals_before(const at::Tensor& totals, std::int64_t dim, std::int64_t here,
                         Begins begins) {
  return begins == Begins::AtTheStart ? totals.narrow(dim, 0, here)
                                      : totals.narrow(dim, here + 1, totals.size(dim) - here - 1);
}

at::Tensor scanned(const at::Tensor& tensor, std::int64_t dim, at::ScalarType type,
                   const Scan& scan) {
  const at::Tensor self = with_sum_paid(tensor);
  const PayloadPtr payload = payload_of(self);
  const at::Tensor tile = scan.of_tile(payload->resolved_tile().to(sum_type(type)), dim);
  const at::Tensor totals = parts_of_all(total_of(tile, dim, scan), *payload, dim);
  const at::Tensor before = totals_before(totals, dim, shard_here(*payload, dim), scan.begins);
  const at::Tensor joined =
      before.size(dim) == 0 ? tile : scan.joined(scan.of_totals(before, dim), tile);
  return placed_as(*payload, joined.to(type));
}

// (self, dim, dtype)
template <const Scan& scan>
Values scan_with_type(Arguments a) {
  const at::Tensor& self = tensor_at(a, 0);
  const bool is_whole = at::isIntegralType(self.scalar_type(), /*includeBool=*/true);
  const at::ScalarType own = is_whole ? at::kLong : self.scalar_type();
  const at::ScalarType type = a[2].isNone() ? own : a[2].toScalarType();
  return {scanned(self, wrapped(self, a[1].toInt()), type, scan)};
}

Values log_sum_exp_scan(Arguments a) {
  const at::Tensor& self = tensor_at(a, 0);
  return {scanned(self, wrapped(self, a[1].toInt()), self.scalar_type(), kLogSumExp)};
}

// Where shards are single runs, and totals are less than what a gather would bring.
bool can_scan(const at::Tensor& self, std::int64_t dim) {
  if (!has_tile(self) || !is_cut(self, dim)) return false;
  const auto along = static_cast<std::size_t>(wrapped(self, dim));
  const DimCut& cut = payload_of(self)->spec().dim_cuts()[along];
  return cut.most_intervals() == 1 && cut.size() >= 2 * cut.shard_count();
}

template <Values (*run)(Arguments)>
Recipe make_scan(const Call& call) {
  return can_scan(tensor_at(call.arguments(), 0), call.arguments()[1].toInt()) ? run : nullptr;
}

template <Values (*run)(Arguments)>
Recipe make_floating_scan(const Call& call) {
  const at::Tensor& self = tensor_at(call.arguments(), 0);
  return at::isFloatingType(self.scalar_type()) ? make_scan<run>(call) : nullptr;
}

// The gradient of a running sum -------------------------------------------------------------------

at::Tensor sum_from_end(const at::Tensor& self, std::int64_t dim) {
  const BelowAutograd below;
  if (!can_scan(self, dim)) return at::flip(at::cumsum(at::flip(self, dim), dim), dim);
  const OnPurpose exchange;
  const CommLabel label("cumsum_backward");
  return scanned(self, wrapped(self, dim), self.scalar_type(), kSumFromEnd);
}

// The gradient of a sum from one side is the sum from the other.
struct RunningSum : torch::autograd::Function<RunningSum> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& self,
                            std::int64_t dim, std::optional<at::ScalarType> type, Begins begins) {
    context->saved_data["dim"] = dim;
    context->saved_data["type"] = self.scalar_type();
    context->saved_data["begins"] = static_cast<std::int64_t>(begins);
    return begins == Begins::AtTheStart ? at::cumsum(self, dim, type) : sum_from_end(self, dim);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto& saved = context->saved_data;
    const auto begins = static_cast<Begins>(saved.at("begins").toInt());
    const at::Tensor gradient = gradients[0].to(saved.at("type").toScalarType());
    const at::Tensor result =
        apply(gradient, saved.at("dim").toInt(), std::nullopt,
              begins == Begins::AtTheStart ? Begins::AtTheEnd : Begins::AtTheStart);
    return {result, {}, {}, {}};
  }
};

bool gives_floats(std::optional<at::ScalarType> type) {
  return !type || at::isFloatingType(*type) || at::isComplexType(*type);
}

// torch.func and forward-mode derivatives follow libtorch's formulas alone.
bool is_transformed(const at::Tensor& self) {
  return at::functorch::functorchTLSAccessor() != nullptr || self._fw_grad(/*level=*/0).defined();
}

// The greatest so far -----------------------------------------------------------------------------

// As libtorch has it: of equal ones the last, and NaN from where one is met.
at::Tensor is_better(const at::Tensor& later, const at::Tensor& before, bool greatest) {
  const at::Tensor wins = greatest ? at::ge(later, before) : at::le(later, before);
  return at::logical_or(at::ne(later, later), wins);
}

template <bool greatest>
Values extreme_scan(Arguments a) {
  const at::Tensor self = with_sum_paid(tensor_at(a, 0));
  const PayloadPtr payload = payload_of(self);
  const std::int64_t dim = wrapped(self, a[1].toInt());
  const at::Tensor tile = payload->resolved_tile();
  auto [values, places] = greatest ? at::cummax(tile, dim) : at::cummin(tile, dim);
  if (places.numel() > 0) places = at::take(positions_along(*payload, dim), places);
  const std::vector<std::int64_t> sizes = shard_sizes(*payload, dim);
  std::vector<std::int64_t> given;
  for (const std::int64_t size : sizes) given.push_back(std::min<std::int64_t>(size, 1));
  const auto last = [&](const at::Tensor& scan) {
    const std::int64_t size = scan.size(dim);
    return scan.narrow(dim, std::max<std::int64_t>(size - 1, 0), std::min<std::int64_t>(size, 1));
  };
  const at::Tensor all_values = parts_of_all(last(values), *payload, dim, given);
  const at::Tensor all_places = parts_of_all(last(places), *payload, dim, given);
  const auto here = static_cast<std::ptrdiff_t>(shard_here(*payload, dim));
  const std::int64_t before = std::accumulate(given.begin(), given.begin() + here, std::int64_t{0});
  if (before > 0 && values.numel() > 0) {
    const at::Tensor of_values = all_values.narrow(dim, 0, before);
    auto [scan, at] = greatest ? at::cummax(of_values, dim) : at::cummin(of_values, dim);
    const at::Tensor place = at::gather(all_places.narrow(dim, 0, before), dim, last(at));
    const at::Tensor better = is_better(values, last(scan), greatest);
    values = at::where(better, values, last(scan));
    places = at::where(better, places, place);
  }
  return {placed_as(*payload, values), placed_as(*payload, places)};
}

template <bool greatest>
Recipe make_extreme_scan(const Call& call) {
  const at::Tensor& self = tensor_at(call.arguments(), 0);
  return self.is_complex() ? nullptr : make_scan<extreme_scan<greatest>>(call);
}

// The greatest few --------------------------------------------------------------------------------

std::vector<std::int64_t> candidates(const Payload& self, std::int64_t dim, std::int64_t count) {
  std::vector<std::int64_t> sizes = shard_sizes(self, dim);
  for (std::int64_t& size : sizes) size = std::min(size, count);
  return sizes;
}

// (self, k, dim, largest, sorted)
Values topk(Arguments a) {
  const at::Tensor self = with_sum_paid(tensor_at(a, 0));
  const PayloadPtr payload = payload_of(self);
  const std::int64_t count = a[1].toInt();
  const std::int64_t dim = wrapped(self, a[2].toInt());
  const bool largest = a[3].toBool();
  const at::Tensor tile = payload->resolved_tile();
  auto [values, places] = at::topk(tile, std::min(count, tile.size(dim)), dim, largest);
  if (places.numel() > 0) places = at::take(positions_along(*payload, dim), places);
  const std::vector<std::int64_t> sizes = candidates(*payload, dim, count);
  const at::Tensor all_values = parts_of_all(values, *payload, dim, sizes);
  const at::Tensor all_places = parts_of_all(places, *payload, dim, sizes);
  auto [best, at] = at::topk(all_values, count, dim, largest, a[4].toBool());
  const at::Tensor best_places = at::gather(all_places, dim, at);
  return {joined_along(*payload, dim, best), joined_along(*payload, dim, best_places)};
}

Recipe make_topk(const Call& call) {
  const Arguments a = call.arguments();
  const at::Tensor& self = tensor_at(a, 0);
  const std::int64_t dim = a[2].toInt();
  const std::int64_t count = a[1].toInt();
  if (!has_tile(self) || !is_cut(self, dim) || count < 1 || count > self.size(dim)) return nullptr;
  const std::vector<std::int64_t> sizes = candidates(*payload_of(self), wrapped(self, dim), count);
  const std::int64_t all = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  return 2 * all <= self.size(dim) ? topk : nullptr;
}

}  // namespace

const RecipeTable& scan_recipes() {
  static const RecipeTable table = {
      {"cumsum", make_scan<scan_with_type<kSum>>},
      {"cumprod", make_scan<scan_with_type<kProduct>>},
      {"logcumsumexp", make_floating_scan<log_sum_exp_scan>},
      {"cummax", make_extreme_scan<true>},
      {"cummin", make_extreme_scan<false>},
      {"topk", make_topk},
  };
  return table;
}

at::Tensor running_sum(c10::DispatchKeySet keys, const at::Tensor& self, std::int64_t dim,
                       std::optional<at::ScalarType> type) {
  const bool has_own_gradient = at::GradMode::is_enabled() && self.requires_grad() &&
                                can_scan(self, dim) && gives_floats(type) && !is_transformed(self);
  if (has_own_gradient) return RunningSum::apply(self, dim, type, Begins::AtTheStart);
  // libtorch's own, which is registered for other devices, too
  keys = keys.remove(c10::DispatchKey::AutogradFunctionality).add(c10::DispatchKey::AutogradOther);
  return at::_ops::cumsum::redispatch(keys, self, dim, type);
}

}  // namespace tegula::inner::families
