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
#include <set>
#include <string>
#include <utility>

#include "tegula/base/error.h"
#include "tegula/base/sentence.h"
#include "tegula/base/text.h"
#include "tegula/comm/comm_log.h"
#include "tegula/parallel/alike.h"
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

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

void add_member(std::vector<NamedTensor>& members, std::set<c10::TensorImpl*>& seen,
                const std::string& name, const at::Tensor& tensor) {
  if (tensor.defined() && seen.insert(tensor.unsafeGetTensorImpl()).second) {
    members.push_back({name, tensor});
  }
}

// Parameters and buffers, a tied one once.
struct Members {
  explicit Members(const torch::nn::Module& module) {
    std::set<c10::TensorImpl*> seen;
    for (const auto& one : module.named_parameters()) {
      add_member(parameters, seen, one.key(), one.value());
    }
    for (const auto& one : module.named_buffers())
      add_member(buffers, seen, one.key(), one.value());
  }
  std::vector<NamedTensor> parameters, buffers;
};

DeviceMesh common_mesh(const Members& members) {
  std::optional<DeviceMesh> mesh;
  for (const auto* list : {&members.parameters, &members.buffers}) {
    for (const NamedTensor& one : *list) {
      const bool is_ours = is_dtensor(one.tensor);
      if (is_ours && !mesh) mesh = mesh_of(one.tensor);
      const Placements everywhere(mesh ? mesh->ndim() : 0, Replicate());
      if (is_ours && mesh_of(one.tensor) == *mesh && placements_of(one.tensor) == everywhere) {
        continue;
      }
      throw UsageError("virtual shards want every parameter and buffer replicated over one mesh")
          .fact("tensor", in_quotes(one.name))
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

// Parameters and buffers are plain tensors while it stands, without gradients. What is written to
// buffers is gone afterwards.
class AsPlain {
 public:
  explicit AsPlain(const Members& members) {
    for (const NamedTensor& one : members.parameters)
      change(one.tensor, to_local(one.tensor.detach()));
    for (const NamedTensor& one : members.buffers) {
      change(one.tensor, to_local(one.tensor.detach()).clone());
    }
  }
  ~AsPlain() {
    for (Changed& one : changed_) {
      one.tensor.mutable_grad() = at::Tensor();
      one.tensor.set_data(one.as_it_was);
      one.tensor.mutable_grad() = one.grad;
    }
  }
  AsPlain(const AsPlain&) = delete;
  AsPlain& operator=(const AsPlain&) = delete;

 private:
  struct Changed {
    at::Tensor tensor, as_it_was, grad;
  };
  void change(at::Tensor tensor, const at::Tensor& plain) {
    changed_.push_back({tensor, tensor.detach(), tensor.grad()});
    tensor.mutable_grad() = at::Tensor();
    tensor.set_data(plain);
  }
  std::vector<Changed> changed_;
};

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
  explicit SumsLayout(const std::vector<NamedTensor>& parameters) {
    lengths_[at::kDouble] = 0;
    for (const NamedTensor& one : parameters) {
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
  Sums sums_of(const std::vector<NamedTensor>& parameters, const at::Tensor& loss) const {
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
    for (const NamedTensor& one : members_.parameters) {
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

Tensors tiles_of(const std::vector<NamedTensor>& members) {
  Tensors tiles;
  for (const NamedTensor& one : members) tiles.push_back(to_local(one.tensor.detach()));
  return tiles;
}

bool have_same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  const at::Tensor one = a.detach().contiguous(), other = b.detach().contiguous();
  return one.nbytes() == 0 ||
         std::memcmp(one.const_data_ptr(), other.const_data_ptr(), one.nbytes()) == 0;
}

// By their bits: batch normalization writes its statistics without a word to version counters.
void check_buffers(const std::vector<NamedTensor>& buffers, const Tensors& as_they_were) {
  for (std::size_t k = 0; k < buffers.size(); ++k) {
    if (have_same_bits(buffers[k].tensor, as_they_were[k])) continue;
    throw UsageError("a virtual shard wrote a buffer, which would differ between ranks")
        .fact("buffer", in_quotes(buffers[k].name))
        .hint("use modules without batch statistics, or in eval mode");
  }
}

// The sums of this rank's subtrees, one row each.
Sums rows_of(const Members& members, const SumsLayout& layout, const LocalShards& shards,
             const std::vector<ShardRange>& ranges) {
  const Tensors buffers = tiles_of(members.buffers);
  const AsPlain plain(members);
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
    const std::string text = error ? ' ' + sentence_of(error) : "";
    at::Tensor bytes = at::empty({static_cast<std::int64_t>(text.size())}, at::kByte);
    if (error) std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
    const at::Tensor lengths = group.all_gather(at::full({1}, bytes.numel(), at::kLong), 0);
    const Group::Sizes sizes(lengths.const_data_ptr<std::int64_t>(),
                             lengths.const_data_ptr<std::int64_t>() + lengths.numel());
    const auto first = std::ranges::find_if(sizes, [](std::int64_t size) { return size > 0; });
    if (first == sizes.end()) return;
    const at::Tensor texts = group.all_gather(bytes, 0, sizes);
    if (!error) {
      throw UsageError("a virtual shard failed on another rank")
          .fact("rank", std::to_string(group.ranks()[first - sizes.begin()]))
          .fact("error", std::string(static_cast<const char*>(texts.const_data_ptr()) + 1,
                                     static_cast<std::size_t>(*first - 1)))
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
