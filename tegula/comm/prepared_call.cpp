// A slice of a contiguous tensor along a dim is one region (runs at equal distances), so that no
// collective along any dim needs a packed copy of its own. The order of the bytes within a region
// is that of the slice's elements, the same for sender and receiver.
#include "tegula/comm/prepared_call.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "tegula/base/error.h"
#include "tegula/base/saturating.h"
#include "tegula/base/text.h"
#include "tegula/bridge/torch_types.h"
#include "tegula/comm/buffers.h"
#include "tegula/comm/reduce.h"

namespace tegula::inner::comm {

bool make_up(std::span<const std::int64_t> sizes, std::int64_t total) {
  for (std::int64_t size : sizes) {
    if (size < 0 || size > total) return false;
    total -= size;
  }
  return total == 0;
}

namespace {

using SmallShape = c10::SmallVector<std::int64_t, 8>;

DType dtype_of(const at::Tensor& tensor) { return tegula::dtype_of(tensor.scalar_type()); }

std::string text_of(const at::Tensor& tensor) {
  return std::string(name_of(dtype_of(tensor))) + bracketed(tensor.sizes().vec());
}

std::span<const std::int64_t> span_of(const SmallShape& shape) {
  return {shape.data(), shape.size()};
}

std::byte* memory_of(const at::Tensor& tensor) {
  return tensor.is_meta() ? nullptr : static_cast<std::byte*>(tensor.data_ptr());
}

at::Tensor checked_input(const Party& party, const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.layout() != at::kStrided) {
    throw UsageError("a collective needs a dense tensor")
        .fact("tensor", tensor.defined() ? tensor.toString() : "undefined")
        .hint("call to_dense()");
  }
  if (tensor.key_set().has(c10::DispatchKey::PrivateUse3)) {
    throw UsageError("a collective needs a plain tensor, not a DTensor")
        .fact("tensor", text_of(tensor))
        .hint("give it to_local(x); redistribute(x, placements) exchanges what it takes by itself");
  }
  if (!party.engine.can_move(tensor.device().type())) {
    throw UsageError("the " + std::string(party.engine.name()) +
                     " engine cannot move tensors of the device " + tensor.device().str())
        .fact("tensor", tensor.toString() + bracketed(tensor.sizes().vec()))
        .hint("move the tensor to the CPU first");
  }
  dtype_of(tensor);  // throws for what has no distributed form
  return tensor.is_contiguous() ? tensor : tensor.contiguous();
}

void check_shape(const SmallShape& shape, const at::Tensor& like) {
  const auto is_in = [&](std::int64_t size) {
    return std::find(shape.begin(), shape.end(), size) != shape.end();
  };
  std::int64_t bytes = is_in(0) ? 0 : static_cast<std::int64_t>(like.itemsize());
  for (std::int64_t size : shape)
    bytes = saturating_product(bytes, std::max<std::int64_t>(size, 0));
  const bool is_negative =
      std::any_of(shape.begin(), shape.end(), [](auto size) { return size < 0; });
  if (!is_negative && bytes < std::numeric_limits<std::int64_t>::max()) return;
  throw UsageError("no tensor has the shape that the result would have")
      .fact("shape", bracketed(Sizes(shape.begin(), shape.end())))
      .hint(is_negative ? "sizes are 0 or more" : "it would have more bytes than 63 bits count");
}

at::Tensor new_result(const Party& party, const at::Tensor& like, const SmallShape& shape) {
  check_shape(shape, like);
  const at::IntArrayRef sizes(shape.data(), shape.size());
  if (!like.is_cpu()) return at::empty(sizes, like.options());
  return party.buffers.empty(sizes, like.scalar_type());
}

std::int64_t checked_dim(const at::Tensor& tensor, std::int64_t dim) {
  const std::int64_t dims = tensor.dim();
  if (dim < -dims || dim >= dims) {
    throw UsageError("there is no dim " + std::to_string(dim) + " in a tensor of " +
                     counted(dims, "dim", "dims"))
        .fact("tensor", text_of(tensor))
        .hint(dims == 0 ? "reshape it to [1] first" : "dims are 0 ... " + std::to_string(dims - 1));
  }
  return dim < 0 ? dim + dims : dim;
}

void check_rank(const Party& party, int rank, const char* what) {
  if (rank >= 0 && rank < party.size) return;
  throw UsageError(std::string(what) + " " + std::to_string(rank) + " is not in a group of " +
                   counted(party.size, "rank", "ranks"))
      .hint("ranks of a group are its members' indices, from 0");
}

// Given sizes, or equal parts of `total`.
SmallShape parts_of(const Party& party, const at::Tensor& tensor, std::int64_t dim,
                    const Sizes& sizes) {
  const std::int64_t total = tensor.size(dim);
  if (sizes.empty()) {
    if (total % party.size != 0) {
      throw UsageError("dim " + std::to_string(dim) + " does not divide into " +
                       std::to_string(party.size) + " equal parts")
          .fact("tensor", text_of(tensor))
          .hint("say how much each rank gets (sizes)");
    }
    return SmallShape(static_cast<std::size_t>(party.size), total / party.size);
  }
  if (sizes.size() != static_cast<std::size_t>(party.size) || !make_up(sizes, total)) {
    throw UsageError("the sizes do not make up dim " + std::to_string(dim))
        .fact("tensor", text_of(tensor))
        .fact("sizes", bracketed(sizes))
        .hint("give one size per rank; they add up to the dim");
  }
  return SmallShape(sizes.begin(), sizes.end());
}

// Given sizes, which say what each rank brings, or the same as mine from all.
SmallShape brought_by_all(const Party& party, std::int64_t mine, const Sizes& sizes) {
  if (sizes.empty()) return SmallShape(static_cast<std::size_t>(party.size), mine);
  if (sizes.size() != static_cast<std::size_t>(party.size) ||
      *std::min_element(sizes.begin(), sizes.end()) < 0) {
    throw UsageError("the sizes do not fit the group")
        .fact("sizes", bracketed(sizes))
        .fact("ranks", std::to_string(party.size))
        .hint("give one size per rank, none below zero");
  }
  const std::int64_t said = sizes[static_cast<std::size_t>(party.index)];
  if (said != mine) {
    throw UsageError("the sizes say that this rank brings " + std::to_string(said) +
                     ", but it brings " + std::to_string(mine))
        .fact("sizes", bracketed(sizes))
        .hint("sizes[k] is the size along the dim of the tensor that the k-th member brings");
  }
  return SmallShape(sizes.begin(), sizes.end());
}

std::int64_t sum_of(const SmallShape& parts) {
  return std::accumulate(parts.begin(), parts.end(), std::int64_t{0}, saturating_sum);
}

// The slices of a contiguous tensor along `dim`, one after the other.
void cut(const at::Tensor& tensor, std::int64_t dim, const SmallShape& parts,
         c10::SmallVector<Region, 4>& regions) {
  const at::IntArrayRef sizes = tensor.sizes();
  const std::int64_t outer = c10::multiply_integers(sizes.begin(), sizes.begin() + dim);
  const std::int64_t inner = c10::multiply_integers(sizes.begin() + dim + 1, sizes.end()) *
                             static_cast<std::int64_t>(tensor.itemsize());
  std::byte* base = memory_of(tensor);
  for (std::int64_t part : parts) {
    regions.push_back({base, part * inner, sizes[static_cast<std::size_t>(dim)] * inner, outer});
    if (base != nullptr) base += part * inner;
  }
}

Region whole(const at::Tensor& tensor) {
  return Region::whole(memory_of(tensor), static_cast<std::int64_t>(tensor.nbytes()));
}

SmallShape shape_of(const at::Tensor& tensor) {
  return SmallShape(tensor.sizes().begin(), tensor.sizes().end());
}

SmallShape with(SmallShape shape, std::int64_t dim, std::int64_t size) {
  shape[static_cast<std::size_t>(dim)] = size;
  return shape;
}

}  // namespace

at::Tensor PreparedCall::run(Engine& engine) const {
  try {
    carry_out(engine);
  } catch (...) {
    engine.keep_after_failure(memory());
    throw;
  }
  return finish();
}

at::Tensor PreparedCall::finish() const {
  if (!target.defined()) return result;
  if (!target.is_same(result)) target.copy_(result);
  return target;
}

void PreparedCall::carry_out(Engine& engine) const {
  const std::span<const Region> sent(from.data(), from.size());
  const std::span<const Region> received(to.data(), to.size());
  switch (call.kind()) {
    case Kind::AllReduce:
      return engine.all_reduce(call, from[0].base, to[0].base, result.numel());
    case Kind::AllGather:
      return engine.all_gather(call, from[0], received);
    case Kind::ReduceScatter:
      return engine.reduce_scatter(call, sent, to[0]);
    case Kind::AllToAll:
    case Kind::Scatter:
    case Kind::Gather:
    case Kind::Permute:
      return engine.exchange(call, sent, received);
    case Kind::Broadcast:
      return engine.broadcast(call, to[0]);
    case Kind::Barrier:
      return engine.barrier(call);
    case Kind::Send:
    case Kind::Recv:
      break;
  }
  throw InternalError("a message is no collective");
}

namespace {

PreparedCall all_reduce_between(const at::Tensor& input, const at::Tensor& result, ReduceOp op) {
  PreparedCall prepared;
  prepared.input = input;
  prepared.result = result;
  prepared.call = Call(Kind::AllReduce, dtype_of(input), span_of(shape_of(input))).reduced_by(op);
  prepared.from.push_back(whole(input));
  prepared.to.push_back(whole(result));
  return prepared;
}

}  // namespace

PreparedCall prepare_all_reduce(const Party& party, const at::Tensor& tensor, ReduceOp op) {
  const at::Tensor input = checked_input(party, tensor);
  check_reducible(dtype_of(tensor), op);
  return all_reduce_between(input, new_result(party, tensor, shape_of(tensor)), op);
}

PreparedCall prepare_all_reduce_in_place(const Party& party, const at::Tensor& tensor,
                                         ReduceOp op) {
  const at::Tensor input = checked_input(party, tensor);
  check_reducible(dtype_of(tensor), op);
  PreparedCall prepared = all_reduce_between(input, input, op);
  prepared.target = tensor;
  return prepared;
}

PreparedCall prepare_all_gather(const Party& party, const at::Tensor& tensor, std::int64_t dim,
                                const Sizes& sizes) {
  PreparedCall prepared;
  prepared.input = checked_input(party, tensor);
  dim = checked_dim(tensor, dim);
  const SmallShape parts = brought_by_all(party, tensor.size(dim), sizes);
  const SmallShape shape = with(shape_of(tensor), dim, sum_of(parts));
  prepared.result = new_result(party, tensor, shape);
  prepared.call = Call(Kind::AllGather, dtype_of(tensor), span_of(shape)).along(dim);
  if (!sizes.empty()) prepared.call.with_sizes(sizes);
  prepared.from.push_back(whole(prepared.input));
  cut(prepared.result, dim, parts, prepared.to);
  return prepared;
}

PreparedCall prepare_reduce_scatter(const Party& party, const at::Tensor& tensor, std::int64_t dim,
                                    ReduceOp op, const Sizes& sizes) {
  PreparedCall prepared;
  prepared.input = checked_input(party, tensor);
  check_reducible(dtype_of(tensor), op);
  dim = checked_dim(tensor, dim);
  const SmallShape parts = parts_of(party, tensor, dim, sizes);
  prepared.result = new_result(
      party, tensor, with(shape_of(tensor), dim, parts[static_cast<std::size_t>(party.index)]));
  prepared.call = Call(Kind::ReduceScatter, dtype_of(tensor), span_of(shape_of(tensor)));
  prepared.call.along(dim).reduced_by(op);
  if (!sizes.empty()) prepared.call.with_sizes(sizes);
  cut(prepared.input, dim, parts, prepared.from);
  prepared.to.push_back(whole(prepared.result));
  return prepared;
}

PreparedCall prepare_all_to_all(const Party& party, const at::Tensor& tensor,
                                std::int64_t split_dim, std::int64_t join_dim,
                                const Sizes& split_sizes, const Sizes& join_sizes) {
  PreparedCall prepared;
  prepared.input = checked_input(party, tensor);
  split_dim = checked_dim(tensor, split_dim);
  join_dim = checked_dim(tensor, join_dim);
  const SmallShape parts = parts_of(party, tensor, split_dim, split_sizes);
  const std::int64_t kept = parts[static_cast<std::size_t>(party.index)];
  const std::int64_t brought = split_dim == join_dim ? kept : tensor.size(join_dim);
  const SmallShape joined = brought_by_all(party, brought, join_sizes);
  SmallShape shape = with(shape_of(tensor), split_dim, kept);
  shape[static_cast<std::size_t>(join_dim)] = sum_of(joined);
  prepared.result = new_result(party, tensor, shape);
  // Sizes along the two dims may differ from rank to rank; the engine compares them pair by pair.
  const SmallShape common = with(with(shape_of(tensor), split_dim, -1), join_dim, -1);
  prepared.call = Call(Kind::AllToAll, dtype_of(tensor), span_of(common));
  prepared.call.along(split_dim).tagged(join_dim);
  cut(prepared.input, split_dim, parts, prepared.from);
  cut(prepared.result, join_dim, joined, prepared.to);
  return prepared;
}

PreparedCall prepare_broadcast(const Party& party, const at::Tensor& tensor, int root) {
  check_rank(party, root, "root");
  PreparedCall prepared;
  prepared.input = checked_input(party, tensor);
  prepared.result = new_result(party, tensor, shape_of(tensor));
  if (party.index == root && !tensor.is_meta()) prepared.result.copy_(prepared.input);
  prepared.call =
      Call(Kind::Broadcast, dtype_of(tensor), span_of(shape_of(tensor))).rooted_at(root);
  prepared.to.push_back(whole(prepared.result));
  return prepared;
}

PreparedCall prepare_scatter(const Party& party, const at::Tensor& part,
                             const at::Tensor& whole_tensor, std::int64_t dim, int root,
                             const Sizes& sizes) {
  check_rank(party, root, "root");
  PreparedCall prepared;
  prepared.result = checked_input(party, part);
  dim = checked_dim(part, dim);
  prepared.target = part;
  prepared.from.resize(static_cast<std::size_t>(party.size));
  prepared.to.resize(static_cast<std::size_t>(party.size));
  prepared.to[static_cast<std::size_t>(root)] = whole(prepared.result);
  if (party.index == root) {
    prepared.input = checked_input(party, whole_tensor);
    prepared.from.clear();
    cut(prepared.input, dim, parts_of(party, whole_tensor, dim, sizes), prepared.from);
  }
  const SmallShape common = with(shape_of(part), dim, -1);
  prepared.call = Call(Kind::Scatter, dtype_of(part), span_of(common)).along(dim).rooted_at(root);
  return prepared;
}

PreparedCall prepare_gather(const Party& party, const at::Tensor& tensor, std::int64_t dim,
                            int root, const Sizes& sizes) {
  check_rank(party, root, "root");
  PreparedCall prepared;
  prepared.input = checked_input(party, tensor);
  dim = checked_dim(tensor, dim);
  const SmallShape parts = brought_by_all(party, tensor.size(dim), sizes);
  prepared.from.resize(static_cast<std::size_t>(party.size));
  prepared.to.resize(static_cast<std::size_t>(party.size));
  prepared.from[static_cast<std::size_t>(root)] = whole(prepared.input);
  if (party.index == root) {
    prepared.result = new_result(party, tensor, with(shape_of(tensor), dim, sum_of(parts)));
    prepared.to.clear();
    cut(prepared.result, dim, parts, prepared.to);
  }
  const SmallShape common = with(shape_of(tensor), dim, -1);
  prepared.call = Call(Kind::Gather, dtype_of(tensor), span_of(common)).along(dim).rooted_at(root);
  return prepared;
}

PreparedCall prepare_permute(const Party& party, const at::Tensor& tensor,
                             const std::vector<int>& to, const std::optional<Sizes>& shape) {
  const auto n = static_cast<std::size_t>(party.size);
  std::vector<int> sender(n, -1);
  for (std::size_t rank = 0; rank < to.size() && to.size() == n; ++rank) {
    if (to[rank] == -1) continue;
    check_rank(party, to[rank], "destination");
    int& from = sender[static_cast<std::size_t>(to[rank])];
    if (from >= 0) {
      throw UsageError("two ranks would send to rank " + std::to_string(to[rank]))
          .hint("a permutation sends at most one tensor to a rank");
    }
    from = static_cast<int>(rank);
  }
  if (to.size() != n) {
    throw UsageError("a permutation needs a destination for each rank")
        .fact("destinations", std::to_string(to.size()))
        .fact("ranks", std::to_string(n))
        .hint("-1 sends to nobody");
  }
  PreparedCall prepared;
  prepared.input = checked_input(party, tensor);
  prepared.from.resize(n);
  prepared.to.resize(n);
  const int destination = to[static_cast<std::size_t>(party.index)];
  if (destination >= 0)
    prepared.from[static_cast<std::size_t>(destination)] = whole(prepared.input);
  const int source = sender[static_cast<std::size_t>(party.index)];
  if (source >= 0) {
    prepared.result = new_result(
        party, tensor, shape ? SmallShape(shape->begin(), shape->end()) : shape_of(tensor));
    prepared.to[static_cast<std::size_t>(source)] = whole(prepared.result);
  }
  const SmallShape destinations(to.begin(), to.end());
  prepared.call = Call(Kind::Permute, dtype_of(tensor), {}).with_sizes(span_of(destinations));
  return prepared;
}

PreparedCall prepare_barrier() {
  PreparedCall prepared;
  prepared.call = Call(Kind::Barrier);
  return prepared;
}

namespace {

void check_peer(const Party& party, Kind kind, int peer) {
  check_rank(party, peer, kind == Kind::Send ? "receiver" : "sender");
  if (peer == party.index) {
    throw UsageError("a rank cannot send to itself").hint("copy the tensor");
  }
}

}  // namespace

Call shaped_message_call(const Party& party, Kind kind, int peer, int tag) {
  check_peer(party, kind, peer);
  constexpr int kMostTags = 1 << 20;  // engines number these messages apart from the others
  if (tag < 0 || tag >= kMostTags) {
    throw UsageError("a message that carries its shape cannot have the tag " + std::to_string(tag))
        .hint("tags are 0 ... " + std::to_string(kMostTags - 1));
  }
  return Call(kind).tagged(tag);
}

PreparedCall prepare_message(const Party& party, Kind kind, const at::Tensor& tensor, int peer,
                             int tag) {
  check_peer(party, kind, peer);
  PreparedCall prepared;
  prepared.input = checked_input(party, tensor);
  prepared.call = Call(kind, dtype_of(tensor), span_of(shape_of(tensor))).tagged(tag);
  prepared.from.push_back(whole(prepared.input));
  return prepared;
}

}  // namespace tegula::inner::comm
