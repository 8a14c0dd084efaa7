// Gradients of replicas are reduced in buckets: fewer calls, the same bits, and whatever a hook
// makes of them.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "tegula/comm/comm_log.h"
#include "tegula/parallel/checkpoint.h"
#include "tegula/parallel/parallelize_module.h"
#include "tegula/parallel/replicate.h"
#include "tests/tensor/as_plain.h"
#include "tests/tensor/environment_variable.h"

namespace tegula {
namespace gradient_buckets_test {

namespace nn = torch::nn;

// Layers in a row, of which one is used twice and the last one only on request.
struct Network : nn::Module {
  Network()
      : in(register_module("in", nn::Linear(4, 5))),
        shared(register_module("shared", nn::Linear(5, 5))),
        out(register_module("out", nn::Linear(5, 3))),
        extra(register_module("extra", nn::Linear(3, 3))) {
    to(at::kDouble);
    std::uint64_t seed = 0;
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : parameters()) parameter.copy_(numbers(parameter.sizes(), ++seed));
  }
  at::Tensor hidden(const at::Tensor& x) { return at::tanh(shared(at::tanh(shared(in(x))))); }
  at::Tensor loss(const at::Tensor& x) { return out(hidden(x)).square().mean(); }

  nn::Linear in, shared, out, extra;
};

constexpr std::size_t kUsed = 6;  // parameters that get a gradient
constexpr std::int64_t kBytes = (20 + 5 + 25 + 5 + 15 + 3) * 8;

at::Tensor samples() { return numbers({7, 4}, 50); }

Tensors gradients_of(const nn::Module& network) {
  Tensors gradients;
  for (const at::Tensor& parameter : network.parameters()) {
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  }
  return gradients;
}

Tensors plain_gradients() {
  Network plain;
  plain.loss(samples()).backward();
  return gradients_of(plain);
}

// This rank's own, for comparing bits.
Tensors tiles_of(const Tensors& tensors) {
  Tensors tiles;
  for (const at::Tensor& tensor : tensors) tiles.push_back(to_local(tensor).clone());
  return tiles;
}

void expect_equal(const Tensors& got, const Tensors& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t k = 0; k < want.size(); ++k) {
    EXPECT_EQ(difference(full_tensor(got[k]), want[k]), "") << k;
  }
}

// A replicated network, and a pass of it.
struct Replicas {
  Replicas(const World& world, const ReplicateOptions& options)
      : mesh(world.mesh({{"dp", world.size()}})) {
    replicate(network, mesh, options);
  }
  at::Tensor batch() const { return shard_batch(samples(), mesh); }
  void pass() { network.loss(batch()).backward(); }
  void zero_grad() { network.zero_grad(); }

  DeviceMesh mesh;
  Network network;
};

// Over the data axis.
std::vector<CommEntry> reductions_in(const CommLog& log) {
  std::vector<CommEntry> reductions;
  for (const CommEntry& entry : log.entries()) {
    if (entry.kind == CommKind::AllReduce && entry.op == "gradient of a leaf") {
      reductions.push_back(entry);
    }
  }
  return reductions;
}

void on_ranks(std::initializer_list<int> numbers_of_ranks,
              const std::function<void(World&)>& body) {
  const EnvironmentVariable unchecked("TEGULA_CHECK", "0");  // paranoid mode communicates, too
  for (const int ranks : numbers_of_ranks) run_impatient(ranks, body);
}

TEST(GradientBuckets, GiveTheBitsOfSingleReductionsWhateverTheirSize) {
  const Tensors want = plain_gradients();
  on_ranks({1, 2, 3}, [&](World& world) {
    std::optional<Tensors> alone;
    for (const std::int64_t bytes : {0, 41, 240, 400, 1 << 20}) {
      Replicas replicas(world, {.bucket_bytes = bytes});
      for (int pass = 1; pass <= 2; ++pass) replicas.pass();  // adds up
      for (const at::Tensor& gradient : gradients_of(replicas.network)) gradient.div_(2);
      expect_equal(gradients_of(replicas.network), want);
      const Tensors got = tiles_of(gradients_of(replicas.network));
      if (!alone) alone = got;
      for (std::size_t k = 0; k < got.size(); ++k) EXPECT_TRUE(at::equal(got[k], (*alone)[k]));
    }
  });
}

TEST(GradientBuckets, AreCallsOfAtMostTheirBytes) {
  on_ranks({2, 3}, [](World& world) {
    for (const std::int64_t bytes : {0, 41, 240, 400, 1 << 20}) {
      Replicas replicas(world, {.bucket_bytes = bytes});
      const at::Tensor loss = replicas.network.loss(replicas.batch());
      const CommLog log(world);
      loss.backward();
      std::int64_t tensors = 0;
      std::int64_t all = 0;
      const std::vector<CommEntry> calls = reductions_in(log);
      for (const CommEntry& call : calls) {
        EXPECT_TRUE(call.tensors == 1 || call.bytes <= bytes) << log.to_string();
        tensors += call.tensors;
        all += call.bytes;
      }
      EXPECT_EQ(tensors, static_cast<std::int64_t>(kUsed)) << log.to_string();
      EXPECT_EQ(all, kBytes);
      if (bytes == 0) {
        EXPECT_EQ(calls.size(), kUsed) << log.to_string();
      }
      if (bytes >= kBytes) {
        EXPECT_EQ(calls.size(), 1U) << log.to_string();
      }
      if (bytes == 400) {  // neighbours go together
        EXPECT_LT(calls.size(), kUsed - 2) << log.to_string();
      }
    }
  });
}

TEST(GradientBuckets, AreOfOneGroupAndElementType) {
  on_ranks({4}, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"dp", 2}, {"tp", 2}});
    Network network;
    network.out->to(at::kFloat);
    const auto loss = [&](const at::Tensor& x) {
      return network.out(network.hidden(x).to(at::kFloat)).square().mean();
    };
    parallelize_module(network, mesh["tp"], {{"in", Colwise()}}, kSameOnAllRanks);
    replicate(network, mesh["dp"]);
    const at::Tensor placed = loss(shard_batch(samples(), mesh));
    const CommLog log(world);
    placed.backward();
    std::size_t calls = 0;
    for (const CommEntry& call : reductions_in(log)) calls += call.axis == "dp" ? 1 : 0;
    EXPECT_EQ(calls, 2U) << log.to_string();  // f64 and f32
    Network plain;
    plain.out->to(at::kFloat);
    plain.out(plain.hidden(samples()).to(at::kFloat)).square().mean().backward();
    const Tensors want = gradients_of(plain);
    const Tensors got = gradients_of(network);
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t k = 0; k < want.size(); ++k) {
      EXPECT_EQ(difference(full_tensor(got[k]), want[k], 1e-5), "") << k;
    }
  });
}

TEST(GradientBuckets, AGradientThatIsReadInThePassIsWaitedFor) {
  const Tensors want = plain_gradients();
  on_ranks({2, 3}, [&](World& world) {
    for (const std::int64_t bytes : {0, 300, 1 << 20}) {
      Replicas replicas(world, {.bucket_bytes = bytes});
      const at::Tensor hidden = replicas.network.hidden(replicas.batch());
      bool was_read = false;
      hidden.register_hook([&](const at::Tensor& grad) {
        const at::Tensor bias = replicas.network.out->bias.grad();
        EXPECT_EQ(difference(full_tensor(bias), want[5]), "");
        was_read = true;
        return grad;
      });
      replicas.network.out(hidden).square().mean().backward();
      EXPECT_TRUE(was_read);
      expect_equal(gradients_of(replicas.network), want);
    }
  });
}

TEST(GradientBuckets, AGradientThatOneRankAloneReadsInThePassIsAnErrorOfAll) {
  const Tensors want = plain_gradients();
  on_ranks({2, 3}, [&](World& world) {
    Replicas replicas(world, {});
    const at::Tensor hidden = replicas.network.hidden(replicas.batch());
    hidden.register_hook([&](const at::Tensor& grad) {
      if (world.rank() == 1) to_local(replicas.network.out->bias.grad());
      return grad;
    });
    EXPECT_THROW(replicas.network.out(hidden).square().mean().backward(), CommError);
    world.recover();
    replicas.zero_grad();
    replicas.pass();
    expect_equal(gradients_of(replicas.network), want);
  });
}

// Ranks run one program. If they do not, that is an error where shapes tell.
TEST(GradientBuckets, RanksThatUseOtherParametersAllThrow) {
  const Tensors want = plain_gradients();
  on_ranks({2, 3}, [&](World& world) {
    for (const std::int64_t bytes : {0, 1 << 20}) {
      Replicas replicas(world, {.bucket_bytes = bytes});
      at::Tensor y = replicas.network.out(replicas.network.hidden(replicas.batch()));
      if (world.rank() == 0) y = replicas.network.extra(y);
      EXPECT_THROW(
          {
            y.square().mean().backward();
            world.group().barrier();
          },
          CommError);
      world.recover();
      replicas.zero_grad();
      replicas.pass();
      expect_equal(gradients_of(replicas.network), want);
    }
  });
}

TEST(GradientBuckets, OfAPassThatFailedAreDropped) {
  const Tensors want = plain_gradients();
  on_ranks({2}, [&](World& world) {
    Replicas replicas(world, {.bucket_bytes = 300});
    replicas.pass();
    const at::Tensor first = replicas.network.in(replicas.batch());
    at::Tensor kept;
    first.register_hook([&](const at::Tensor& grad) -> at::Tensor {
      kept = replicas.network.shared->bias.grad();
      if (grad.defined()) throw std::runtime_error("a hook fails on all ranks");
      return grad;
    });
    EXPECT_THROW(replicas.network.shared(first).square().mean().backward(), std::runtime_error);
    expect_equal(gradients_of(replicas.network), want);  // of the first pass
    EXPECT_TRUE(
        contains(error_of([&] { full_tensor(kept); }), "the backward pass that made it failed"));
    replicas.zero_grad();
    replicas.pass();
    expect_equal(gradients_of(replicas.network), want);
  });
}

// A checkpoint runs a pass within the pass.
TEST(GradientBuckets, SeveralGradientsOfALeafInOnePassAddUp) {
  const auto loss = [](Network& network, const at::Tensor& x) {
    const at::Tensor inner = checkpoint(
        [&](const at::Tensor& y) { return at::tanh(network.shared(at::tanh(y))); }, network.in(x));
    return network.out(at::tanh(network.shared(inner))).square().mean();
  };
  Network plain;
  loss(plain, samples()).backward();
  const Tensors want = gradients_of(plain);
  on_ranks({2, 3}, [&](World& world) {
    for (const std::int64_t bytes : {0, 300, 1 << 20}) {
      Replicas replicas(world, {.bucket_bytes = bytes});
      for (int pass = 0; pass < 2; ++pass) loss(replicas.network, replicas.batch()).backward();
      for (const at::Tensor& gradient : gradients_of(replicas.network)) gradient.div_(2);
      expect_equal(gradients_of(replicas.network), want);
    }
  });
}

TEST(GradientBuckets, GradientsThatAreAskedForAreReturned) {
  const Tensors want = plain_gradients();
  on_ranks({2}, [&](World& world) {
    Replicas replicas(world, {});
    replicas.pass();
    const Network& network = replicas.network;
    const auto grads = torch::autograd::grad({replicas.network.loss(replicas.batch())},
                                             {network.in->weight, network.shared->bias});
    EXPECT_EQ(difference(full_tensor(grads[0]), want[0]), "");
    EXPECT_EQ(difference(full_tensor(grads[1]), want[3]), "");
    expect_equal(gradients_of(replicas.network), want);  // what was stored stays
  });
}

struct TwoLeaves : nn::Module {
  TwoLeaves()
      : a(register_parameter("a", numbers({4}, 1))), b(register_parameter("b", numbers({4}, 2))) {}
  at::Tensor a, b;
};

// Both leaves get one and the same tensor.
TEST(GradientBuckets, AGradientOfTwoLeavesIsReducedForEach) {
  TwoLeaves plain;
  at::mul(samples(), plain.a + plain.b).sum().backward();
  on_ranks({2, 3}, [&](World& world) {
    const DeviceMesh mesh = world.mesh({{"dp", world.size()}});
    TwoLeaves ours;
    replicate(ours, mesh);
    at::mul(shard_batch(samples(), mesh), ours.a + ours.b).sum().backward();
    expect_equal(gradients_of(ours), gradients_of(plain));
  });
}

// Over "tp" it is reduced at once, and remembered so.
TEST(GradientBuckets, AGradientOfTwoLeavesThatOwesOverTwoAxesIsReducedForEach) {
  on_ranks({2, 4}, [&](World& world) {
    const DeviceMesh mesh = world.mesh({{"dp", 2}, {"tp", world.size() / 2}});
    const Placements owing = {Partial(ReduceOp::Sum), Partial(ReduceOp::Sum)};
    const at::Tensor mine = numbers({4}, 10 + world.rank());
    const at::Tensor grad = from_local(mine.clone(), mesh, owing);
    const at::Tensor want = full_tensor(grad);
    TwoLeaves ours;
    replicate(ours, mesh["dp"]);
    (ours.a + ours.b).backward(grad);
    expect_equal(gradients_of(ours), {want, want});
    EXPECT_EQ(difference(to_local(grad), mine), "");  // what the user gave is as it was
  });
}

// --- hooks ------------------------------------------------------------------------------------

std::function<void()> sent_as_bf16(const GradientBucket& bucket) {
  const Pending sum = bucket.group.all_reduce_async(bucket.flat.to(at::kBFloat16), ReduceOp::Sum);
  return [sum, flat = bucket.flat] { flat.copy_(sum.wait()); };
}

TEST(BucketHook, ThatSendsBf16GivesWhatThatWireGives) {
  on_ranks({2, 3}, [](World& world) {
    Replicas wired(world, {.wire = at::kBFloat16});
    Replicas hooked(world, {.hook = sent_as_bf16});
    for (int pass = 0; pass < 2; ++pass) {
      wired.pass();
      const CommLog log(world);
      hooked.pass();
      const std::vector<CommEntry> calls = reductions_in(log);
      ASSERT_EQ(calls.size(), 1U) << log.to_string();
      EXPECT_EQ(calls[0].bytes, kBytes / 4);
    }
    const Tensors want = tiles_of(gradients_of(wired.network));
    const Tensors got = tiles_of(gradients_of(hooked.network));
    for (std::size_t k = 0; k < want.size(); ++k) EXPECT_TRUE(at::equal(got[k], want[k])) << k;
    EXPECT_EQ(placements_of(hooked.network.in->weight.grad()), (Placements{Replicate()}));
  });
}

TEST(BucketHook, IsCalledOncePerBucketWithWhatIsInIt) {
  const Tensors want = plain_gradients();
  on_ranks({2, 3}, [&](World& world) {
    for (const std::int64_t bytes : {0, 400, 1 << 20}) {
      std::size_t calls = 0, leaves = 0, ends = 0;
      const BucketHook counting = [&](const GradientBucket& bucket) {
        ++calls;
        leaves += bucket.leaves.size();
        std::int64_t numel = 0;
        for (std::size_t k = 0; k < bucket.leaves.size(); ++k) {
          EXPECT_EQ(bucket.gradients[k].sizes(), bucket.leaves[k].sizes());
          EXPECT_TRUE(bucket.gradients[k].is_alias_of(bucket.flat));
          numel += bucket.gradients[k].numel();
        }
        EXPECT_EQ(bucket.flat.numel(), numel);
        EXPECT_EQ(bucket.group.size(), world.size());
        bucket.group.all_reduce_(bucket.flat, ReduceOp::Sum);  // at once
        return [&ends] { ++ends; };
      };
      Replicas replicas(world, {.bucket_bytes = bytes, .hook = counting});
      {
        const GradientPolicyGuard held(no_sync(replicas.mesh));
        replicas.pass();
      }
      EXPECT_EQ(calls, 0U);
      replicas.pass();  // pays for both
      EXPECT_EQ(leaves, kUsed);
      EXPECT_EQ(ends, calls);
      if (bytes == 0) {
        EXPECT_EQ(calls, kUsed);
      }
      if (bytes >= kBytes) {
        EXPECT_EQ(calls, 1U);
      }
      for (const at::Tensor& gradient : gradients_of(replicas.network)) gradient.div_(2);
      expect_equal(gradients_of(replicas.network), want);
      const auto grads = torch::autograd::grad({replicas.network.loss(replicas.batch())},
                                               {replicas.network.in->weight}, {}, true, true);
      EXPECT_EQ(leaves, kUsed);  // with create_graph reductions are done now
      EXPECT_EQ(difference(full_tensor(grads[0]), want[0]), "");
    }
  });
}

TEST(BucketHook, MayReduceAtOnceAndReturnNothing) {
  const Tensors want = plain_gradients();
  on_ranks({1, 2, 3}, [&](World& world) {
    const BucketHook at_once = [](const GradientBucket& bucket) {
      bucket.group.all_reduce_(bucket.flat, ReduceOp::Sum);
      return nullptr;
    };
    Replicas replicas(world, {.hook = at_once});
    replicas.pass();
    expect_equal(gradients_of(replicas.network), want);
  });
}

// What is left out of a gradient is added to the next one.
TEST(BucketHook, KeepsWhatItLeftOutByLeaf) {
  on_ranks({2}, [](World& world) {
    std::map<c10::TensorImpl*, at::Tensor> left_out;
    const BucketHook largest = [&](const GradientBucket& bucket) {
      for (std::size_t k = 0; k < bucket.leaves.size(); ++k) {
        const at::Tensor& gradient = bucket.gradients[k];
        at::Tensor& rest = left_out[bucket.leaves[k].unsafeGetTensorImpl()];
        const at::Tensor all = rest.defined() ? gradient + rest : gradient.clone();
        const at::Tensor kept = all.abs().ge(all.abs().median());
        gradient.copy_(at::where(kept, all, 0.0));
        rest = at::where(kept, 0.0, all);
      }
      bucket.group.all_reduce_(bucket.flat, ReduceOp::Sum);
      return nullptr;
    };
    Replicas replicas(world, {.bucket_bytes = 300, .hook = largest});
    for (int pass = 0; pass < 3; ++pass) replicas.pass();
    EXPECT_EQ(left_out.size(), kUsed);
    const Tensors want = plain_gradients();
    std::size_t k = 0;
    for (const at::Tensor& parameter : replicas.network.parameters()) {
      if (!parameter.grad().defined()) continue;
      const at::Tensor missing =
          world.group().all_reduce(left_out.at(parameter.unsafeGetTensorImpl()), ReduceOp::Sum);
      EXPECT_EQ(difference(full_tensor(parameter.grad()) + missing, want[k++] * 3), "");
    }
  });
}

TEST(BucketHook, ThatThrowsOnOneRankIsAnErrorOfAllAndTheNextStepIsRight) {
  const Tensors want = plain_gradients();
  enum class Throws { Starting, Ending };
  for (const Throws where : {Throws::Starting, Throws::Ending}) {
    on_ranks({2, 3}, [&](World& world) {
      bool fails = true;
      const auto fail = [&] {
        if (fails && world.rank() == 1) throw std::runtime_error("no room for the compressed form");
      };
      const BucketHook hook = [&](const GradientBucket& bucket) {
        if (where == Throws::Starting) fail();
        return [&, bucket] {
          if (where == Throws::Ending) fail();
          bucket.group.all_reduce_(bucket.flat, ReduceOp::Sum);
        };
      };
      Replicas replicas(world, {.bucket_bytes = 300, .hook = hook});
      const std::string error = error_of([&] { replicas.pass(); });
      EXPECT_TRUE(contains(error, "no room for the compressed form")) << error;
      if (world.rank() != 1) {
        EXPECT_TRUE(contains(error, "the hook of a gradient bucket")) << error;
      }
      for (const at::Tensor& parameter : replicas.network.parameters()) {
        EXPECT_FALSE(parameter.grad().defined());
      }
      world.recover();
      replicas.zero_grad();
      fails = false;
      replicas.pass();
      expect_equal(gradients_of(replicas.network), want);
    });
  }
}

TEST(BucketHook, ThatReadsAGradientOfItsBucketIsAnErrorOfAll) {
  on_ranks({2}, [](World& world) {
    const BucketHook hook = [](const GradientBucket& bucket) {
      full_tensor(bucket.leaves.front().grad());
      return nullptr;
    };
    Replicas replicas(world, {.hook = hook});
    const std::string error = error_of([&] { replicas.pass(); });
    EXPECT_TRUE(contains(error, "reads a gradient that it has to reduce")) << error;
  });
}

TEST(BucketHook, NeedsReductionsThatAreAsync) {
  on_ranks({2}, [](World& world) {
    for (const GradientReduction reduction : {GradientReduction::Now, GradientReduction::Hold}) {
      const std::string error = error_of(
          [&] { Replicas replicas(world, {.reduction = reduction, .hook = sent_as_bf16}); });
      EXPECT_TRUE(contains(error, "a hook on buckets needs gradients that are reduced while"))
          << error;
    }
    EXPECT_TRUE(contains(error_of([&] { Replicas replicas(world, {.bucket_bytes = -1}); }),
                         "cannot have a negative number of bytes"));
  });
}

}  // namespace gradient_buckets_test
}  // namespace tegula
