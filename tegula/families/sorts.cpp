// Sorting one vector that is cut, and the k-th of its elements: there is no other dim to move the
// cut to. Each rank sorts what it has and tells the others a few of its elements, in order.
//
// A sort: from these come bounds between the ranks; every element goes to the rank within whose
// bounds it is, once, and the result is cut where the bounds lie. The k-th element: it lies between
// two of those that were told, and few are; those travel, and nothing else.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "tegula/bridge/torch_types.h"
#include "tegula/families/recipes.h"
#include "tegula/families/recut.h"
#include "tegula/families/totals.h"
#include "tegula/operators/call.h"
#include "tegula/payload/guards.h"
#include "tegula/redistribute/dim_exchange.h"

namespace tegula::inner::families {
namespace {

using Sizes = std::vector<std::int64_t>;

bool can_be_ordered(const at::Tensor& x) {
  return !at::isComplexType(x.scalar_type()) && x.numel() > 0 && !StrictMode::is_on();
}

at::Tensor is_number(const at::Tensor& x) { return at::logical_not(at::isnan(x)); }

// `count` of the elements of a sorted vector, at equal distances.
at::Tensor some_of(const at::Tensor& sorted, std::int64_t count) {
  count = std::min(count, sorted.size(0));
  if (count == 0) return sorted;
  const at::Tensor places = at::arange(count, at::kLong).mul_(sorted.size(0)).div_(count, "floor");
  return sorted.index_select(0, places);
}

// A number per shard, on all ranks; `mine` are this rank's.
Sizes numbers_of_all(const Sizes& mine, const Payload& vector) {
  const auto shards = static_cast<std::size_t>(vector.spec().dim_cuts()[0].shard_count());
  const auto count = static_cast<std::int64_t>(mine.size());
  const at::Tensor all = parts_of_all(at::tensor(mine, at::kLong), vector, 0, Sizes(shards, count));
  return {all.data_ptr<std::int64_t>(), all.data_ptr<std::int64_t>() + all.numel()};
}

// Parts of any lengths, side by side.
at::Tensor joined_parts(const at::Tensor& part, const Payload& vector) {
  return parts_of_all(part, vector, 0, numbers_of_all({part.size(0)}, vector));
}

// A sort ------------------------------------------------------------------------------------------

constexpr std::int64_t kToldPerShard = 4;

// The last element of each shard of the result but the last one's. Fewer if there are no numbers.
at::Tensor bounds_of(const at::Tensor& sorted, const Payload& vector, bool descending) {
  const std::int64_t shards = vector.spec().dim_cuts()[0].shard_count();
  const at::Tensor numbers = sorted.masked_select(is_number(sorted));
  const at::Tensor told = joined_parts(some_of(numbers, kToldPerShard * shards), vector);
  return some_of(std::get<0>(told.sort(0, descending)), shards).slice(0, 1);
}

// How many elements of a sorted vector go to the shards before each one, its size at the end.
Sizes begins_of(const at::Tensor& sorted, const at::Tensor& bounds, std::int64_t shards,
                bool descending) {
  Sizes begins{0};
  for (std::int64_t k = 0; k < bounds.size(0); ++k) {
    const at::Tensor is_before =
        descending ? at::logical_or(sorted.gt(bounds[k]), at::isnan(sorted)) : sorted.lt(bounds[k]);
    begins.push_back(is_before.sum().item<std::int64_t>());
  }
  while (static_cast<std::int64_t>(begins.size()) <= shards) begins.push_back(sorted.size(0));
  return begins;
}

// What the rank of a shard wants of the shards, all sorted by themselves.
std::vector<Interval> wanted_by(std::int64_t shard, const Sizes& begins,
                                const Sizes& shard_begins) {
  const auto shards = static_cast<std::int64_t>(shard_begins.size());
  std::vector<Interval> wanted;
  for (std::int64_t from = 0; from < shards; ++from) {
    const auto at = static_cast<std::size_t>(from * (shards + 1) + shard);
    wanted.push_back(
        {shard_begins[static_cast<std::size_t>(from)] + begins[at], begins[at + 1] - begins[at]});
  }
  return wanted;
}

// Equal elements stay in their order: shards are sorted stably, and come in the order of shards.
Values sorted_vector(const at::Tensor& self, bool descending) {
  const at::Tensor paid = with_sum_paid(self);
  const Payload& vector = *payload_in(paid);
  const std::int64_t shards = vector.spec().dim_cuts()[0].shard_count();
  const auto [values, order] = vector.resolved_tile().sort(/*stable=*/true, 0, descending);
  const at::Tensor places = positions_along(vector, 0).index_select(0, order);
  const Sizes begins = numbers_of_all(
      begins_of(values, bounds_of(values, vector, descending), shards, descending), vector);
  const DimCut& cut = vector.spec().dim_cuts()[0];
  Sizes shard_begins{0};
  for (const std::int64_t size : shard_sizes(vector, 0)) {
    shard_begins.push_back(shard_begins.back() + size);
  }
  shard_begins.pop_back();
  const DimExchange exchange(vector.world(), vector.spec(), 0, [&](const Coordinate& at) {
    return wanted_by(shard_at(cut, at), begins, shard_begins);
  });
  const auto [mine, again] = exchange.fetch(values, 0).sort(/*stable=*/true, 0, descending);
  const at::Tensor places_of_mine = exchange.fetch(places, 0).index_select(0, again);
  Sizes sizes(static_cast<std::size_t>(shards), 0);
  for (std::int64_t shard = 0; shard < shards; ++shard) {
    for (const Interval& run : wanted_by(shard, begins, shard_begins)) {
      sizes[static_cast<std::size_t>(shard)] += run.size;
    }
  }
  Placements placements = vector.spec().placements();
  placements[cut.axes()[0].axis] = Shard(0, Cut::ragged(sizes));
  const auto wrapped = [&](const at::Tensor& tile) {
    const TensorMeta meta({self.size(0)}, dtype_of(tile.scalar_type()));
    return outer_tensor(tile, DTensorSpec(vector.spec().mesh(), placements, meta), vector.world());
  };
  return {wrapped(mine), wrapped(places_of_mine)};
}

template <std::size_t descending>
Recipe make_sort(const Call& call) {
  const at::Tensor& self = tensor_at(call.arguments(), 0);
  if (self.dim() != 1 || !can_be_ordered(self) || !only_axis_along(self, 0)) return nullptr;
  return [](Arguments a) { return sorted_vector(tensor_at(a, 0), a[descending].toBool()); };
}

// The k-th element ------------------------------------------------------------------------------

struct Found {
  at::Tensor value;        // without dims, plain
  std::int64_t place = 0;  // the first one in the vector
};

std::int64_t total(const Sizes& numbers) {
  std::int64_t sum = 0;
  for (const std::int64_t number : numbers) sum += number;
  return sum;
}

at::Tensor searchable(const at::Tensor& x) {
  return x.scalar_type() == at::kBool ? x.to(at::kByte) : x;
}

// Of sorted numbers of all ranks the one before which there are k. Two of those that are told are
// below and above it, and per shard no more are in between than lie from one that is told to the
// next, but for equal ones, which are only counted.
at::Tensor kth_number(const at::Tensor& numbers, std::int64_t k, const Payload& vector) {
  const std::int64_t size = numbers.size(0);
  const auto step = static_cast<std::int64_t>(std::sqrt(static_cast<double>(size))) + 1;
  const at::Tensor places =
      size == 0
          ? at::empty({0}, at::kLong)
          : at::cat({at::arange(0, size, step, at::kLong), at::full({1}, size - 1, at::kLong)});
  const at::Tensor told = joined_parts(numbers.index_select(0, places), vector);
  const at::Tensor places_told = joined_parts(places, vector);
  const Sizes counts = numbers_of_all({places.size(0)}, vector);
  const at::Tensor candidates = std::get<0>(told.sort());
  // per candidate: so many elements are surely no greater, at most so many less
  at::Tensor surely_up_to = at::zeros({candidates.size(0)}, at::kLong);
  at::Tensor at_most_below = at::zeros({candidates.size(0)}, at::kLong);
  std::int64_t first = 0;
  for (const std::int64_t count : counts) {
    if (count == 0) continue;
    const at::Tensor of_shard = searchable(told.narrow(0, first, count));
    const at::Tensor at_places = places_told.narrow(0, first, count);
    first += count;
    const at::Tensor up_to = at::searchsorted(of_shard, searchable(candidates), false, true);
    const at::Tensor below = at::searchsorted(of_shard, searchable(candidates));
    surely_up_to += at::cat({at::zeros({1}, at::kLong), at_places + 1}).index_select(0, up_to);
    at_most_below += at::cat({at_places, at_places.slice(0, -1) + 1}).index_select(0, below);
  }
  const auto count_where = [&](const at::Tensor& mask) { return mask.sum().item<std::int64_t>(); };
  const std::int64_t last_below = std::max<std::int64_t>(count_where(at_most_below.le(k)) - 1, 0);
  const at::Tensor least = candidates[last_below];
  const at::Tensor greatest = candidates[count_where(surely_up_to.le(k))];
  const at::Tensor is_between = at::logical_and(numbers.gt(least), numbers.lt(greatest));
  const Sizes counted = numbers_of_all(
      {count_where(numbers.lt(least)), count_where(numbers.eq(least)), count_where(is_between)},
      vector);
  std::int64_t below = 0, equal = 0;
  Sizes between;
  for (std::size_t shard = 0; shard < counted.size(); shard += 3) {
    below += counted[shard];
    equal += counted[shard + 1];
    between.push_back(counted[shard + 2]);
  }
  const std::int64_t rest = k - below - equal;
  if (rest < 0) return least;
  const at::Tensor all = parts_of_all(numbers.masked_select(is_between), vector, 0, between);
  return rest < all.size(0) ? std::get<0>(all.sort())[rest] : greatest;
}

// In a vector in which nothing is greater than what is no number.
class CutVector {
 public:
  explicit CutVector(const at::Tensor& vector)
      : payload_(payload_of(vector)), tile_(payload_->resolved_tile()) {
    numbers_ = std::get<0>(tile_.masked_select(is_number(tile_)).sort());
    numbers_of_all_ = total(numbers_of_all({numbers_.size(0)}, *payload_));
  }

  std::int64_t numbers() const { return numbers_of_all_; }

  // `numbers()` or more: the first that is no number.
  Found kth(std::int64_t k) const {
    Found found;
    const bool is_a_number = k < numbers_of_all_;
    found.value = is_a_number ? kth_number(numbers_, k, *payload_)
                              : at::full({}, std::nan(""), tile_.options());
    const at::Tensor is_it = is_a_number ? tile_.eq(found.value) : at::isnan(tile_);
    const at::Tensor places = positions_along(*payload_, 0).masked_select(is_it);
    const std::int64_t none = payload_->spec().shape()[0];
    const Sizes firsts =
        numbers_of_all({places.size(0) > 0 ? places[0].item<std::int64_t>() : none}, *payload_);
    found.place = *std::min_element(firsts.begin(), firsts.end());
    return found;
  }

  at::Tensor wrapped(const at::Tensor& value) const {
    return replicated(value, payload_->spec().mesh(), payload_->world());
  }
  Values wrapped(const Found& found, bool keeps_dim) const {
    const at::Tensor place = at::full({}, found.place, at::kLong);
    if (!keeps_dim) return {wrapped(found.value), wrapped(place)};
    return {wrapped(found.value.reshape({1})), wrapped(place.reshape({1}))};
  }

 private:
  PayloadPtr payload_;
  at::Tensor tile_, numbers_;
  std::int64_t numbers_of_all_;
};

// (self, k, dim, keepdim)
Recipe make_kth(const Call& call) {
  const Arguments a = call.arguments();
  const at::Tensor& self = tensor_at(a, 0);
  if (self.dim() != 1 || !can_be_ordered(self) || !only_axis_along(self, 0)) return nullptr;
  if (a[1].toInt() < 1 || a[1].toInt() > self.size(0)) return nullptr;
  return [](Arguments given) {
    const CutVector vector(with_sum_paid(tensor_at(given, 0)));
    return vector.wrapped(vector.kth(given[1].toInt() - 1), given[3].toBool());
  };
}

enum class NoNumbers { Count, AreLeftOut };

// The lower one of two that are in the middle.
template <NoNumbers no_numbers>
std::int64_t place_of_median(const CutVector& vector, std::int64_t size) {
  const std::int64_t numbers = vector.numbers();
  if (no_numbers == NoNumbers::AreLeftOut) return numbers > 0 ? (numbers - 1) / 2 : 0;
  return numbers < size ? numbers : (size - 1) / 2;
}

// (self, dim, keepdim)
template <NoNumbers no_numbers>
Recipe make_median_along(const Call& call) {
  const at::Tensor& self = tensor_at(call.arguments(), 0);
  if (self.dim() != 1 || !can_be_ordered(self) || !only_axis_along(self, 0)) return nullptr;
  return [](Arguments a) {
    const CutVector vector(with_sum_paid(tensor_at(a, 0)));
    const std::int64_t place = place_of_median<no_numbers>(vector, tensor_at(a, 0).size(0));
    return vector.wrapped(vector.kth(place), a[2].toBool());
  };
}

// The elements of all tiles as a vector, in some order; one dim is cut, by one axis.
at::Tensor in_some_order(const at::Tensor& x, std::int64_t dim) {
  const Payload& payload = *payload_in(x);
  Sizes sizes = shard_sizes(payload, dim);
  for (std::int64_t& size : sizes) size *= x.numel() / x.size(dim);
  Placements placements = payload.spec().placements();
  placements[*only_axis_along(x, dim)] = Shard(0, Cut::ragged(sizes));
  const TensorMeta meta({x.numel()}, dtype_of(x.scalar_type()));
  return outer_tensor(payload.resolved_tile().reshape({-1}),
                      DTensorSpec(payload.spec().mesh(), placements, meta), payload.world());
}

// (self)
template <NoNumbers no_numbers>
Recipe make_median(const Call& call) {
  const at::Tensor& self = tensor_at(call.arguments(), 0);
  const std::optional<std::int64_t> cut_dim = only_cut_dim(self);
  if (!cut_dim || !can_be_ordered(self)) return nullptr;
  return [dim = *cut_dim](Arguments a) -> Values {
    const CutVector vector(in_some_order(with_sum_paid(tensor_at(a, 0)), dim));
    const std::int64_t place = place_of_median<no_numbers>(vector, tensor_at(a, 0).numel());
    return {vector.wrapped(vector.kth(place).value)};
  };
}

}  // namespace

const RecipeTable& sort_recipes() {
  static const RecipeTable table = {
      {"sort", make_sort<2>},
      {"sort.stable", make_sort<3>},
      {"kthvalue", make_kth},
      {"median", make_median<NoNumbers::Count>},
      {"median.dim", make_median_along<NoNumbers::Count>},
      {"nanmedian", make_median<NoNumbers::AreLeftOut>},
      {"nanmedian.dim", make_median_along<NoNumbers::AreLeftOut>},
  };
  return table;
}

}  // namespace tegula::inner::families
