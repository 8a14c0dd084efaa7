// Where a tensor without storage could disappoint libtorch, one test each: storage, plain tensors,
// composites, operators of others, modes, metadata, strides, conjugation. Autograd's are in
// autograd_test.cpp, those of modules in modules_test.cpp.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <complex>
#include <thread>

#include "tegula/base/error.h"
#include "tegula/comm/comm_log.h"
#include "tegula/families/families.h"
#include "tegula/payload/guards.h"
#include "tegula/tensor/factories.h"
#include "tests/tensor/as_plain.h"

namespace tegula::inner {
namespace outer_tensor_test {

const AsPlain kNoPartial{1e-9, 6, false, false, true};
const AsPlain kNoGradients{1e-9, 4, true, false, false};

at::Tensor whole_numbers(std::initializer_list<std::int64_t> values) {
  return at::tensor(std::vector<std::int64_t>(values), at::TensorOptions(at::kLong));
}

// --- storage

TEST(Storage, PointersIntoADTensorAreRefusedWithAHint) {
  run_impatient(2, [](World& world) {
    const at::Tensor x = ones({4}, usual_mesh(world), {Shard(0)});
    for (const auto& call : std::vector<std::function<void()>>{
             [&] { (void)x.data_ptr(); }, [&] { (void)x.const_data_ptr<float>(); },
             [&] { (void)x.mutable_data_ptr(); }, [&] { (void)x.accessor<float, 1>(); }}) {
      const std::string text = error_of(call);
      EXPECT_TRUE(contains(text, "tegula::full_tensor")) << text;
    }
    EXPECT_FALSE(x.has_storage());
  });
}

TEST(Storage, StrangersAreNoAliases) {
  run_impatient(2, [](World& world) {
    const at::Tensor x = ones({4}, usual_mesh(world), {Shard(0)});
    const at::Tensor y = ones({4}, usual_mesh(world), {Shard(0)});
    bool alias = false;
    error_of([&] { alias = x.is_alias_of(y); });
    EXPECT_FALSE(alias);
    error_of([&] { alias = x.is_alias_of(at::ones({4})); });
    EXPECT_FALSE(alias);
    EXPECT_TRUE(x.is_same(x));
    EXPECT_FALSE(x.is_same(y));
  });
}

TEST(Storage, ADTensorLooksLikeAPlainOne) {
  expect_as_plain({leaf({5, 3})}, [](const Tensors& in) -> Tensors {
    const at::Tensor x = in[0].clone();
    EXPECT_EQ(x.dim(), 2);
    EXPECT_EQ(x.numel(), 15);
    EXPECT_EQ(x.nbytes(), 120u);
    EXPECT_EQ(x.element_size(), 8);
    EXPECT_EQ(x.device().type(), at::kCPU);
    EXPECT_TRUE(x.is_cpu());
    EXPECT_TRUE(x.is_contiguous());
    EXPECT_EQ(x.layout(), at::kStrided);
    EXPECT_TRUE(x.options().type_equal(in[0].options()));
    EXPECT_TRUE(x.is_floating_point());
    EXPECT_FALSE(x.is_complex());
    return {x};
  });
}

TEST(World, AThreadOfTheUserCanUseTheTensorsOfItsRank) {
  run_impatient(3, [](World& world) {
    const at::Tensor plain = numbers({5, 3});
    const at::Tensor x = distribute_tensor(plain, usual_mesh(world), {Shard(0)}).requires_grad_();
    at::Tensor y;
    std::thread([&] {
      y = at::mm(x, x.t()).relu();
      y.sum().backward();
    }).join();
    EXPECT_EQ(difference(full_tensor(y.detach()), plain.mm(plain.t()).relu()), "");
    EXPECT_EQ(to_string(placements_of(x.grad())), "[S(0)]");
  });
}

// --- plain tensors that libtorch makes itself

TEST(PlainTensors, ThoseOfSelectingReductionsAreReplicas) {
  expect_as_plain({leaf({5, 4})}, [](const Tensors& in) -> Tensors {
    const auto [max, where_max] = in[0].max(0);
    const auto [min, where_min] = in[0].min(1, true);
    const auto [median, where_median] = in[0].median(0);
    const auto [third, where_third] = in[0].kthvalue(3, 0);
    const auto [mode, where_mode] = in[0].round().mode(0);
    return {max,          where_max, min,         where_min, median,
            where_median, third,     where_third, mode,      in[0].amax(0)};
  });
}

TEST(PlainTensors, ThoseOfSortsAndScansAreReplicas) {
  expect_as_plain({leaf({5, 4})}, [](const Tensors& in) -> Tensors {
    const auto [sorted, order] = in[0].sort(0);
    const auto [stable, stable_order] = in[0].sort(/*stable=*/true, 1, /*descending=*/true);
    const auto [top, where] = in[0].topk(2, 0);
    const auto [highest, reached] = in[0].cummax(0);
    const auto [lowest, fallen] = in[0].cummin(1);
    return {sorted,
            order,
            stable,
            stable_order,
            top,
            where,
            highest,
            lowest,
            fallen,
            in[0].argsort(std::int64_t{0}),
            reached,
            in[0].logcumsumexp(0),
            in[0].cumprod(1),
            in[0].msort()};
  });
}

TEST(PlainTensors, ThoseOfQuantilesAndTracesAreReplicas) {
  expect_as_plain({leaf({5, 5})}, [](const Tensors& in) -> Tensors {
    return {at::quantile(in[0], 0.3, 0),
            at::nanquantile(in[0], 0.7),
            at::trace(in[0]),
            at::tril(in[0]),
            at::triu(in[0], 1),
            at::diag(in[0]),
            in[0].nanmedian(),
            in[0].renorm(2, 0, 0.5)};
  });
}

TEST(PlainTensors, ThoseOfIndexingAreReplicas) {
  expect_as_plain({leaf({5, 4}), leaf({3, 4}, 2), whole_numbers({4, 0, 4})},
                  [](const Tensors& in) -> Tensors {
                    const at::Tensor rows = in[2].unsqueeze(1).expand({3, 4});
                    return {in[0].index_put({in[2]}, in[1], /*accumulate=*/true),
                            in[0].index({in[2]}),
                            in[0].index_select(0, in[2]),
                            in[0].gather(0, rows),
                            in[0].scatter_add(0, rows, in[1]),
                            in[0].index_add(0, in[2], in[1], 2),
                            in[0].take(in[2]),
                            in[0].repeat_interleave(2, 0),
                            in[0].masked_select(in[0] > 0),
                            in[0].index({in[0] > 0}),
                            at::where(in[0] > 0, in[0], in[0] * 2),
                            at::nonzero(in[0] > 0)};
                  },
                  {1e-9, 4, false, false, true});
}

TEST(PlainTensors, ThoseOfAttentionAreReplicas) {
  const at::Tensor mask = at::ones({5, 5}, at::kBool).tril();
  expect_as_plain(
      {leaf({2, 3, 5, 4}), leaf({2, 3, 5, 4}, 2), leaf({2, 3, 5, 4}, 3), mask},
      [](const Tensors& in) -> Tensors {
        return {at::scaled_dot_product_attention(in[0], in[1], in[2], in[3]),
                at::scaled_dot_product_attention(in[0], in[1], in[2], {}, 0, true),
                at::scaled_dot_product_attention(in[0], in[1], in[2])};
      },
      kNoPartial);
}

TEST(PlainTensors, ThoseOfRecurrentNetworksAreReplicas) {
  expect_as_plain({leaf({4, 3, 2}), leaf({1, 3, 5}, 2), leaf({1, 3, 5}, 3), leaf({20, 2}, 4),
                   leaf({20, 5}, 5), leaf({20}, 6), leaf({20}, 7)},
                  [](const Tensors& in) -> Tensors {
                    const auto [out, h, c] =
                        at::lstm(in[0], {in[1], in[2]}, {in[3], in[4], in[5], in[6]}, true, 1, 0,
                                 false, false, false);
                    return {out, h, c};
                  },
                  {1e-9, 2, false, false, true});
}

TEST(PlainTensors, LargeOnesOfTheUserAreRefusedWithAHint) {
  run_impatient(3, [](World& world) {
    const at::Tensor x = ones({40, 40}, usual_mesh(world), {Shard(0)});
    const at::Tensor plain = at::ones({40, 40});
    const at::Tensor index = at::zeros({600}, at::kLong);
    for (const auto& call : std::vector<std::function<void()>>{
             [&] { x + plain; }, [&] { plain + x; }, [&] { at::mm(x, plain); },
             [&] { at::linear(x, plain); }, [&] { at::cat({x, plain}); },
             [&] { at::stack({plain, x}); }, [&] { x.index({index}); },
             [&] { x.index_select(0, index); }, [&] { x.clone().copy_(plain); },
             [&] { x.clone().add_(plain); }, [&] { plain.clone().add_(x); },
             [&] { at::where(x > 0, plain, x); }, [&] { at::einsum("ij,jk->ik", {x, plain}); },
             [&] { at::mse_loss(x, plain); }, [&] { at::matmul(plain, x); }}) {
      const std::string text = error_of(call);
      EXPECT_TRUE(contains(text, "plain Float[40, 40]") || contains(text, "plain Long[600]"))
          << text;
      EXPECT_TRUE(contains(text, "tegula::ImplicitReplication")) << text;
      EXPECT_TRUE(contains(text, "f32[40, 40] on (a=3) as [S(0)]")) << text;
    }
  });
}

TEST(PlainTensors, ThoseOfTheUserAreReplicasUnderTheGuard) {
  run_impatient(3, [](World& world) {
    const at::Tensor plain = numbers({4, 4});
    const at::Tensor other = numbers({4, 4}, 2);
    const at::Tensor index = whole_numbers({1, 3});
    const at::Tensor x = distribute_tensor(plain, usual_mesh(world), {Shard(0)});
    const ImplicitReplication outer;
    const auto check = [&] {
      EXPECT_EQ(difference(full_tensor(x + other), plain + other), "");
      EXPECT_EQ(difference(full_tensor(at::mm(other, x)), other.mm(plain)), "");
      EXPECT_EQ(difference(full_tensor(at::cat({x, other}, 1)), at::cat({plain, other}, 1)), "");
      EXPECT_EQ(difference(full_tensor(x.index({index})), plain.index({index})), "");
      EXPECT_EQ(difference(full_tensor(x.clone().copy_(other)), other), "");
      EXPECT_EQ(difference(full_tensor(at::linear(x, other)), at::linear(plain, other)), "");
    };
    check();
    {
      const ImplicitReplication inner;
      check();
    }
    check();
  });
}

TEST(PlainTensors, OneWithoutDimsIsAlwaysAReplica) {
  expect_as_plain({leaf({5, 3})}, [](const Tensors& in) -> Tensors {
    const at::Tensor two = at::scalar_tensor(2.0, at::kDouble);
    return {in[0] * two, two - in[0], at::where(in[0] > 0, in[0], two), in[0].clamp_max(0.5),
            at::pow(two, in[0])};
  });
}

TEST(PlainTensors, AWriteIntoAPlainTensorIsNeverLost) {
  run_impatient(2, [](World& world) {
    const at::Tensor x = ones({4}, usual_mesh(world), {Shard(0)});
    const at::Tensor plain = at::zeros({4});
    const ImplicitReplication guard;
    plain.copy_(x);
    EXPECT_EQ(difference(plain, at::ones({4})), "");
    plain.add_(x);
    EXPECT_EQ(difference(plain, at::full({4}, 2.0f)), "");
    at::Tensor out = at::empty({4});
    at::add_out(out, x, x);
    EXPECT_EQ(difference(out, at::full({4}, 2.0f)), "");
  });
}

TEST(PlainTensors, AGradientThatIsAskedForStaysWithAPlainLeafUnderTheGuard) {
  run_impatient(3, [](World& world) {
    const at::Tensor plain = numbers({4, 4});
    const at::Tensor weight = leaf({4, 4}, 2);
    const at::Tensor x = distribute_tensor(plain, usual_mesh(world), {Shard(0)});
    const ImplicitReplication guard;
    at::mm(x, weight).sin().sum().backward();
    const at::Tensor want = leaf({4, 4}, 2);
    at::mm(plain, want).sin().sum().backward();
    ASSERT_TRUE(weight.grad().defined());
    const at::Tensor got = is_dtensor(weight.grad()) ? full_tensor(weight.grad()) : weight.grad();
    EXPECT_EQ(difference(got, want.grad()), "");
  });
}

// --- composite-explicit kernels

TEST(Composites, ExplicitOnesGiveDTensorsWithGradients) {
  expect_as_plain({leaf({5, 3}), leaf({5, 3}, 2)}, [](const Tensors& in) -> Tensors {
    return {at::sub(in[0], in[1], 2),
            in[0].cumsum(0),
            in[0].cumsum(1),
            in[0].logsumexp(0),
            in[0].repeat({2, 3}),
            in[0].clone().sub_(in[1]),
            at::diag_embed(in[0]),
            at::rsub(in[0], 3),
            in[0].roll(2, 0),
            in[0].flip(0),
            in[0].rot90(),
            in[0].tile({2}),
            in[0].logit(1e-3),
            in[0].xlogy(in[1].abs()),
            at::addcmul(in[0], in[0], in[1]),
            in[0].lerp(in[1], 0.3),
            in[0].sum_to_size({1, 3})};
  });
}

TEST(Composites, ThoseThatMatterOnCutDimsAreRight) {
  expect_as_plain({leaf({5, 4}), leaf({3, 4}, 2)}, [](const Tensors& in) -> Tensors {
    return {at::softmax(in[0], 0),
            at::log_softmax(in[0], 1),
            at::cat({in[0], in[1]}),
            at::cdist(in[0], in[1]),
            at::layer_norm(in[0], {4}),
            at::matmul(in[0], in[1].t()),
            in[0].norm(2, 0),
            at::pad(in[0], {1, 2, 0, 1}),
            in[0].unfold(0, 3, 2),
            at::kron(in[0], in[1]),
            at::tensordot(in[0], in[1], {1}, {1}),
            at::einsum("ij,kj->ik", {in[0], in[1]})};
  });
}

// --- operators of others

at::Tensor twice(const at::Tensor& x) {
  EXPECT_FALSE(is_dtensor(x));  // a kernel for the CPU sees what lies in memory
  at::Tensor result = x.contiguous().clone();
  for (std::int64_t i = 0; i < result.numel(); ++i) result.data_ptr<double>()[i] *= 2;
  return result;
}

at::Tensor sine_of_twice(const at::Tensor& x) { return (x * 2).sin(); }

struct Tripled : torch::autograd::Function<Tripled> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) {
    const at::AutoDispatchBelowAutograd below;
    static const auto op = c10::Dispatcher::singleton()
                               .findSchemaOrThrow("tegula_traps::triple", "")
                               .typed<at::Tensor(const at::Tensor&)>();
    return op.call(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list grads) {
    return {grads[0] * 3};
  }
};

at::Tensor triple(const at::Tensor& x) { return x * 3; }
at::Tensor triple_with_gradient(const at::Tensor& x) { return Tripled::apply(x); }

at::Tensor call_op(const char* name, const at::Tensor& x) {
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow(name, "")
      .typed<at::Tensor(const at::Tensor&)>()
      .call(x);
}

void make_a_dtensor() {
  run_impatient(2, [](World& world) { ones({2}, usual_mesh(world), {Shard(0)}).sum(); });
}

TEST(LaterOperators, AKernelForTheCPUIsRight) {
  make_a_dtensor();
  torch::Library library(torch::Library::DEF, "tegula_traps", std::nullopt, __FILE__, __LINE__);
  library.def("twice(Tensor x) -> Tensor");
  library.impl("twice", torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(twice)));
  expect_as_plain(
      {numbers({5, 3})},
      [](const Tensors& in) -> Tensors { return {call_op("tegula_traps::twice", in[0])}; },
      kNoGradients);
}

TEST(LaterOperators, ACompositeExplicitKernelIsRight) {
  make_a_dtensor();
  torch::Library library(torch::Library::DEF, "tegula_traps", std::nullopt, __FILE__, __LINE__);
  library.def("explicit(Tensor x) -> Tensor");
  library.impl("explicit", torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd,
                                           TORCH_FN(sine_of_twice)));
  expect_as_plain(
      {numbers({5, 3})},
      [](const Tensors& in) -> Tensors { return {call_op("tegula_traps::explicit", in[0])}; },
      kNoGradients);
}

TEST(LaterOperators, ACompositeImplicitKernelIsRightWithGradients) {
  make_a_dtensor();
  torch::Library library(torch::Library::DEF, "tegula_traps", std::nullopt, __FILE__, __LINE__);
  library.def("implicit(Tensor x) -> Tensor", TORCH_FN(sine_of_twice));
  expect_as_plain({leaf({5, 3})}, [](const Tensors& in) -> Tensors {
    return {call_op("tegula_traps::implicit", in[0])};
  });
}

TEST(LaterOperators, AGradientOfTheirOwnIsUsed) {
  make_a_dtensor();
  torch::Library library(torch::Library::DEF, "tegula_traps", std::nullopt, __FILE__, __LINE__);
  library.def("triple(Tensor x) -> Tensor");
  library.impl("triple", torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(triple)));
  library.impl("triple",
               torch::dispatch(c10::DispatchKey::Autograd, TORCH_FN(triple_with_gradient)));
  expect_as_plain({leaf({5, 3})}, [](const Tensors& in) -> Tensors {
    return {call_op("tegula_traps::triple", in[0] * in[0])};
  });
}

TEST(LaterOperators, OneWithoutAGradientDoesNotDropItSilently) {
  make_a_dtensor();
  torch::Library library(torch::Library::DEF, "tegula_traps", std::nullopt, __FILE__, __LINE__);
  library.def("twice(Tensor x) -> Tensor");
  library.impl("twice", torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(twice)));
  const at::Tensor plain = call_op("tegula_traps::twice", leaf({4}));
  run_impatient(2, [&](World& world) {
    const at::Tensor x =
        distribute_tensor(numbers({4}), usual_mesh(world), {Shard(0)}).requires_grad_();
    EXPECT_EQ(call_op("tegula_traps::twice", x).requires_grad(), plain.requires_grad());
  });
}

TEST(LaterOperators, ThoseRegisteredAfterTheLastDTensorWasMadeAreClaimedOnRequest) {
  std::unique_ptr<torch::Library> library;
  run_impatient(3, [&](World& world) {
    const at::Tensor plain = numbers({5});
    const at::Tensor x = distribute_tensor(plain, usual_mesh(world), {Shard(0)});
    world.group().barrier();
    if (world.rank() == 0) {
      library = std::make_unique<torch::Library>(torch::Library::DEF, "tegula_traps", std::nullopt,
                                                 __FILE__, __LINE__);
      library->def("late(Tensor x) -> Tensor");
      library->impl("late", torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(twice)));
    }
    world.group().barrier();
    claim_operators();
    EXPECT_EQ(difference(full_tensor(call_op("tegula_traps::late", x)), plain * 2), "");
    world.group().barrier();
  });
}

TEST(LaterOperators, TheirReturnWithTheirLibraryIsNoTrouble) {
  for (int round = 0; round < 3; ++round) {
    make_a_dtensor();
    torch::Library library(torch::Library::DEF, "tegula_traps", std::nullopt, __FILE__, __LINE__);
    library.def("again(Tensor x) -> Tensor");
    library.impl("again", torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(twice)));
    run_impatient(2, [&](World& world) {
      const at::Tensor x = distribute_tensor(numbers({4}), usual_mesh(world), {Shard(0)});
      EXPECT_EQ(difference(full_tensor(call_op("tegula_traps::again", x)), numbers({4}) * 2), "");
    });
  }
}

// --- modes

TEST(InferenceMode, OpsAndViewsOfNormalTensorsWork) {
  const at::Tensor plain = numbers({5, 4});
  const at::Tensor other = numbers({3, 4}, 2);
  run_impatient(3, [&](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor weight = distribute_tensor(plain, mesh, {Shard(0)}).requires_grad_();
    const c10::InferenceMode mode;
    const at::Tensor x = distribute_tensor(other, mesh, {Shard(1)});
    EXPECT_TRUE(x.is_inference());
    const at::Tensor y = at::linear(x, weight);
    EXPECT_FALSE(y.requires_grad());
    EXPECT_EQ(difference(full_tensor(y), at::linear(other, plain)), "");
    EXPECT_EQ(difference(full_tensor(weight.t().reshape({2, 10})), plain.t().reshape({2, 10})), "");
    EXPECT_EQ(difference(full_tensor(weight[1]), plain[1]), "");
    EXPECT_EQ(difference(full_tensor(weight.slice(0, 1, 4)), plain.slice(0, 1, 4)), "");
    EXPECT_EQ(difference(full_tensor(x.slice(1, 0, 2).mul_(2)), other.slice(1, 0, 2) * 2), "");
    EXPECT_EQ(difference(full_tensor(x.view({4, 3}).unsqueeze(0)),
                         at::cat({other.slice(1, 0, 2) * 2, other.slice(1, 2)}, 1).view({1, 4, 3})),
              "");
    EXPECT_EQ(difference(to_local(redistribute(x, {Replicate()})), full_tensor(x)), "");
  });
}

TEST(InferenceMode, TensorsMadeInItCanBeUsedOutside) {
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    at::Tensor x;
    {
      const c10::InferenceMode mode;
      x = distribute_tensor(numbers({5}), mesh, {Shard(0)}) * 2;
    }
    EXPECT_EQ(difference(full_tensor(x + 1), numbers({5}) * 2 + 1), "");
    EXPECT_EQ(difference(to_local(x.slice(0, 0, 5)), to_local(x)), "");
  });
}

class AutocastOn {
 public:
  AutocastOn() {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    // the cache is one for all threads: which rank finds a weight there is a matter of chance
    at::autocast::set_autocast_cache_enabled(false);
  }
  ~AutocastOn() {
    at::autocast::set_autocast_cache_enabled(true);
    at::autocast::set_autocast_enabled(at::kCPU, false);
  }
};

TEST(Autocast, ProductsAreInBFloat16AndGradientsInFloat32) {
  expect_as_plain({numbers({5, 4}).to(at::kFloat).requires_grad_(),
                   numbers({6, 4}, 2).to(at::kFloat).requires_grad_(),
                   numbers({6}, 3).to(at::kFloat).requires_grad_()},
                  [](const Tensors& in) -> Tensors {
                    const AutocastOn autocast;
                    const at::Tensor y = at::linear(in[0], in[1], in[2]);
                    EXPECT_EQ(y.scalar_type(), at::kBFloat16);
                    const at::Tensor z = at::softmax(at::matmul(y, y.t()), -1);
                    return {y, z};
                  },
                  {5e-2, 4, false, false, true});
}

TEST(Modes, MetaTensorsBesideDTensorsAreRefused) {
  run_impatient(2, [](World& world) {
    const at::Tensor x = ones({4}, usual_mesh(world), {Shard(0)});
    const at::Tensor meta = at::empty({4}, at::TensorOptions(at::kMeta));
    EXPECT_NE(error_of([&] { x + meta; }), "nothing was thrown");
    const ImplicitReplication guard;
    EXPECT_NE(error_of([&] { x + meta; }), "nothing was thrown");
  });
}

// --- metadata in place

TEST(MetadataInPlace, TheGeometryFollows) {
  expect_as_plain({leaf({5, 1, 4})}, [](const Tensors& in) -> Tensors {
    const at::Tensor a = in[0].clone();
    a.squeeze_();
    const at::Tensor b = in[0].clone();
    b.squeeze_(1).unsqueeze_(0);
    const at::Tensor c = in[0].clone();
    c.transpose_(0, 2);
    const at::Tensor d = in[0].squeeze(1).clone();
    d.t_();
    const at::Tensor e = in[0].clone();
    e.swapdims_(0, 1).mul_(2);
    return {a, a * 2, b, b.sum(1), c, c.sum(0), d, at::matmul(d, d.t()), e};
  });
}

TEST(MetadataInPlace, AWriteAfterItLands) {
  expect_as_plain({leaf({5, 4})}, [](const Tensors& in) -> Tensors {
    const at::Tensor x = in[0].clone();
    x.t_();
    x[1].fill_(3);
    x.unsqueeze_(1);
    x.slice(2, 1, 4).mul_(2);
    return {x};
  });
}

TEST(MetadataInPlace, ResizeKeepsWhatFits) {
  for (const int ranks : {2, 3, 4}) {
    run_impatient(ranks, [](World& world) {
      const DeviceMesh mesh = usual_mesh(world);
      for (const Placement& placement : {Placement(Shard(0)), Placement(Replicate())}) {
        const at::Tensor plain = numbers({5, 4});
        const at::Tensor x = distribute_tensor(plain, mesh, Placements(mesh.ndim(), placement));
        x.resize_({2, 3});
        EXPECT_EQ(difference(full_tensor(x), plain.clone().resize_({2, 3})), "");
        x.resize_({7, 2});
        EXPECT_EQ(x.sizes(), at::IntArrayRef({7, 2}));
        EXPECT_EQ(difference(full_tensor(x.fill_(3)), at::full({7, 2}, 3.0, at::kDouble)), "");
      }
    });
  }
}

TEST(MetadataInPlace, AnOutTensorIsResized) {
  run_impatient(3, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor plain = numbers({5, 4});
    const at::Tensor x = distribute_tensor(plain, mesh, {Shard(0)});
    at::Tensor out = empty({0}, mesh, {Shard(0)}, at::kDouble);
    at::add_out(out, x, x);
    EXPECT_EQ(out.sizes(), at::IntArrayRef({5, 4}));
    EXPECT_EQ(difference(full_tensor(out), plain * 2), "");
    at::Tensor sum = empty({0}, mesh, {Replicate()}, at::kDouble);
    at::sum_out(sum, x, 0);
    EXPECT_EQ(difference(full_tensor(sum * 1), plain.sum(0)), "");
    at::Tensor values = empty({0}, mesh, {Replicate()}, at::kDouble);
    at::Tensor indices = empty({0}, mesh, {Replicate()}, at::kLong);
    at::max_out(values, indices, x, 0);
    EXPECT_EQ(difference(full_tensor(values), std::get<0>(plain.max(0))), "");
    EXPECT_EQ(difference(full_tensor(indices), std::get<1>(plain.max(0))), "");
  });
}

TEST(MetadataInPlace, SetTakesOverATensorAndRefusesAStorage) {
  run_impatient(3, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor x = zeros({2}, mesh, {Replicate()}, at::kDouble);
    const at::Tensor y = distribute_tensor(numbers({5, 4}), mesh, {Shard(0)});
    x.set_(y);
    EXPECT_EQ(x.sizes(), y.sizes());
    EXPECT_EQ(difference(full_tensor(x), numbers({5, 4})), "");
    x.fill_(1);
    EXPECT_EQ(difference(full_tensor(y), at::ones({5, 4}, at::kDouble)), "");
    const std::string text = error_of([&] { x.set_(at::ones({3}).storage()); });
    EXPECT_TRUE(contains(text, "cannot be given a storage")) << text;
  });
}

TEST(MetadataInPlace, DetachInPlaceEndsTheHistory) {
  run_impatient(2, [](World& world) {
    const at::Tensor x =
        distribute_tensor(numbers({4}), usual_mesh(world), {Shard(0)}).requires_grad_();
    const at::Tensor y = x * 2;
    y.detach_();
    EXPECT_FALSE(y.requires_grad());
    EXPECT_EQ(difference(full_tensor(y), numbers({4}) * 2), "");
  });
}

// --- strides

TEST(Strides, AreThoseOfThePlainResult) {
  const at::Tensor plain = numbers({4, 6, 5});
  for (const int ranks : {2, 3, 4}) {
    run_impatient(ranks, [&](World& world) {
      const DeviceMesh mesh = usual_mesh(world);
      for (const std::int64_t cut : {0, 1, 2}) {
        const at::Tensor x = distribute_tensor(plain, mesh, Placements(mesh.ndim(), Shard(cut)));
        const auto check = [&](const std::function<at::Tensor(const at::Tensor&)>& f) {
          EXPECT_EQ(f(x).strides(), f(plain).strides());
          EXPECT_EQ(f(x).is_contiguous(), f(plain).is_contiguous());
          EXPECT_EQ(difference(full_tensor(f(x)), f(plain)), "");
        };
        check([](const at::Tensor& t) { return t.permute({2, 0, 1}); });
        check([](const at::Tensor& t) { return t.permute({2, 0, 1}).contiguous(); });
        check([](const at::Tensor& t) { return t.permute({2, 0, 1}) * 2; });
        check([](const at::Tensor& t) { return t.permute({2, 0, 1}).clone(); });
        check([](const at::Tensor& t) { return t.transpose(0, 1).reshape({6, 20}); });
        check([](const at::Tensor& t) { return t.slice(1, 1, 6, 2); });
        check([](const at::Tensor& t) { return t.slice(1, 1, 6, 2).reshape({12, 5}); });
        check([](const at::Tensor& t) { return t.unsqueeze(1).expand({4, 3, 6, 5}); });
        check([](const at::Tensor& t) { return t.view({2, 12, 5}).transpose(1, 2); });
        check([](const at::Tensor& t) {
          return t.unsqueeze(0).contiguous(at::MemoryFormat::ChannelsLast);
        });
      }
    });
  }
}

TEST(Strides, AreThoseOfTheLocals) {
  run_impatient(3, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor local = numbers({4, 2}, static_cast<std::uint64_t>(world.rank() + 1)).t();
    const at::Tensor x = from_local(local, mesh, {Shard(0)});
    EXPECT_EQ(x.sizes(), at::IntArrayRef({6, 4}));
    EXPECT_EQ(difference(to_local(x), local), "");
    EXPECT_EQ(x.strides(), at::IntArrayRef({1, 6}));
    EXPECT_EQ(to_local(x).const_data_ptr(), local.const_data_ptr());
    EXPECT_EQ(difference(full_tensor(x.t().view({24})), full_tensor(x).t().reshape({24})), "");
    EXPECT_EQ(difference(full_tensor(x.reshape({3, 8})), full_tensor(x).reshape({3, 8})), "");
  });
}

TEST(Strides, AViewAfterReplicasWereCutIsAView) {
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor plain = numbers({4, 6});
    const at::Tensor x = redistribute(distribute_tensor(plain, mesh, {Replicate()}), {Shard(1)});
    x.view({24}).slice(0, 3, 20).mul_(2);
    x.view({2, 2, 6}).select(1, 1).add_(1);
    const at::Tensor want = plain.clone();
    want.view({24}).slice(0, 3, 20).mul_(2);
    want.view({2, 2, 6}).select(1, 1).add_(1);
    EXPECT_EQ(difference(full_tensor(x), want), "");
  });
}

TEST(Strides, AsStridedReadsAndWritesTheWhole) {
  expect_as_plain(
      {numbers({4, 6})},
      [](const Tensors& in) -> Tensors {
        const at::Tensor x = in[0].clone();
        const at::Tensor view = x.as_strided({3, 2}, {6, 2}, 1);
        view.mul_(3);
        return {x, view};
      },
      kNoGradients);
}

TEST(Strides, AsStridedByTheTensorsOwnStridesKeepsItsCut) {
  run_ranks(2, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"x", 2}});
    const at::Tensor x = distribute_tensor(numbers({4, 6}), mesh, {Shard(0)});
    const CommLog log(world);
    const at::Tensor same = x.as_strided(x.sizes(), x.strides(), x.storage_offset());
    EXPECT_EQ(placements_of(same), (Placements{Shard(0)}));
    same.mul_(2);
    EXPECT_TRUE(log.empty());
    EXPECT_EQ(difference(full_tensor(x), numbers({4, 6}) * 2), "");
  });
}

// --- calls that differ in a scalar

TEST(Scalars, CallsThatDifferInAScalarOnlyAreNotConfused) {
  expect_as_plain({leaf({5, 3})},
                  [](const Tensors& in) -> Tensors {
                    Tensors results;
                    for (const double factor : {1.0, 2.0, -1.0, 0.5}) {
                      results.push_back(in[0].mul(factor).add(in[0], factor).pow(2 + factor));
                      results.push_back(at::leaky_relu(in[0], factor));
                    }
                    for (const std::int64_t dim : {0, 1}) results.push_back(in[0].sum(dim));
                    results.push_back(in[0].to(at::kFloat).to(at::kDouble));
                    results.push_back(in[0].mul(2));
                    results.push_back(in[0].to(at::kLong).mul(2));
                    results.push_back(in[0].to(at::kLong).mul(2.5));
                    return results;
                  },
                  {1e-5, 3, true, false, true});
}

// --- conjugate and negative views

at::Tensor complex_leaf(at::IntArrayRef shape) {
  return at::complex(numbers(shape), numbers(shape, 2)).detach().requires_grad_();
}

TEST(Conjugates, LazyOnesAreRight) {
  expect_as_plain({complex_leaf({5, 3})}, [](const Tensors& in) -> Tensors {
    const at::Tensor c = in[0].conj();
    return {c.resolve_conj(),
            c * 2,
            c + in[0],
            at::imag(c).clone(),
            at::real(c).clone(),
            at::imag(c) * 2,
            at::view_as_real(in[0]).clone(),
            at::matmul(in[0].t(), c),
            c.abs(),
            c.mH().clone(),
            c.conj().clone(),
            c.slice(0, 1, 4).clone()};
  });
}

TEST(Conjugates, ResultsThatAreLazyStayRight) {
  expect_as_plain({complex_leaf({5, 3})}, [](const Tensors& in) -> Tensors {
    return {in[0].conj(), at::imag(in[0].conj()), in[0].t().conj(), in[0].conj().slice(0, 0, 3)};
  });
}

TEST(Conjugates, AWriteThroughOneLands) {
  expect_as_plain({complex_leaf({5, 3})}, [](const Tensors& in) -> Tensors {
    const at::Tensor x = in[0].clone();
    x.conj().mul_(c10::complex<double>(0, 1));
    at::imag(x).mul_(2);
    at::view_as_real(x).select(2, 0).add_(1);
    return {x};
  });
}

TEST(Conjugates, FourierTransformsHaveGradients) {
  expect_as_plain({leaf({5, 6}), complex_leaf({5, 6})}, [](const Tensors& in) -> Tensors {
    return {at::fft_fft(in[0]),   at::fft_rfft(in[0]), at::fft_irfft(in[1]),   at::fft_hfft(in[1]),
            at::fft_ihfft(in[0]), at::fft_fft2(in[1]), at::fft_fftshift(in[0])};
  });
}

}  // namespace outer_tensor_test
}  // namespace tegula::inner
