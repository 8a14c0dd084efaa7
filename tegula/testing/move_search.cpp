// The idea: dims that are cut together have the same size, so one size is cut at a time; each
// operand then has few choices. The op is played once per combination of operands, and each result
// is compared with every way to read its parts.
#include "tegula/testing/move_search.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <set>

#include "tegula/testing/parts.h"
#include "tegula/testing/played_call.h"
#include "tegula/testing/sample_rule.h"

namespace tegula {

using namespace inner;

namespace {

using Choices = std::vector<std::vector<Placement>>;  // one list per tensor

// As equal as possible and without empty shards, if there are enough elements.
Cut fair_cut(std::int64_t size, std::int64_t ranks) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    sizes.push_back((size + ranks - 1 - rank) / ranks);
  }
  return Cut::ragged(sizes);
}

Placement cut_fairly(const Placement& placement, std::int64_t size, std::int64_t ranks) {
  const Shard* shard = as_shard(placement);
  return shard ? Placement(Shard(shard->dim(), fair_cut(size, ranks))) : placement;
}

std::vector<Placement> shards_of(at::IntArrayRef sizes, std::int64_t size) {
  std::vector<Placement> shards;
  for (std::size_t dim = 0; dim < sizes.size(); ++dim) {
    if (sizes[dim] == size) shards.emplace_back(Shard(static_cast<std::int64_t>(dim)));
  }
  return shards;
}

// Ways to read the parts of a result, the most useful first.
std::vector<Placement> readings_of(const at::Tensor& result, std::int64_t size) {
  std::vector<Placement> readings{Replicate()};
  if (size > 0) {
    for (const Placement& shard : shards_of(result.sizes(), size)) readings.push_back(shard);
  }
  const bool is_bool = result.scalar_type() == at::kBool;
  if (!is_bool) readings.emplace_back(Partial(ReduceOp::Sum));
  if (!result.is_complex()) {
    readings.emplace_back(Partial(ReduceOp::Max));
    readings.emplace_back(Partial(ReduceOp::Min));
  }
  if (!is_bool) readings.emplace_back(Partial(ReduceOp::Product));
  return readings;
}

class Search {
 public:
  Search(const Sample& sample, const RuleTable& rules, OperandsTried tried)
      : calls_{PlayedCall(sample, 2, 1), PlayedCall(sample, 3, 2)}, tried_(tried) {
    signature_ = signature_for(rules, calls_.front());
    if (signature_) listed_ = axis_moves(*signature_);
  }

  std::vector<AxisMove> unlisted() {
    if (!calls_.front().schema().written.empty()) return {};
    try_operands(0);
    for (std::int64_t size : sizes()) try_operands(size);
    return std::move(found_);
  }

 private:
  const OpSchema& schema() const { return calls_.front().schema(); }

  std::set<std::int64_t> sizes() const {
    std::set<std::int64_t> found;
    for (const auto& spec : schema().tensors) {
      if (spec) found.insert(spec->shape().begin(), spec->shape().end());
    }
    found.erase(0);
    found.erase(1);
    return found;
  }

  // 0: nothing is cut
  Choices choices_for(std::int64_t size) const {
    Choices choices;
    for (std::size_t k = 0; k < schema().tensors.size(); ++k) {
      choices.push_back({Replicate()});
      if (!schema().has(k)) continue;
      const at::Tensor& operand = calls_.front().operand(k);
      const std::vector<Placement> shards =
          size > 0 ? shards_of(operand.sizes(), size) : std::vector<Placement>{};
      if (tried_ == OperandsTried::FittingOnly && !shards.empty()) choices.back().clear();
      choices.back().insert(choices.back().end(), shards.begin(), shards.end());
      const bool must_be_cut = choices.back().size() == shards.size() && !shards.empty();
      if (!must_be_cut && (operand.is_floating_point() || operand.is_complex())) {
        choices.back().emplace_back(Partial());
      }
    }
    return choices;
  }

  void try_operands(std::int64_t size) {
    const Choices choices = choices_for(size);
    std::vector<Placement> operands;
    const std::function<void(bool)> choose = [&](bool cuts) {
      if (operands.size() == choices.size()) {
        if (cuts == (size > 0)) try_sizes({operands}, size);
        return;
      }
      for (const Placement& placement : choices[operands.size()]) {
        operands.push_back(placement);
        choose(cuts || as_shard(placement));
        operands.pop_back();
      }
    };
    choose(/*cuts=*/false);
  }

  // With arguments that list sizes as they are, and with each dim of that size cut.
  void try_sizes(Placing placing, std::int64_t size) {
    const auto is_whole = [](const Placement& placement) { return is_replicate(placement); };
    if (std::all_of(placing.operands.begin(), placing.operands.end(), is_whole)) return;
    try_placing(placing, size);
    if (!signature_ || size == 0) return;
    for (const SizeArgument& sizes : signature_->size_arguments) {
      for (const Placement& shard : shards_of(sizes_at(schema(), sizes.argument), size)) {
        placing.sizes = {{sizes.argument, shard}};
        try_placing(placing, size);
      }
    }
  }

  void try_placing(const Placing& placing, std::int64_t size) {
    std::vector<std::vector<Placement>> readings;
    for (const at::Tensor& result : calls_.front().results()) {
      readings.push_back(result.defined() ? readings_of(result, size)
                                          : std::vector<Placement>{Replicate()});
    }
    for (PlayedCall& call : calls_) {
      if (!keep_right_ones(call, placing, size, readings)) return;
    }
    for (std::vector<Placement>& reading : readings) {
      if (is_replicate(reading.front())) reading.resize(1);
    }
    list_moves(placing, readings);
  }

  // False if some result has none.
  static bool keep_right_ones(PlayedCall& call, const Placing& placing, std::int64_t size,
                              std::vector<std::vector<Placement>>& readings) {
    const std::int64_t ranks = call.axis().size();
    Placing cut = placing;
    for (Placement& placement : cut.operands) placement = cut_fairly(placement, size, ranks);
    for (auto& [argument, placement] : cut.sizes) placement = cut_fairly(placement, size, ranks);
    std::vector<std::vector<at::Tensor>> parts;
    try {
      parts = call.play(cut);
    } catch (const c10::Error&) {
      return false;  // shapes that do not fit
    }
    for (std::size_t r = 0; r < readings.size(); ++r) {
      const at::Tensor& whole = call.results()[r];
      if (!whole.defined()) continue;
      std::erase_if(readings[r], [&](const Placement& reading) {
        return !fault_of(parts[r], cut_fairly(reading, size, ranks), whole, call.axis(),
                         call.rounding())
                    .empty();
      });
      if (readings[r].empty()) return false;
    }
    return true;
  }

  void list_moves(const Placing& placing, const std::vector<std::vector<Placement>>& readings) {
    AxisMove move{placing.operands, {}, kNoFactor};
    const std::function<void()> choose = [&] {
      if (move.results.size() == readings.size()) {
        if (!is_listed(move)) found_.push_back(move);
        return;
      }
      for (const Placement& reading : readings[move.results.size()]) {
        move.results.push_back(reading);
        choose();
        move.results.pop_back();
      }
    };
    choose();
  }

  bool is_listed(const AxisMove& move) const {
    return std::any_of(listed_.begin(), listed_.end(), [&](const AxisMove& other) {
      return other.operands == move.operands && agree(other.results, move.results);
    });
  }

  // Undefined results may be said to be anything.
  bool agree(const std::vector<Placement>& listed, const std::vector<Placement>& right) const {
    for (std::size_t r = 0; r < right.size() && r < listed.size(); ++r) {
      if (calls_.front().results()[r].defined() && listed[r] != right[r]) return false;
    }
    return listed.size() == right.size();
  }

  std::vector<PlayedCall> calls_;
  OperandsTried tried_;
  std::optional<Signature> signature_;
  std::vector<AxisMove> listed_;
  std::vector<AxisMove> found_;
};

}  // namespace

std::vector<AxisMove> unused_moves(const RuleTable& rules, const Sample& sample,
                                   OperandsTried tried) {
  return Search(sample, rules, tried).unlisted();
}

}  // namespace tegula
