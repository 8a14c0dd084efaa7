// The engine as any user of c10d sees it.
#include "tegula/comm/shm/backend.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <future>
#include <limits>

#include "tegula/comm/world.h"
#include "tests/comm/ranks.h"

namespace tegula::inner {
namespace backend_test {

using Tensors = std::vector<at::Tensor>;

// Newer libtorch can be told that the caller waits at once.
template <class Options>
Options waited_for(Options options) {
  if constexpr (requires { options.asyncOp; }) options.asyncOp = false;
  return options;
}

void use_backend(World& world) {
  const c10::intrusive_ptr<c10d::Backend> backend = world.group().backend();
  const int n = world.size();
  const int me = world.rank();
  const auto mine = [&] { return at::full({2, 3}, me, at::kFloat); };
  std::vector<at::Tensor> all;
  for (int rank = 0; rank < n; ++rank) all.push_back(at::full({2, 3}, rank, at::kFloat));
  const at::Tensor sum = at::stack(all).sum(0);

  Tensors reduced{mine()};
  backend->allreduce(reduced, waited_for(c10d::AllreduceOptions()))->wait();
  require(at::equal(reduced[0], sum), "allreduce");
  Tensors async{mine()};
  EXPECT_TRUE(backend->allreduce(async, {})->wait());
  require(at::equal(async[0], sum), "async allreduce");

  Tensors word{mine()};
  c10d::BroadcastOptions from_last;
  from_last.rootRank = n - 1;
  backend->broadcast(word, from_last)->wait();
  require(at::equal(word[0], all.back()), "broadcast");

  std::vector<Tensors> gathered{Tensors()};
  for (int rank = 0; rank < n; ++rank) gathered[0].push_back(at::empty({2, 3}));
  Tensors input{mine()};
  backend->allgather(gathered, input, {})->wait();
  for (int rank = 0; rank < n; ++rank)
    require(at::equal(gathered[0][rank], all[rank]), "allgather");
  at::Tensor flat = at::empty({2 * n, 3});
  backend->_allgather_base(flat, input[0], {})->wait();
  require(at::equal(flat, at::cat(all)), "_allgather_base");

  std::vector<Tensors> at_root;
  if (me == 0) at_root.push_back(gathered[0]);
  backend->gather(at_root, input, {})->wait();
  std::vector<Tensors> scattered;
  if (me == 0) scattered.push_back(all);
  Tensors part{at::empty({2, 3})};
  backend->scatter(part, scattered, {})->wait();
  require(at::equal(part[0], all[me]), "scatter");

  std::vector<Tensors> lists{all};
  Tensors own{at::empty({2, 3})};
  backend->reduce_scatter(own, lists, {})->wait();
  require(at::equal(own[0], all[me] * n), "reduce_scatter");
  at::Tensor one = at::empty({2, 3});
  backend->_reduce_scatter_base(one, flat, {})->wait();
  require(at::equal(one, all[me] * n), "_reduce_scatter_base");

  at::Tensor mixed = at::empty({n});
  at::Tensor sent = at::full({n}, me, at::kFloat);
  std::vector<std::int64_t> even;
  backend->alltoall_base(mixed, sent, even, even, {})->wait();
  require(at::equal(mixed, at::arange(n).to(at::kFloat)), "alltoall_base");
  Tensors outputs(gathered[0]);
  Tensors inputs(n, mine());
  backend->alltoall(outputs, inputs, {})->wait();
  require(at::equal(outputs[n - 1], all[n - 1]), "alltoall");

  Tensors message{at::full({4}, me, at::kFloat)};
  Tensors answer{at::empty({4})};
  const auto receiving = backend->recv(answer, (me + n - 1) % n, 0);
  backend->send(message, (me + 1) % n, 0)->wait();
  receiving->wait();
  require(answer[0][0].item<float>() == static_cast<float>((me + n - 1) % n), "send and recv");
  backend->barrier({})->wait();
}

TEST(Backend, DoesWhatC10dAsks) {
  EXPECT_NO_THROW(run_in(Way::Threads, 3, use_backend));
  EXPECT_NO_THROW(run_in(Way::Processes, 2, use_backend));
}

TEST(Backend, RefusesWhatCannotBeRight) {
  run_ranks(2, [](World& world) {
    const c10::intrusive_ptr<c10d::Backend> backend = world.group().backend();
    const int me = world.rank();
    Tensors one{at::ones({4})};
    std::vector<Tensors> lists{{at::ones({4}), at::ones({4})}};
    std::vector<Tensors> none;
    for (int root : {-1, 2}) {
      c10d::BroadcastOptions broadcast;
      broadcast.rootRank = root;
      EXPECT_THROW(backend->broadcast(one, broadcast), UsageError);
      c10d::GatherOptions gather;
      gather.rootRank = root;
      EXPECT_THROW(backend->gather(lists, one, gather), UsageError);
      c10d::ScatterOptions scatter;
      scatter.rootRank = root;
      EXPECT_THROW(backend->scatter(one, lists, scatter), UsageError);
    }
    for (int peer : {-1, 2, me}) {
      EXPECT_THROW(backend->send(one, peer, 0), UsageError);
      EXPECT_THROW(backend->recv(one, peer, 0), UsageError);
    }
    constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
    for (std::vector<std::int64_t> splits :
         {std::vector<std::int64_t>{-1, 5}, {4}, {2, 3}, {kHuge, kHuge, 6}, {kHuge, -kHuge + 4}}) {
      EXPECT_THROW(backend->alltoall_base(one[0], one[0], splits, splits, {}), UsageError);
    }
    EXPECT_THROW(backend->allgather(none, one, {}), UsageError);
    EXPECT_THROW(backend->reduce_scatter(one, none, {}), UsageError);
    if (me == 0) {
      EXPECT_THROW(backend->gather(none, one, {}), UsageError);
      EXPECT_THROW(backend->scatter(one, none, {}), UsageError);
    }
    backend->barrier({})->wait();
  });
}

// Of as many bytes, so that nothing else is wrong.
TEST(Backend, RefusesTensorsOfDifferentTypes) {
  run_ranks(2, [](World& world) {
    const c10::intrusive_ptr<c10d::Backend> backend = world.group().backend();
    Tensors floats{at::ones({4})};
    Tensors both{at::ones({4}), at::ones({4})};
    std::vector<Tensors> whole{{at::ones({4}, at::kInt), at::ones({4}, at::kInt)}};
    at::Tensor large = at::ones({8}, at::kInt);
    std::vector<std::int64_t> even;
    EXPECT_THROW(backend->allgather(whole, floats, {}), UsageError);
    EXPECT_THROW(backend->_allgather_base(large, floats[0], {}), UsageError);
    EXPECT_THROW(backend->reduce_scatter(floats, whole, {}), UsageError);
    EXPECT_THROW(backend->_reduce_scatter_base(floats[0], large, {}), UsageError);
    EXPECT_THROW(backend->alltoall_base(whole[0][0], floats[0], even, even, {}), UsageError);
    EXPECT_THROW(backend->alltoall(whole[0], both, {}), UsageError);
    c10d::GatherOptions gather;
    c10d::ScatterOptions scatter;
    gather.rootRank = scatter.rootRank = world.rank();
    EXPECT_THROW(backend->gather(whole, floats, gather), UsageError);
    EXPECT_THROW(backend->scatter(floats, whole, scatter), UsageError);
    backend->barrier({})->wait();
  });
}

// The message that comes next is posted by whom the end of the first is told to.
TEST(Backend, WhoIsToldOfTheEndOfAMessageMaySendTheNext) {
  run_ranks(2, [](World& world) {
    const c10::intrusive_ptr<c10d::Backend> backend = world.group().backend();
    Tensors word{at::ones({4})};
    if (world.rank() == 0) {
      backend->send(word, 1, 0)->wait();
      backend->recv(word, 1, 0)->wait();
      EXPECT_EQ(word[0][0].item<float>(), 2);
      return;
    }
    std::promise<c10::intrusive_ptr<c10d::Work>> answered;
    const auto received = backend->recv(word, 0, 0);
    received->getFuture()->addCallback([&](c10::ivalue::Future&) {
      Tensors answer{word[0] * 2};
      answered.set_value(backend->send(answer, 0, 0));
    });
    answered.get_future().get()->wait();
  });
}

}  // namespace backend_test
}  // namespace tegula::inner
