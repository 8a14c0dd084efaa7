// Writes to memory that an op reads by another name, or that is several elements at once: refused
// as libtorch refuses them, on all ranks alike, also where only some ranks' tiles overlap.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tegula/payload/guards.h"
#include "tegula/tensor/factories.h"
#include "tests/tensor/as_plain.h"

namespace tegula {
namespace overlaps_test {

// libtorch has some for writes to expanded tensors.
struct NoWarnings : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

// On 3 ranks: what the program does with a tensor, placed in all of these ways, is what it does
// with a plain one: the same values are left in the tensor, or it is refused.
void expect_as_plain_memory(const at::Tensor& plain,
                            const std::function<void(const at::Tensor& tensor)>& program) {
  run_impatient(3, [&](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const ImplicitReplication plain_indices;
    NoWarnings quiet;
    const c10::WarningUtils::WarningHandlerGuard handler(&quiet);
    const at::Tensor expected = plain.clone();
    const bool is_refused = error_of([&] { program(expected); }) != "nothing was thrown";
    for (const Placement& placement : Placements{Replicate(), Shard(0), Shard(-1)}) {
      for (int round = 0; round < 2; ++round) {  // a new kind of call, then a known one
        const at::Tensor tensor = distribute_tensor(plain, mesh, {placement});
        const std::string text = error_of([&] { program(tensor); });
        EXPECT_EQ(text != "nothing was thrown", is_refused) << to_string(placement) << ": " << text;
        if (!is_refused) {
          EXPECT_EQ(difference(full_tensor(tensor), expected), "") << to_string(placement);
        }
      }
    }
  });
}

TEST(Overlaps, AWriteToWhatIsReadByAnotherNameIsRefused) {
  const at::Tensor five = numbers({5});
  expect_as_plain_memory(five, [](const at::Tensor& a) { a.slice(0, 1).add_(a.slice(0, 0, -1)); });
  expect_as_plain_memory(five, [](const at::Tensor& a) { a.slice(0, 1).copy_(a.slice(0, 0, -1)); });
  expect_as_plain_memory(five, [](const at::Tensor& a) { a.mul_(a[2]); });
  expect_as_plain_memory(five, [](const at::Tensor& a) {
    at::Tensor out = a.slice(0, 1);
    at::exp_out(out, a.slice(0, 0, -1));
  });
  const at::Tensor square = numbers({4, 4});
  expect_as_plain_memory(square, [](const at::Tensor& a) { a.add_(a.t()); });
  expect_as_plain_memory(square, [](const at::Tensor& a) { a.detach().add_(a.t()); });
  expect_as_plain_memory(square,
                         [](const at::Tensor& a) { a.narrow(0, 0, 3).sub_(a.narrow(0, 1, 3)); });
  expect_as_plain_memory(square, [](const at::Tensor& a) {
    a.index_add_(0, at::tensor({0, 1}, at::kLong), a.narrow(0, 0, 2));
  });
}

TEST(Overlaps, AWriteToWhatIsReadByTheSameNameIsFine) {
  const at::Tensor square = numbers({4, 4});
  expect_as_plain_memory(square, [](const at::Tensor& a) { a.add_(a); });
  expect_as_plain_memory(square, [](const at::Tensor& a) { a.add_(a.alias()); });
  expect_as_plain_memory(square,
                         [](const at::Tensor& a) { a.narrow(0, 0, 2).add_(a.narrow(0, 2, 2)); });
  expect_as_plain_memory(square, [](const at::Tensor& a) { a.fill_(a[1][1]); });
  expect_as_plain_memory(square, [](const at::Tensor& a) { a.masked_fill_(a > 0, a[0][0]); });
}

TEST(Overlaps, TheErrorNamesTheOpAndTheOperands) {
  run_impatient(2, [](World& world) {
    const at::Tensor a = distribute_tensor(numbers({5}), usual_mesh(world), {Shard(0)});
    const std::string text = error_of([&] { a.slice(0, 1).add_(a.slice(0, 0, -1)); });
    EXPECT_EQ(text,
              "tegula: an op cannot write a tensor that lies partly where another operand does\n"
              "  op      aten::add_.Tensor\n"
              "  written f64[4] on (a=2) as [S(0)]\n"
              "  read    f64[4] on (a=2) as [S(0, sizes=[3, 1])]\n"
              "  hint    clone() the operand first");
  });
}

TEST(Overlaps, AnExpandedTensorIsWrittenWhereAPlainOneIs) {
  const at::Tensor row = numbers({1, 4});
  const auto expect = [&](const std::function<void(const at::Tensor& expanded)>& write) {
    expect_as_plain_memory(row, [&](const at::Tensor& a) { write(a.expand({3, 4})); });
  };
  expect([](const at::Tensor& x) { x.fill_(7); });
  expect([](const at::Tensor& x) { x.zero_(); });
  expect([](const at::Tensor& x) { x.masked_fill_(x > 0, 7); });
  expect([](const at::Tensor& x) { x.index_fill_(1, at::tensor({1, 3}, at::kLong), 7); });
  expect([](const at::Tensor& x) { x.add_(1); });
  expect([](const at::Tensor& x) { x.copy_(x.clone()); });
  expect([](const at::Tensor& x) { x.mul_(x.sum()); });
  expect_as_plain_memory(numbers({1, 2}), [](const at::Tensor& a) {  // cut: rank 2 has no elements
    const c10::List<std::optional<at::Tensor>> rows({at::tensor({0, 2}, at::kLong)});
    a.expand({3, 2}).index_put_(rows, at::ones({2, 2}, at::kDouble));
  });
}

TEST(Overlaps, RanksWithoutElementsRefuseToo) {
  run_impatient(3, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor x = zeros({1, 2}, mesh, {Shard(1)}).expand({3, 2});  // rank 2 has no elements
    for (int round = 0; round < 2; ++round) {
      EXPECT_NE(error_of([&] { x.add_(1); }), "nothing was thrown");
    }
    EXPECT_EQ(difference(full_tensor(x + 1), at::ones({3, 2})), "");
  });
}

TEST(Overlaps, TilesOfOneBufferAreStrangers) {
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = usual_mesh(world);
    const at::Tensor buffer = at::ones({8});
    const at::Tensor x = from_local(buffer.narrow(0, 0, 6).view({2, 3}), mesh, {Shard(0)});
    const at::Tensor y = from_local(buffer.narrow(0, 6, 1).view({1, 1}), mesh, {Replicate()});
    x.add_(y);
    EXPECT_EQ(difference(full_tensor(x), at::full({4, 3}, 2.F)), "");
  });
}

}  // namespace overlaps_test
}  // namespace tegula
