// The idea: specs and their strings of cutters are looked at once per pair of ends; from then on a
// state is a number, and its tile follows from a few divisions. A cut that is not even means
// something only behind the axes that it was made for, so its lengths are two numbers per axis.
#include "tegula/plan/dist_state.h"

#include <algorithm>

#include "tegula/base/error.h"
#include "tegula/plan/longest_shard.h"

namespace tegula::inner {
namespace {

constexpr std::size_t kUsualDims = 3;

// The axes of more than one rank that cut a dim, with their place among all that do.
struct PlacedAxis {
  const CutAxis* axis;
  std::size_t place;
};

std::vector<PlacedAxis> cutters(const DTensorSpec& spec, std::size_t dim) {
  std::vector<PlacedAxis> result;
  const std::vector<CutAxis>& axes = spec.dim_cuts()[dim].axes();
  for (std::size_t place = 0; place < axes.size(); ++place) {
    if (axes[place].ranks > 1) result.push_back({&axes[place], place});
  }
  return result;
}

// How many axes both ends let cut a dim first, in the same way.
std::size_t common_cutters(const std::vector<PlacedAxis>& from, const std::vector<PlacedAxis>& to) {
  const auto same = [](const PlacedAxis& a, const PlacedAxis& b) { return *a.axis == *b.axis; };
  return static_cast<std::size_t>(
      std::mismatch(from.begin(), from.end(), to.begin(), to.end(), same).first - from.begin());
}

int class_of(const Placement& placement) {
  const std::optional<ReduceOp> op = owed_reduction(placement);
  if (!op) return -1;
  return static_cast<int>(*op == ReduceOp::Avg ? ReduceOp::Sum : *op);
}

}  // namespace

StateSpace::StateSpace(const DTensorSpec& from, const DTensorSpec& to) : from_(&from), to_(&to) {
  choose_slots();
  is_searchable_ = slots_.size() <= kMostSlots;
  if (!is_searchable_) return;
  choose_dims();
  fill_rows();
  from_state_ = state_of(from);
  to_state_ = state_of(to);
}

void StateSpace::choose_slots() {
  const std::vector<MeshAxis>& axes = mesh().axes();
  const auto large = static_cast<std::size_t>(
      std::count_if(axes.begin(), axes.end(), [](const MeshAxis& axis) { return axis.size > 1; }));
  std::vector<bool> stays(axes.size(), false);
  if (large > kMostSlots) {
    for (std::size_t axis = 0; axis < axes.size(); ++axis) {
      const Placement& placement = from_->placements()[axis];
      stays[axis] = as_shard(placement) == nullptr && placement == to_->placements()[axis];
    }
    for (std::size_t dim = 0; dim < from_->dim_cuts().size(); ++dim) {
      const std::vector<PlacedAxis> row = cutters(*from_, dim);
      const std::size_t common = common_cutters(row, cutters(*to_, dim));
      for (std::size_t i = 0; i < common; ++i) stays[row[i].axis->axis] = true;
    }
  }
  slot_of_axis_.assign(axes.size(), -1);
  for (std::size_t axis = 0; axis < axes.size(); ++axis) {
    if (axes[axis].size == 1) continue;
    if (stays[axis]) {
      fixed_owed_class_ = std::max(fixed_owed_class_, class_of(from_->placements()[axis]));
      continue;
    }
    Slot slot{axis, axes[axis].size, axes[axis].backend == AxisBackend{}, {}, {}, {}};
    if (owed_reduction(from_->placements()[axis])) slot.owed[0] = &from_->placements()[axis];
    if (owed_reduction(to_->placements()[axis]) &&
        to_->placements()[axis] != from_->placements()[axis]) {
      slot.owed[1] = &to_->placements()[axis];
    }
    slot_of_axis_[axis] = static_cast<int>(slots_.size());
    slots_.push_back(slot);
  }
}

void StateSpace::choose_dims() {
  const Shape& shape = from_->shape();
  std::vector<bool> chosen(shape.size(), false);
  std::size_t count = 0;
  const auto choose = [&](std::size_t dim) {
    count += chosen[dim] ? 0 : 1;
    chosen[dim] = true;
  };
  for (const Slot& slot : slots_) {
    for (const DTensorSpec* end : {from_, to_}) {
      const Shard* shard = as_shard(end->placements()[slot.axis]);
      if (shard != nullptr) choose(static_cast<std::size_t>(shard->dim()));
    }
  }
  while (count < std::min(kUsualDims, shape.size())) {
    std::size_t largest = shape.size();
    for (std::size_t dim = 0; dim < shape.size(); ++dim) {
      if (!chosen[dim] && (largest == shape.size() || shape[dim] > shape[largest])) largest = dim;
    }
    choose(largest);
  }
  other_bytes_ = size_of(from_->meta().dtype());
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    if (chosen[dim]) {
      dims_.push_back({static_cast<std::int64_t>(dim), shape[dim], {}, {}, true});
    } else {
      other_bytes_ *= longest_shard(from_->dim_cuts()[dim]);
    }
  }
}

void StateSpace::fill_rows() {
  for (std::size_t i = 0; i < dims_.size(); ++i) {
    Dim& dim = dims_[i];
    const auto at = static_cast<std::size_t>(dim.dim);
    const std::vector<PlacedAxis> from = cutters(*from_, at);
    const std::vector<PlacedAxis> to = cutters(*to_, at);
    const std::size_t common = common_cutters(from, to);
    const auto add = [&](Row& row, const DTensorSpec& end, const PlacedAxis& cutter, CutOf other) {
      const int number = slot_of_axis_[cutter.axis->axis];
      const std::size_t axes = cutter.place + 1;
      if (number < 0) {
        dim.length = longest_shard(end.dim_cuts()[at], axes);
        return;
      }
      const CutOf cut = cutter.axis->cut.is_even() ? kEven : other;
      if (cut != kEven) {
        Slot& slot = slots_[static_cast<std::size_t>(number)];
        slot.special_symbol[cut - 1] = shard_symbol(i, cut);
        slot.special_length[cut - 1] = longest_shard(end.dim_cuts()[at], axes);
        dim.is_even = false;
      }
      row.cutters[row.count++] = {static_cast<std::uint8_t>(number), shard_symbol(i, cut)};
    };
    for (const PlacedAxis& cutter : from) add(dim.from, *from_, cutter, kCutOfFrom);
    for (std::size_t place = 0; place < to.size(); ++place) {
      if (slot_of_axis_[to[place].axis->axis] < 0) continue;  // seen among those of `from`
      add(dim.to, *to_, to[place], place < common ? kCutOfFrom : kCutOfTo);
    }
  }
}

DistState StateSpace::state_of(const DTensorSpec& end) const {
  DistState state;
  for (std::uint8_t slot = 0; slot < slot_count(); ++slot) {
    const Placement& placement = end.placements()[slots_[slot].axis];
    if (!owed_reduction(placement)) continue;
    const bool is_from = slots_[slot].owed[0] != nullptr && *slots_[slot].owed[0] == placement;
    state = with(state, slot, is_from ? kOwedAtFrom : kOwedAtTo);
  }
  for (const Dim& dim : dims_) {
    const Row& row = &end == from_ ? dim.from : dim.to;
    for (std::uint8_t place = 0; place < row.count; ++place) {
      state = with(state, row.cutters[place].slot, row.cutters[place].symbol, place);
    }
  }
  return state;
}

std::int64_t StateSpace::cut_length(std::int64_t length, Cutter by) const {
  const CutOf cut = cut_of(by.symbol);
  const Slot& slot = slots_[by.slot];
  if (cut != kEven) return slot.special_length[cut - 1U];
  return length / slot.ranks + (length % slot.ranks == 0 ? 0 : 1);
}

void StateSpace::take_apart(DistState state, View& view) const {
  for (std::size_t dim = 0; dim < dims_.size(); ++dim) view.dims[dim].count = 0;
  for (std::uint8_t slot = 0; slot < slot_count(); ++slot) {
    const std::uint8_t symbol = symbol_of(state, slot);
    view.symbols[slot] = symbol;
    if (symbol < kFirstShard) continue;
    View::Cutters& row = view.dims[dim_of(symbol)];
    row.cutters[place_of(state, slot)] = {slot, symbol};
    ++row.count;
  }
  view.bytes = other_bytes_;
  for (std::size_t dim = 0; dim < dims_.size(); ++dim) {
    View::Cutters& row = view.dims[dim];
    row.lengths[0] = dims_[dim].length;
    for (std::size_t place = 0; place < row.count; ++place) {
      row.lengths[place + 1] = cut_length(row.lengths[place], row.cutters[place]);
    }
    view.bytes *= row.lengths[row.count];
  }
}

std::int64_t StateSpace::bytes_with(const View& view, std::size_t dim, std::int64_t length,
                                    std::size_t other_dim, std::int64_t other_length) const {
  std::int64_t bytes = other_bytes_;
  for (std::size_t i = 0; i < dims_.size(); ++i) {
    const View::Cutters& row = view.dims[i];
    bytes *= i == dim ? length : i == other_dim ? other_length : row.lengths[row.count];
  }
  return bytes;
}

int StateSpace::owed_class(std::uint8_t slot, std::uint8_t symbol) const {
  if (symbol != kOwedAtFrom && symbol != kOwedAtTo) return -1;
  return class_of(*slots_[slot].owed[symbol - 1U]);
}

ReduceOp StateSpace::owed_op(std::uint8_t slot, std::uint8_t symbol) const {
  return *owed_reduction(*slots_[slot].owed[symbol - 1U]);
}

DTensorSpec StateSpace::spec_of(DistState state) const {
  if (state == to_state_) return *to_;
  if (state == from_state_) return *from_;
  View view;
  take_apart(state, view);
  Placements placements = from_->placements();
  for (std::size_t axis = 0; axis < placements.size(); ++axis) {
    if (mesh().axes()[axis].size == 1) placements[axis] = Replicate();
  }
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    const std::uint8_t symbol = view.symbols[slot];
    const std::size_t axis = slots_[slot].axis;
    if (symbol == kReplicate) {
      placements[axis] = Replicate();
    } else if (symbol < kFirstShard) {
      placements[axis] = *slots_[slot].owed[symbol - 1U];
    } else if (cut_of(symbol) == kEven) {
      placements[axis] = Shard(dims_[dim_of(symbol)].dim);
    } else {
      placements[axis] = (cut_of(symbol) == kCutOfFrom ? from_ : to_)->placements()[axis];
    }
  }
  ShardOrder order = default_shard_order(placements);
  for (ShardOrderEntry& entry : order) {
    const auto dim = std::find_if(dims_.begin(), dims_.end(),
                                  [&](const Dim& one) { return one.dim == entry.dim; });
    entry.axes.clear();
    for (const PlacedAxis& cutter : cutters(*from_, static_cast<std::size_t>(entry.dim))) {
      if (slot_of_axis_[cutter.axis->axis] < 0) entry.axes.push_back(cutter.axis->axis);
    }
    if (dim == dims_.end()) continue;
    const View::Cutters& row = view.dims[static_cast<std::size_t>(dim - dims_.begin())];
    for (std::size_t place = 0; place < row.count; ++place) {
      entry.axes.push_back(slots_[row.cutters[place].slot].axis);
    }
  }
  return {mesh(), placements, order, to_->meta()};
}

}  // namespace tegula::inner
