#include "tests/comm/suite.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <cstring>
#include <numeric>
#include <sstream>

#include "tegula/base/error.h"

namespace tegula {
namespace {

using Shape = std::vector<std::int64_t>;

const std::vector<at::ScalarType> kDtypes = {
    at::kBool,     at::kByte,   at::kChar,   at::kShort,        at::kInt,
    at::kLong,     at::kUInt16, at::kUInt32, at::kUInt64,       at::kHalf,
    at::kBFloat16, at::kFloat,  at::kDouble, at::kComplexFloat, at::kComplexDouble};

// All of them; of each family one where many ranks would make it slow.
std::vector<at::ScalarType> dtypes_for(const World& world) {
  if (world.size() <= 4) return kDtypes;
  return {at::kBool, at::kInt, at::kBFloat16, at::kFloat, at::kComplexDouble};
}

bool is_whole(at::ScalarType dtype) { return at::isIntegralType(dtype, /*includeBool=*/false); }

// Small whole numbers, so that every dtype holds them and their sums exactly; every rank can make
// every other rank's.
at::Tensor values(const Shape& shape, at::ScalarType dtype, int rank) {
  const std::int64_t count =
      std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
  at::Tensor numbers = (at::arange(count, at::kLong) * 7 + rank * 3).remainder(5).reshape(shape);
  if (dtype == at::kBool) return numbers > 1;
  if (at::isComplexType(dtype))
    return at::complex(numbers.to(at::kDouble), (numbers - 1).to(at::kDouble)).to(dtype);
  return numbers.to(dtype);
}

// The same on every rank that makes it.
at::Tensor random(const Shape& shape, int rank) {
  return at::randn(shape, at::detail::createCPUGenerator(static_cast<std::uint64_t>(rank)));
}

void check_equal(const at::Tensor& got, const at::Tensor& want, const std::string& what) {
  if (got.scalar_type() == want.scalar_type() && got.sizes() == want.sizes() &&
      (want.numel() == 0 || std::memcmp(got.contiguous().data_ptr(), want.contiguous().data_ptr(),
                                        want.nbytes()) == 0)) {
    return;
  }
  std::ostringstream text;
  text << what << ": got " << got.toString() << got.sizes() << ", want " << want.toString()
       << want.sizes();
  if (got.numel() <= 64)
    text << "\n" << got.to(at::kComplexDouble) << "\n" << want.to(at::kComplexDouble);
  throw std::runtime_error(text.str());
}

at::Tensor combined(ReduceOp op, const at::Tensor& a, const at::Tensor& b) {
  switch (op) {
    case ReduceOp::Sum:
    case ReduceOp::Avg:
      return a + b;
    case ReduceOp::Product:
      return a * b;
    case ReduceOp::Min:
      return at::minimum(a, b);
    case ReduceOp::Max:
      return at::maximum(a, b);
    case ReduceOp::Band:
      return at::bitwise_and(a, b);
    case ReduceOp::Bor:
      return at::bitwise_or(a, b);
    case ReduceOp::Bxor:
      return at::bitwise_xor(a, b);
  }
  return {};
}

// What one process computes: in i64, f32 or the dtype itself, in the order of the ranks.
at::Tensor plain_reduction(ReduceOp op, const std::vector<at::Tensor>& tensors) {
  const at::ScalarType dtype = tensors[0].scalar_type();
  at::ScalarType wide = dtype;
  if (is_whole(dtype) || dtype == at::kBool) wide = at::kLong;
  if (dtype == at::kHalf || dtype == at::kBFloat16) wide = at::kFloat;
  at::Tensor result = tensors[0].to(wide).clone();
  for (std::size_t rank = 1; rank < tensors.size(); ++rank)
    result = combined(op, result, tensors[rank].to(wide));
  const at::Tensor parts = at::isComplexType(wide) ? at::view_as_real(result) : result;
  if (op == ReduceOp::Avg) parts.div_(static_cast<double>(tensors.size()));
  return dtype == at::kBool ? result != 0 : result.to(dtype);
}

bool is_defined_for(ReduceOp op, at::ScalarType dtype) {
  const bool is_bitwise = op == ReduceOp::Band || op == ReduceOp::Bor || op == ReduceOp::Bxor;
  if (is_bitwise) return is_whole(dtype) || dtype == at::kBool;
  if (op == ReduceOp::Avg) return !is_whole(dtype) && dtype != at::kBool;
  return !(at::isComplexType(dtype) && (op == ReduceOp::Min || op == ReduceOp::Max));
}

template <class Make>
std::vector<at::Tensor> of_all_ranks(const World& world, Make make) {
  std::vector<at::Tensor> tensors;
  for (int rank = 0; rank < world.size(); ++rank) tensors.push_back(make(rank));
  return tensors;
}

// Uneven, with an empty one when there are three ranks or more.
Shape uneven(int ranks) {
  Shape sizes;
  for (int rank = 0; rank < ranks; ++rank) sizes.push_back(rank == 1 && ranks > 2 ? 0 : rank + 1);
  return sizes;
}

std::int64_t sum_of(const Shape& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
}

std::int64_t offset_of(const Shape& sizes, int rank) {
  return std::accumulate(sizes.begin(), sizes.begin() + rank, std::int64_t{0});
}

void all_reduce_in_every_dtype_and_op(World& world) {
  const Group group = world.group();
  for (at::ScalarType dtype : dtypes_for(world)) {
    for (ReduceOp op : kReduceOps) {
      const auto all = of_all_ranks(world, [&](int rank) { return values({3, 5}, dtype, rank); });
      const at::Tensor& mine = all[static_cast<std::size_t>(world.rank())];
      if (!is_defined_for(op, dtype)) {
        bool was_refused = false;
        try {
          group.all_reduce(mine, op);
        } catch (const UsageError&) {
          was_refused = true;
        }
        require(was_refused, "an undefined reduction was not refused");
        continue;
      }
      const std::string what = std::string(name_of(op)) + " of " + at::toString(dtype);
      check_equal(group.all_reduce(mine, op), plain_reduction(op, all), what);
      Shape all_to_last(static_cast<std::size_t>(world.size()), 0);
      all_to_last.back() = 3;
      const std::int64_t got = world.rank() == world.size() - 1 ? 3 : 0;
      check_equal(group.reduce_scatter(mine.t(), 1, op, all_to_last),
                  plain_reduction(op, all).t().narrow(1, 0, got).contiguous(),
                  "reduce_scatter, " + what);
    }
  }
}

void all_reduce_of_any_size(World& world) {
  const Group group = world.group();
  for (std::int64_t count : {0, 1, 7, 1024, 5000, 20'000, 70'000, 1'000'003}) {
    const std::vector<at::Tensor> all =
        of_all_ranks(world, [&](int rank) { return random({count}, rank); });
    const at::Tensor& mine = all[static_cast<std::size_t>(world.rank())];
    const at::Tensor want = plain_reduction(ReduceOp::Sum, all);
    check_equal(group.all_reduce(mine, ReduceOp::Sum), want,
                "all_reduce of " + std::to_string(count));
    const at::Tensor in_place = mine.clone();
    group.all_reduce_(in_place, ReduceOp::Sum);
    check_equal(in_place, want, "all_reduce_ of " + std::to_string(count));
    const at::Tensor strided = at::stack({mine, mine}, 1).select(1, 0);
    group.all_reduce_(strided, ReduceOp::Sum);
    check_equal(strided, want, "all_reduce_ of a strided tensor");
  }
}

void not_a_number_wins(World& world) {
  at::Tensor mine = at::full({4}, world.rank());
  mine = mine.to(at::kFloat);
  if (world.rank() == world.size() / 2) mine[1] = std::numeric_limits<float>::quiet_NaN();
  for (ReduceOp op : {ReduceOp::Min, ReduceOp::Max}) {
    const at::Tensor got = world.group().all_reduce(mine, op);
    require(at::isnan(got[1]).item<bool>() && !at::isnan(got[0]).item<bool>(), "NaN did not win");
  }
}

void gathers_along_any_dim(World& world) {
  const Group group = world.group();
  const Shape sizes = uneven(world.size());
  for (at::ScalarType dtype : dtypes_for(world)) {
    for (std::int64_t dim : {0, 1, -1}) {
      const auto made = [&](std::int64_t size, int rank) {
        Shape shape{2, 3, 4};
        shape[static_cast<std::size_t>(dim < 0 ? dim + 3 : dim)] = size;
        return values(shape, dtype, rank);
      };
      const auto even = of_all_ranks(world, [&](int rank) { return made(2, rank); });
      const auto ragged = of_all_ranks(
          world, [&](int rank) { return made(sizes[static_cast<std::size_t>(rank)], rank); });
      const auto me = static_cast<std::size_t>(world.rank());
      check_equal(group.all_gather(even[me], dim), at::cat(even, dim), "all_gather");
      check_equal(group.all_gather(ragged[me], dim, sizes), at::cat(ragged, dim),
                  "uneven all_gather");
      const int root = world.size() - 1;
      const at::Tensor at_root = group.gather(ragged[me], dim, root, sizes);
      require(at_root.defined() == (world.rank() == root),
              "gather gave the result to the wrong rank");
      if (at_root.defined()) check_equal(at_root, at::cat(ragged, dim), "gather");
      const at::Tensor part = at::empty_like(ragged[me]);
      group.scatter(part, world.rank() == root ? at::cat(ragged, dim) : at::Tensor(), dim, root,
                    sizes);
      check_equal(part, ragged[me], "scatter");
    }
  }
}

void reduce_scatters_along_any_dim(World& world) {
  const Group group = world.group();
  const Shape sizes = uneven(world.size());
  for (at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kLong}) {
    for (std::int64_t dim : {0, 1, 2}) {
      for (const Shape& parts : {Shape(static_cast<std::size_t>(world.size()), 2), sizes}) {
        Shape shape{2, 3, 4};
        shape[static_cast<std::size_t>(dim)] = sum_of(parts);
        const auto all = of_all_ranks(world, [&](int rank) { return values(shape, dtype, rank); });
        const auto me = static_cast<std::size_t>(world.rank());
        const at::Tensor want = plain_reduction(ReduceOp::Sum, all)
                                    .narrow(dim, offset_of(parts, world.rank()), parts[me])
                                    .contiguous();
        check_equal(group.reduce_scatter(all[me], dim, ReduceOp::Sum, parts), want,
                    "reduce_scatter");
      }
    }
  }
}

// The result of rank `me`: what all send it, joined.
at::Tensor plain_all_to_all(const std::vector<at::Tensor>& all, int me, std::int64_t split_dim,
                            std::int64_t join_dim, const Shape& split_sizes) {
  std::vector<at::Tensor> parts;
  for (const at::Tensor& tensor : all) {
    parts.push_back(tensor.narrow(split_dim, offset_of(split_sizes, me),
                                  split_sizes[static_cast<std::size_t>(me)]));
  }
  return at::cat(parts, join_dim).contiguous();
}

void all_to_all_along_any_dims(World& world) {
  const Group group = world.group();
  const Shape sizes = uneven(world.size());
  const auto me = static_cast<std::size_t>(world.rank());
  for (at::ScalarType dtype : dtypes_for(world)) {
    for (std::int64_t split_dim : {0, 1, 2}) {
      for (std::int64_t join_dim : {0, 1, 2}) {
        if (split_dim == join_dim) continue;
        Shape splits = sizes;
        std::reverse(splits.begin(), splits.end());
        const auto all = of_all_ranks(world, [&](int rank) {
          Shape shape{2, 3, 4};
          shape[static_cast<std::size_t>(split_dim)] = sum_of(splits);
          shape[static_cast<std::size_t>(join_dim)] = sizes[static_cast<std::size_t>(rank)];
          return values(shape, dtype, rank);
        });
        check_equal(group.all_to_all(all[me], split_dim, join_dim, splits, sizes),
                    plain_all_to_all(all, world.rank(), split_dim, join_dim, splits), "all_to_all");
      }
    }
    const auto all =
        of_all_ranks(world, [&](int rank) { return values({3, 2 * world.size()}, dtype, rank); });
    check_equal(
        group.all_to_all(all[me], 1, 1),
        plain_all_to_all(all, world.rank(), 1, 1, Shape(static_cast<std::size_t>(world.size()), 2)),
        "all_to_all along one dim");
  }
}

void moves_large_tensors(World& world) {
  const Group group = world.group();
  const auto me = static_cast<std::size_t>(world.rank());
  const std::int64_t n = world.size();
  const auto all =
      of_all_ranks(world, [&](int rank) { return random({4 * n, 1200 / (n * n) * n, 70}, rank); });
  const at::Tensor sum = plain_reduction(ReduceOp::Sum, all);
  for (std::int64_t dim : {0, 1}) {
    check_equal(group.all_gather(all[me], dim), at::cat(all, dim), "large all_gather");
    check_equal(group.reduce_scatter(all[me], dim, ReduceOp::Sum),
                sum.chunk(n, dim)[me].contiguous(), "large reduce_scatter");
    check_equal(group.all_to_all(all[me], dim, 1 - dim),
                plain_all_to_all(all, world.rank(), dim, 1 - dim,
                                 Shape(static_cast<std::size_t>(n), all[0].size(dim) / n)),
                "large all_to_all");
  }
  check_equal(group.broadcast(all[me], static_cast<int>(n) - 1), all.back(), "large broadcast");
}

// Results of earlier calls can be anywhere in memory that is shared already, at any distance from a
// cache line.
void reduces_parts_of_results_in_place(World& world) {
  const Group group = world.group();
  const std::int64_t count = 600'001;
  const at::Tensor result = group.all_gather(at::zeros({count}), 0);
  const auto all = of_all_ranks(world, [&](int rank) { return random({count - 9}, rank); });
  const at::Tensor part = result.narrow(0, world.rank(), count - 9);
  for (ReduceOp op : {ReduceOp::Sum, ReduceOp::Avg}) {
    part.copy_(all[static_cast<std::size_t>(world.rank())]);
    group.all_reduce_(part, op);
    check_equal(part, plain_reduction(op, all), "all_reduce_ of a part of a result");
  }
}

void moves_large_tensors_in_runs_of_any_length(World& world) {
  const Group group = world.group();
  const std::int64_t n = world.size();
  for (std::int64_t run : {1, 16, 17, 64, 150}) {
    const auto all = of_all_ranks(
        world, [&](int rank) { return random({600'000 / (run * n * n) * n, run * n}, rank); });
    const at::Tensor& mine = all[static_cast<std::size_t>(world.rank())];
    for (std::int64_t dim : {0, 1}) {
      check_equal(group.all_to_all(mine, dim, 1 - dim),
                  plain_all_to_all(all, world.rank(), dim, 1 - dim,
                                   Shape(static_cast<std::size_t>(n), mine.size(dim) / n)),
                  "all_to_all in runs of " + std::to_string(run));
    }
  }
}

void broadcasts_from_any_root(World& world) {
  for (int root = 0; root < world.size(); ++root) {
    for (at::ScalarType dtype : dtypes_for(world)) {
      const at::Tensor mine = values({2, 5}, dtype, world.rank());
      check_equal(world.group().broadcast(mine, root), values({2, 5}, dtype, root), "broadcast");
    }
    const at::Tensor strided = values({5, 2}, at::kFloat, world.rank()).t();
    world.group().broadcast_(strided, root);
    check_equal(strided, values({5, 2}, at::kFloat, root).t(), "broadcast_ of a strided tensor");
    check_equal(world.group().broadcast(at::empty({0, 3}), root), at::empty({0, 3}),
                "empty broadcast");
  }
}

void permutes_in_a_ring(World& world) {
  const int n = world.size();
  std::vector<int> to;
  for (int rank = 0; rank < n; ++rank) to.push_back((rank + 1) % n);
  const int before = (world.rank() + n - 1) % n;
  check_equal(world.group().permute(values({7}, at::kBFloat16, world.rank()), to),
              values({7}, at::kBFloat16, before), "permute");
  std::vector<int> only_first(static_cast<std::size_t>(n), -1);
  only_first[0] = n - 1;
  const at::Tensor came = world.group().permute(values({3}, at::kInt, world.rank()), only_first);
  require(came.defined() == (world.rank() == n - 1), "permute gave a tensor to the wrong rank");
  if (came.defined()) check_equal(came, values({3}, at::kInt, 0), "permute to one");
}

void sends_and_receives(World& world) {
  const Group group = world.group();
  const int n = world.size();
  if (n == 1) return;
  const int next = (world.rank() + 1) % n;
  const int before = (world.rank() + n - 1) % n;
  for (std::int64_t count : {0, 5, 300'000}) {
    const at::Tensor got = at::empty({count}, at::kInt);
    const Pending receiving = group.recv_async(got, before, 3);
    group.send(values({count}, at::kInt, world.rank()), next, 3);
    check_equal(receiving.wait(), values({count}, at::kInt, before), "a message around the ring");
  }
  std::vector<Pending> sending;
  for (int i = 0; i < 5; ++i) sending.push_back(group.send_async(at::full({3}, i), next));
  for (int i = 0; i < 5; ++i) {
    const at::Tensor got = at::empty({3}, at::kLong);
    group.recv(got, before);
    check_equal(got, at::full({3}, i), "messages in order");
  }
  for (const Pending& pending : sending) pending.wait();
}

void messages_carry_their_shape(World& world) {
  const Group group = world.group();
  const int n = world.size();
  if (n == 1) return;
  const int next = (world.rank() + 1) % n;
  const int before = (world.rank() + n - 1) % n;
  const auto message = [](int i, int rank) {
    const std::vector<Shape> shapes = {
        {},     {0},          {5, 0, 2},    {3, 4},
        {7, 1}, {300'000, 2}, Shape(12, 1), {2, 3, 4, 5, 1, 2, 1, 3, 2}};
    const std::vector<at::ScalarType> dtypes = {at::kFloat, at::kBool, at::kComplexDouble};
    return values(shapes[static_cast<std::size_t>(i) % shapes.size()],
                  dtypes[static_cast<std::size_t>(i) % dtypes.size()], rank + i);
  };
  for (int i = 0; i < 10; ++i) {
    const Pending receiving = group.recv_with_shape_async(before, i);
    group.send_with_shape(message(i, world.rank()), next, i);
    check_equal(receiving.wait(), message(i, before), "a shape around the ring");
  }
  std::vector<Pending> sending, receiving;
  for (int i = 0; i < 10; ++i)
    sending.push_back(group.send_with_shape_async(message(i, world.rank()), next));
  for (int i = 0; i < 5; ++i) receiving.push_back(group.recv_with_shape_async(before));
  for (int i = 0; i < 5; ++i) {
    check_equal(receiving[static_cast<std::size_t>(i)].wait(), message(i, before),
                "shapes in order");
  }
  for (int i = 5; i < 10; ++i) {
    check_equal(group.recv_with_shape(before), message(i, before), "shapes in order, one by one");
  }
  for (const Pending& pending : sending) require(!pending.wait().defined(), "a send gave a result");
  const Pending sent =
      group.send_with_shape_async(values({4, 2}, at::kInt, world.rank()).t(), next);
  check_equal(group.recv_with_shape(before), values({4, 2}, at::kInt, before).t(),
              "a strided message");
  sent.wait();
}

void runs_async_calls(World& world) {
  const Group group = world.group();
  std::vector<Pending> sums;
  for (int i = 0; i < 20; ++i) {
    sums.push_back(group.all_reduce_async(at::full({i * 1000 + 1}, world.rank() + i, at::kFloat),
                                          ReduceOp::Sum));
  }
  const at::Tensor now = group.all_reduce(at::ones({2}), ReduceOp::Sum);  // after all that
  require(sums.back().is_done(), "a synchronous call overtook an asynchronous one");
  check_equal(now, at::full({2}, world.size(), at::kFloat), "all_reduce after asynchronous ones");
  const float ranks = static_cast<float>(world.size());
  for (int i = 0; i < 20; ++i) {
    check_equal(sums[static_cast<std::size_t>(i)].wait(),
                at::full({i * 1000 + 1}, ranks * (ranks - 1) / 2 + ranks * static_cast<float>(i),
                         at::kFloat),
                "all_reduce_async");
  }
  const Pending rows = group.all_gather_async(at::full({2}, world.rank()), 0);
  const Pending part = group.reduce_scatter_async(at::ones({world.size()}), 0, ReduceOp::Sum);
  const Pending mixed = group.all_to_all_async(at::ones({world.size()}), 0, 0);
  const Pending word = group.broadcast_async(at::full({1}, world.rank()), 0);
  const int last = world.size() - 1;
  const at::Tensor part_of_root = at::empty({2, 2}).t();
  const Pending scattered = group.scatter_async(
      part_of_root, at::arange(4 * world.size(), at::kFloat).view({-1, 2}), 0, last);
  const Pending gathered = group.gather_async(at::full({1}, world.rank()), 0, last);
  std::vector<int> to_itself(static_cast<std::size_t>(world.size()));
  std::iota(to_itself.begin(), to_itself.end(), 0);
  const Pending stayed = group.permute_async(at::full({3}, world.rank()), to_itself);
  group.barrier_async().wait();
  require(scattered.wait().is_same(part_of_root) &&
              at::equal(part_of_root, at::arange(4, at::kFloat).view({2, 2}) + 4 * world.rank()) &&
              gathered.wait().defined() == (world.rank() == last) &&
              at::equal(stayed.wait(), at::full({3}, world.rank())),
          "an async scatter, gather or permute gave a wrong result");
  require(rows.wait().size(0) == 2 * world.size() && part.wait().item<float>() == ranks &&
              mixed.wait().size(0) == world.size() && word.wait().item<std::int64_t>() == 0,
          "an async call gave a wrong result");
}

// Tensors of many shapes and dtypes, small and large, empty and strided ones among them.
std::vector<at::Tensor> mixed_list(int rank, int ranks, std::int64_t largest) {
  std::vector<at::Tensor> list;
  for (std::int64_t count : {3, 0, 1, 700, 9000, 70'000, 400'000}) {
    if (count <= largest) list.push_back(random({count, 2 * ranks}, rank));
  }
  list.push_back(values({5, 2 * ranks}, at::kBFloat16, rank));
  list.push_back(values({2 * ranks, 3}, at::kLong, rank).t());
  list.push_back(values({1, 2 * ranks}, at::kComplexDouble, rank));
  list.push_back(values({7, 2 * ranks}, at::kDouble, rank));
  return list;
}

void check_lists(const std::vector<at::Tensor>& got, const std::vector<at::Tensor>& want,
                 const std::string& what) {
  require(got.size() == want.size(), what + ": a result is missing");
  for (std::size_t i = 0; i < want.size(); ++i) {
    check_equal(got[i], want[i], what + ", tensor " + std::to_string(i));
  }
}

std::vector<TensorAlong> along_last_dim(const std::vector<at::Tensor>& list, const Shape& sizes) {
  std::vector<TensorAlong> along;
  for (const at::Tensor& tensor : list) along.push_back({tensor, -1, sizes});
  return along;
}

void coalesced_calls_give_the_bits_of_single_ones(World& world) {
  const Group group = world.group();
  const int n = world.size();
  Shape parts = uneven(n);  // of the last dim, 2 * n in all
  parts.back() += 2 * n - sum_of(parts);
  if (parts.back() < 0) parts = Shape(static_cast<std::size_t>(n), 2);
  for (std::int64_t largest : {0, 1, 700, 9000, 70'000, 400'000}) {
    if (n > 3 && largest > 9000) continue;
    const std::vector<at::Tensor> mine = mixed_list(world.rank(), n, largest);
    std::vector<at::Tensor> sums, gathered, scattered, in_place, in_place_later;
    for (const at::Tensor& tensor : mine) {
      sums.push_back(group.all_reduce(tensor, ReduceOp::Sum));
      gathered.push_back(group.all_gather(tensor, -1));
      scattered.push_back(group.reduce_scatter(tensor, -1, ReduceOp::Sum, parts));
      in_place.push_back(tensor.clone(at::MemoryFormat::Preserve));
      in_place_later.push_back(tensor.clone(at::MemoryFormat::Preserve));
    }
    check_lists(group.all_reduce_coalesced(mine, ReduceOp::Sum), sums, "all_reduce_coalesced");
    check_lists(group.all_gather_coalesced(along_last_dim(mine, {})), gathered,
                "all_gather_coalesced");
    check_lists(group.reduce_scatter_coalesced(along_last_dim(mine, parts), ReduceOp::Sum),
                scattered, "reduce_scatter_coalesced");
    group.all_reduce_coalesced_(in_place, ReduceOp::Sum);
    check_lists(in_place, sums, "all_reduce_coalesced_");

    const PendingList sum = group.all_reduce_coalesced_async(mine, ReduceOp::Sum);
    const PendingList whole = group.all_gather_coalesced_async(along_last_dim(mine, {}));
    const PendingList part =
        group.reduce_scatter_coalesced_async(along_last_dim(mine, parts), ReduceOp::Sum);
    group.barrier();
    require(sum.is_done() && whole.is_done() && part.is_done(), "a list was overtaken");
    check_lists(sum.wait(), sums, "all_reduce_coalesced_async");
    check_lists(whole.wait(), gathered, "all_gather_coalesced_async");
    check_lists(part.wait(), scattered, "reduce_scatter_coalesced_async");
    group.all_reduce_coalesced_async_(in_place_later, ReduceOp::Sum).wait();
    check_lists(in_place_later, sums, "all_reduce_coalesced_async_");
    in_place[0].copy_(mine[0]);
    group.all_reduce_async_(in_place[0], ReduceOp::Sum).wait();
    check_equal(in_place[0], sums[0], "all_reduce_async_");
  }
}

void coalesced_calls_take_uneven_sizes_and_any_dims(World& world) {
  const Group group = world.group();
  const Shape sizes = uneven(world.size());
  const auto me = static_cast<std::size_t>(world.rank());
  const std::int64_t mine = sizes[me];
  const std::vector<TensorAlong> brought = {
      {values({mine, 3}, at::kInt, world.rank()), 0, sizes},
      {values({2, mine, 2}, at::kFloat, world.rank()), 1, sizes},
      {values({4, 2}, at::kBool, world.rank()), 1},
  };
  std::vector<at::Tensor> want;
  for (const TensorAlong& one : brought) {
    want.push_back(group.all_gather(one.tensor, one.dim, one.sizes));
  }
  check_lists(group.all_gather_coalesced(brought), want, "uneven all_gather_coalesced");
  for (ReduceOp op : {ReduceOp::Max, ReduceOp::Product}) {
    const std::vector<TensorAlong> cut = {
        {values({sum_of(sizes), 3}, at::kInt, world.rank()), 0, sizes},
        {values({2, sum_of(sizes), 2}, at::kFloat, world.rank()), 1, sizes},
        {values({4, 2 * world.size()}, at::kHalf, world.rank()), -1},
    };
    want.clear();
    for (const TensorAlong& one : cut) {
      want.push_back(group.reduce_scatter(one.tensor, one.dim, op, one.sizes));
    }
    check_lists(group.reduce_scatter_coalesced(cut, op), want, "uneven reduce_scatter_coalesced");
  }
}

void coalesced_calls_take_lists_of_nothing(World& world) {
  const Group group = world.group();
  const std::vector<at::Tensor> empty = {at::empty({0}), at::empty({3, 0}, at::kLong)};
  for (const std::vector<at::Tensor>& list : {std::vector<at::Tensor>(), empty}) {
    check_lists(group.all_reduce_coalesced(list, ReduceOp::Sum), list, "nothing, reduced");
    check_lists(group.reduce_scatter_coalesced(along_last_dim(list, {}), ReduceOp::Sum), list,
                "nothing, scattered");
    check_lists(group.all_gather_coalesced(along_last_dim(list, {})), list, "nothing, gathered");
    group.all_reduce_coalesced_(list, ReduceOp::Sum);
  }
  check_equal(group.all_reduce(at::ones({2}), ReduceOp::Sum),
              at::full({2}, world.size(), at::kFloat), "all_reduce after lists of nothing");
}

void groups_are_independent(World& world) {
  const int n = world.size();
  std::vector<int> mine;
  for (int rank = world.rank() % 2; rank < n; rank += 2) mine.push_back(rank);
  const Group half = world.group(mine, {"half", "", std::nullopt});
  const at::Tensor sum = half.all_reduce(at::full({1}, world.rank()), ReduceOp::Sum);
  require(sum.item<std::int64_t>() == std::accumulate(mine.begin(), mine.end(), 0),
          "a sub-group's sum is wrong");
  std::vector<int> reversed;
  for (int rank = n - 1; rank >= 0; --rank) reversed.push_back(rank);
  const at::Tensor order = world.group(reversed, {"reversed", "", std::nullopt})
                               .all_gather(at::full({1}, world.rank()), 0);
  for (int i = 0; i < n; ++i)
    require(order[i].item<std::int64_t>() == n - 1 - i, "a group lost its order");
  for (int i = 0; i < 3; ++i) world.group().barrier();
}

// The last rank sends at once; the others only when rank 0 has its message.
void messages_are_waited_for_in_any_order(World& world) {
  const int n = world.size();
  const Group group = world.group();
  if (n == 1) return;
  const auto is_called = [&](int rank) { return at::full({2}, rank); };
  if (world.rank() == 0) {
    std::vector<Pending> messages;
    for (int rank = 1; rank < n; ++rank) {
      messages.push_back(group.recv_async(at::zeros({2}, at::kLong), rank));
    }
    for (int rank = n - 1; rank >= 1; --rank) {
      check_equal(messages[static_cast<std::size_t>(rank - 1)].wait(), is_called(rank),
                  "a message");
      if (rank > 1) group.send(is_called(rank), rank - 1);
    }
  } else {
    if (world.rank() < n - 1) group.recv(at::zeros({2}, at::kLong), 0);
    group.send(is_called(world.rank()), 0);
  }
  // Two from one rank.
  const int peer = (world.rank() + 1) % n;
  const int before = (world.rank() + n - 1) % n;
  const Pending first = group.recv_async(at::zeros({2}, at::kLong), before);
  const Pending second = group.recv_async(at::zeros({2}, at::kLong), before);
  group.send(is_called(1), peer);
  group.send(is_called(2), peer);
  check_equal(second.wait(), is_called(2), "the second message");
  check_equal(first.wait(), is_called(1), "the first message");
}

}  // namespace

const std::map<std::string, RankBody>& suite() {
  static const std::map<std::string, RankBody> bodies = {
      {"AllReduceInEveryDtypeAndOp", all_reduce_in_every_dtype_and_op},
      {"AllReduceOfAnySize", all_reduce_of_any_size},
      {"NotANumberWins", not_a_number_wins},
      {"GathersAlongAnyDim", gathers_along_any_dim},
      {"ReduceScattersAlongAnyDim", reduce_scatters_along_any_dim},
      {"AllToAllAlongAnyDims", all_to_all_along_any_dims},
      {"MovesLargeTensors", moves_large_tensors},
      {"MovesLargeTensorsInRunsOfAnyLength", moves_large_tensors_in_runs_of_any_length},
      {"ReducesPartsOfResultsInPlace", reduces_parts_of_results_in_place},
      {"BroadcastsFromAnyRoot", broadcasts_from_any_root},
      {"PermutesInARing", permutes_in_a_ring},
      {"SendsAndReceives", sends_and_receives},
      {"MessagesCarryTheirShape", messages_carry_their_shape},
      {"MessagesAreWaitedForInAnyOrder", messages_are_waited_for_in_any_order},
      {"RunsAsyncCalls", runs_async_calls},
      {"CoalescedCallsGiveTheBitsOfSingleOnes", coalesced_calls_give_the_bits_of_single_ones},
      {"CoalescedCallsTakeUnevenSizesAndAnyDims", coalesced_calls_take_uneven_sizes_and_any_dims},
      {"CoalescedCallsTakeListsOfNothing", coalesced_calls_take_lists_of_nothing},
      {"GroupsAreIndependent", groups_are_independent},
  };
  return bodies;
}

}  // namespace tegula
