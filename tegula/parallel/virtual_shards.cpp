// The idea: floating-point addition does not care who does it, only in which order. A rank adds up
// the largest subtrees among its own shards; an all_to_all gives each rank one slice of all
// subtrees' gradients, it finishes the tree for that slice, and an all_gather joins the slices.
#include "tegula/parallel/virtual_shards.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <exception>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "tegula/base/error.h"
#include "tegula/base/sentence.h"
#include "tegula/base/text.h"
#include "tegula/comm/comm_log.h"
#include "tegula/comm/together.h"
#include "tegula/parallel/alike.h"
#include "tegula/parallel/lent_tensors.h"
#include "tegula/tensor/dtensor.h"

namespace tegula {

using namespace inner;

namespace inner {

std::int64_t split_of(const ShardRange& range) {
  const auto size = static_cast<std::uint64_t>(range.size());
  return range.begin + static_cast<std::int64_t>(std::bit_floor(size - 1));
}

ShardRange shards_of(std::int64_t rank, std::int64_t ranks, std::int64_t shards) {
  return {rank * shards / ranks, (rank + 1) * shards / ranks};
}

std::vector<ShardRange> subtrees(const ShardRange& all, const ShardRange& mine) {
  if (mine.begin >= all.end || mine.end <= all.begin || mine.size() <= 0) return {};
  if (mine.begin <= all.begin && all.end <= mine.end) return {all};
  const std::int64_t middle = split_of(all);
  std::vector<ShardRange> found = subtrees({all.begin, middle}, mine);
  for (const ShardRange& one : subtrees({middle, all.end}, mine)) found.push_back(one);
  return found;
}

}  // namespace inner

namespace {

using Tensors = std::vector<at::Tensor>;
// Numbers to be added up, by element type.
using Sums = std::map<at::ScalarType, at::Tensor>;

// Parameters and buffers, a tied one once.
struct Members {
  explicit Members(const torch::nn::Module& module) {
    for (StandingMember& one : each_once(members_in(module))) {
      (one.kind == MemberKind::Buffer ? buffers : parameters).push_back(std::move(one));
    }
  }
  std::vector<StandingMember> parameters, buffers;
};

DeviceMesh common_mesh(const Members& members) {
  std::optional<DeviceMesh> mesh;
  for (const auto* list : {&members.parameters, &members.buffers}) {
    for (const StandingMember& one : *list) {
      const bool is_ours = is_dtensor(one.tensor);
      if (is_ours && !mesh) mesh = mesh_of(one.tensor);
      const Placements everywhere(mesh ? mesh->ndim() : 0, Replicate());
      if (is_ours && mesh_of(one.tensor) == *mesh && placements_of(one.tensor) == everywhere) {
        continue;
      }
      throw UsageError("virtual shards want every parameter and buffer replicated over one mesh")
          .fact("tensor", in_quotes(one.full_name()))
          .fact("is", is_ours ? to_string(spec_of(one.tensor)) : "a plain tensor")
          .hint("call replicate(module, mesh) first");
    }
  }
  if (mesh) return *mesh;
  throw UsageError("virtual shards are of a module with parameters").hint("this one has none");
}

void check_batch(const Tensors& batch, std::int64_t shards) {
  if (shards < 1) {
    throw UsageError("a batch is cut into one virtual shard or more")
        .fact("shards", std::to_string(shards))
        .hint("take a number that the numbers of ranks you mean to use divide");
  }
  for (const at::Tensor& tensor : batch) {
    if (is_dtensor(tensor) || tensor.dim() == 0 || tensor.size(0) == 0 ||
        tensor.size(0) != batch[0].size(0)) {
      throw UsageError("a batch consists of plain tensors with the same number of samples")
          .fact("tensor",
                is_dtensor(tensor) ? to_string(spec_of(tensor)) : bracketed(tensor.sizes().vec()))
          .hint("give each rank the whole batch; dim 0 counts samples");
    }
  }
  if (batch.empty()) throw UsageError("a batch has a tensor or more").hint("pass the samples");
}

// What is written to buffers is gone when the loan ends.
LentTensors lent_as_plain(const Members& members) {
  LentTensors lent;
  for (const StandingMember& one : members.parameters) {
    lent.lend(one.tensor, to_local(one.tensor.detach()));
  }
  for (const StandingMember& one : members.buffers) {
    lent.lend(one.tensor, to_local(one.tensor.detach()).clone());
  }
  return lent;
}

// What is split among threads is added up in an order that depends on their number.
class OneThread {
 public:
  OneThread() : earlier_(at::get_num_threads()) {
    if (earlier_ != 1) at::set_num_threads(1);
  }
  ~OneThread() {
    if (earlier_ != 1) at::set_num_threads(earlier_);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int earlier_;
};

// Where what is added up lies in the sums: gradients one after the other; in f64 behind them the
// loss, and for each parameter in how many shards it is used.
class SumsLayout {
 public:
  explicit SumsLayout(const std::vector<StandingMember>& parameters) {
    lengths_[at::kDouble] = 0;
    for (const StandingMember& one : parameters) {
      std::int64_t& length = lengths_[one.tensor.scalar_type()];
      begins_.push_back(length);
      length += one.tensor.numel();
    }
    loss_ = lengths_[at::kDouble];
    lengths_[at::kDouble] += 1 + static_cast<std::int64_t>(parameters.size());
  }
  const std::map<at::ScalarType, std::int64_t>& lengths() const { return lengths_; }

  Sums zeros() const {
    Sums sums;
    for (const auto& [type, length] : lengths_) sums[type] = at::zeros({length}, type);
    return sums;
  }
  // Of the parameters' gradients; where there is none, zeros.
  Sums sums_of(const std::vector<StandingMember>& parameters, const at::Tensor& loss) const {
    std::map<at::ScalarType, Tensors> parts;
    at::Tensor rest = at::zeros({1 + static_cast<std::int64_t>(parameters.size())}, at::kDouble);
    rest[0].copy_(loss);
    for (std::size_t k = 0; k < parameters.size(); ++k) {
      const at::Tensor& parameter = parameters[k].tensor;
      const at::Tensor& grad = parameter.grad();
      if (grad.defined()) rest[1 + static_cast<std::int64_t>(k)] = 1;
      parts[parameter.scalar_type()].push_back(
          grad.defined() ? grad.reshape({-1})
                         : at::zeros({parameter.numel()}, parameter.options()));
    }
    parts[at::kDouble].push_back(rest);
    Sums sums;
    for (const auto& [type, list] : parts) sums[type] = at::cat(list);
    return sums;
  }

  at::Tensor gradient(const Sums& sums, std::size_t index, const at::Tensor& like) const {
    const at::Tensor& all = sums.at(like.scalar_type());
    return all.narrow(0, begins_[index], like.numel()).view(like.sizes());
  }
  at::Tensor loss(const Sums& sums) const { return sums.at(at::kDouble)[loss_]; }
  bool is_used(const Sums& sums, std::size_t index) const {
    const std::int64_t place = loss_ + 1 + static_cast<std::int64_t>(index);
    return sums.at(at::kDouble)[place].item<double>() != 0;
  }

 private:
  std::map<at::ScalarType, std::int64_t> lengths_;
  std::vector<std::int64_t> begins_;
  std::int64_t loss_ = 0;
};

// What this rank computes by itself.
class LocalShards {
 public:
  LocalShards(const Members& members, const SumsLayout& layout, const Tensors& batch,
              std::int64_t shards, const VirtualShardLoss& loss)
      : members_(members), layout_(layout), loss_(loss), samples_(batch[0].size(0)) {
    for (const at::Tensor& tensor : batch) parts_.push_back(tensor.tensor_split(shards));
  }

  Sums sum(const ShardRange& range) const {
    if (range.size() == 1) return of_shard(range.begin);
    const std::int64_t middle = split_of(range);
    Sums left = sum({range.begin, middle});
    for (const auto& [type, right] : sum({middle, range.end})) left.at(type).add_(right);
    return left;
  }

 private:
  Sums of_shard(std::int64_t shard) const {
    Tensors samples;
    for (const Tensors& parts : parts_) samples.push_back(parts[static_cast<std::size_t>(shard)]);
    if (samples[0].size(0) == 0) return layout_.zeros();
    at::Tensor loss;
    {
      const at::AutoGradMode with_grad(true);
      const at::Tensor mean = loss_(samples, shard);
      check_loss(mean);
      loss = mean * (static_cast<double>(samples[0].size(0)) / static_cast<double>(samples_));
      loss.backward();
    }
    const at::NoGradGuard no_grad;
    Sums sums = layout_.sums_of(members_.parameters, loss);
    for (const StandingMember& one : members_.parameters) {
      at::Tensor(one.tensor).mutable_grad() = at::Tensor();
    }
    return sums;
  }

  static void check_loss(const at::Tensor& loss) {
    if (loss.defined() && !is_dtensor(loss) && loss.numel() == 1 && loss.requires_grad()) return;
    throw UsageError("the loss of a virtual shard is a plain scalar with a history")
        .fact("is", !loss.defined()     ? "undefined"
                    : is_dtensor(loss)  ? to_string(spec_of(loss))
                    : loss.numel() != 1 ? bracketed(loss.sizes().vec())
                                        : "without a history")
        .hint("use the module that virtual_shards was given, and nothing else that is distributed");
  }

  const Members& members_;
  const SumsLayout& layout_;
  const VirtualShardLoss& loss_;
  std::int64_t samples_;
  std::vector<Tensors> parts_;
};

Tensors tiles_of(const std::vector<StandingMember>& members) {
  Tensors tiles;
  for (const StandingMember& one : members) tiles.push_back(to_local(one.tensor.detach()));
  return tiles;
}

bool have_same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  const at::Tensor one = a.detach().contiguous(), other = b.detach().contiguous();
  return one.nbytes() == 0 ||
         std::memcmp(one.const_data_ptr(), other.const_data_ptr(), one.nbytes()) == 0;
}

// By their bits: batch normalization writes its statistics without a word to version counters.
void check_buffers(const std::vector<StandingMember>& buffers, const Tensors& as_they_were) {
  for (std::size_t k = 0; k < buffers.size(); ++k) {
    if (have_same_bits(buffers[k].tensor, as_they_were[k])) continue;
    throw UsageError("a virtual shard wrote a buffer, which would differ between ranks")
        .fact("buffer", in_quotes(buffers[k].full_name()))
        .hint("use modules without batch statistics, or in eval mode");
  }
}

// The sums of this rank's subtrees, one row each.
Sums rows_of(const Members& members, const SumsLayout& layout, const LocalShards& shards,
             const std::vector<ShardRange>& ranges) {
  const Tensors buffers = tiles_of(members.buffers);
  const LentTensors plain = lent_as_plain(members);
  const OneThread one_thread;
  std::map<at::ScalarType, Tensors> rows;
  for (const ShardRange& range : ranges) {
    for (const auto& [type, sum] : shards.sum(range)) rows[type].push_back(sum);
  }
  check_buffers(members.buffers, buffers);
  Sums joined;
  for (const auto& [type, length] : layout.lengths()) {
    const auto found = rows.find(type);
    joined[type] = found == rows.end() ? at::empty({0, length}, type) : at::stack(found->second);
  }
  return joined;
}

// Throws on all ranks if one brings an error: there its own, elsewhere what the first of them says.
void throw_on_all_ranks(const Group& group, const std::exception_ptr& error) {
  if (group.size() > 1) {
    const CommLabel label("virtual shards");
    // never empty where there is an error
    const auto first = first_text(group, error ? ' ' + sentence_of(error) : "");
    if (first && !error) {
      throw UsageError("a virtual shard failed on another rank")
          .fact("rank", std::to_string(first->rank))
          .fact("error", first->text.substr(1))
          .hint("the error of that rank says more");
    }
  }
  if (error) std::rethrow_exception(error);
}

using Rows = std::map<ShardRange, std::int64_t>;

at::Tensor tree_sum(const at::Tensor& rows, const Rows& places, const ShardRange& range) {
  if (const auto found = places.find(range); found != places.end()) return rows[found->second];
  const std::int64_t middle = split_of(range);
  return tree_sum(rows, places, {range.begin, middle}) +
         tree_sum(rows, places, {middle, range.end});
}

// The rows of all ranks, added up in the tree's order; the same on all ranks.
Sums total_of(const Sums& mine, const Group& group, std::int64_t shards) {
  const CommLabel label("virtual shards");
  const ShardRange all{0, shards};
  Rows places;
  Group::Sizes counts;
  for (std::int64_t rank = 0; rank < group.size(); ++rank) {
    const std::vector<ShardRange> theirs = subtrees(all, shards_of(rank, group.size(), shards));
    counts.push_back(static_cast<std::int64_t>(theirs.size()));
    for (const ShardRange& one : theirs) {
      places.emplace(one, static_cast<std::int64_t>(places.size()));
    }
  }
  Sums total;
  for (const auto& [type, rows] : mine) {
    if (group.size() == 1) {
      total[type] = rows[0];
      continue;
    }
    Group::Sizes slices;
    for (std::int64_t rank = 0; rank < group.size(); ++rank) {
      slices.push_back(shards_of(rank, group.size(), rows.size(1)).size());
    }
    const at::Tensor slice = group.all_to_all(rows, 1, 0, slices, counts);
    total[type] = group.all_gather(tree_sum(slice, places, all), 0, slices);
  }
  return total;
}

void add_gradient(at::Tensor parameter, const at::Tensor& gradient) {
  FromLocalOptions options;
  options.shape = spec_of(parameter).meta().shape();
  options.check = false;  // nothing is sent
  const at::Tensor placed =
      from_local(gradient.clone(), mesh_of(parameter), placements_of(parameter), options);
  at::Tensor& grad = parameter.mutable_grad();
  grad = grad.defined() ? grad + placed : placed;
}

}  // namespace

at::Tensor virtual_shards(torch::nn::Module& module, const std::vector<at::Tensor>& batch,
                          std::int64_t shards, const VirtualShardLoss& loss) {
  const Members members(module);
  const DeviceMesh mesh = common_mesh(members);
  check_batch(batch, shards);
  const SumsLayout layout(members.parameters);
  const Group group = group_of(mesh.root());
  const ShardRange mine = shards_of(group.index(), group.size(), shards);
  const LocalShards local(members, layout, batch, shards, loss);
  Sums rows;
  std::exception_ptr error;
  try {
    rows = rows_of(members, layout, local, subtrees({0, shards}, mine));
  } catch (...) {
    error = std::current_exception();
  }
  throw_on_all_ranks(group, error);
  const Sums total = total_of(rows, group, shards);
  const at::NoGradGuard no_grad;
  for (std::size_t k = 0; k < members.parameters.size(); ++k) {
    const at::Tensor& parameter = members.parameters[k].tensor;
    if (!layout.is_used(total, k)) continue;
    add_gradient(parameter, layout.gradient(total, k, parameter));
  }
  return layout.loss(total).clone();
}

}  // namespace tegula
