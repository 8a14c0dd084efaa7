// Ops that need a dim whole which is cut: the cut moves to another dim, and back only if asked.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tegula/comm/comm_log.h"
#include "tests/tensor/as_plain.h"

namespace tegula {
namespace recut_test {

std::int64_t gathered(const CommLog& log) {
  std::int64_t bytes = 0;
  for (const CommEntry& entry : log.entries()) {
    if (entry.kind == CommKind::AllGather) bytes += entry.bytes;
  }
  return bytes;
}

TEST(Recut, SendsAShareOfWhatAGatherWould) {
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"a", 2}});
    const at::Tensor whole = numbers({8, 6});
    const at::Tensor x = distribute_tensor(whole, mesh, {Shard(1)});
    const CommLog log(world);
    const auto [sorted, places] = at::sort(x, 1);
    ASSERT_EQ(log.size(), 1U) << log.to_string();
    EXPECT_EQ(log.entries()[0].kind, CommKind::AllToAll);
    EXPECT_EQ(log.entries()[0].bytes, 8 * 3 * 8);
    EXPECT_EQ(to_string(spec_of(sorted).placements()), "[S(0)]");
    EXPECT_EQ(difference(full_tensor(sorted), std::get<0>(at::sort(whole, 1))), "");
    EXPECT_EQ(difference(full_tensor(places), std::get<1>(at::sort(whole, 1))), "");
  });
}

TEST(Recut, IsRightHoweverTensorsAreCut) {
  expect_as_plain({leaf({7, 5, 4})}, [](const Tensors& in) -> Tensors {
    return {at::cumprod(in[0], 2), std::get<0>(at::sort(in[0], 0)), std::get<0>(at::mode(in[0], 1)),
            std::get<0>(at::median(in[0], 0)), at::cumsum(in[0], 1)};
  });
}

// In place and out= -----------------------------------------------------------------------------

TEST(PlainForm, OfAnInPlaceOpAlongACutDimGathersTotalsOnly) {
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"a", 2}});
    const at::Tensor whole = numbers({8, 6});
    const at::Tensor x = distribute_tensor(whole, mesh, {Shard(1)});
    at::Tensor out = at::zeros_like(x);
    const CommLog log(world);
    for (int time = 0; time < 2; ++time) at::cumprod_out(out, x, 1);
    x.cumprod_(1);
    // three scans, each with a total per row
    EXPECT_EQ(gathered(log), 3 * 8 * 8) << log.to_string();
    EXPECT_EQ(to_string(spec_of(x).placements()), "[S(1)]");
    EXPECT_EQ(to_string(spec_of(out).placements()), "[S(1)]");
    EXPECT_EQ(difference(full_tensor(x), at::cumprod(whole, 1)), "");
    EXPECT_EQ(difference(full_tensor(out), at::cumprod(whole, 1)), "");
  });
}

TEST(PlainForm, WritesToSeveralOutTensors) {
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"a", 2}});
    const at::Tensor whole = numbers({8, 6});
    const at::Tensor x = distribute_tensor(whole, mesh, {Shard(1)});
    at::Tensor values = at::zeros_like(x);
    at::Tensor places = at::zeros_like(x, at::kLong);
    at::sort_out(values, places, x, 1);
    EXPECT_EQ(to_string(spec_of(values).placements()), "[S(1)]");
    EXPECT_EQ(difference(full_tensor(values), std::get<0>(at::sort(whole, 1))), "");
    EXPECT_EQ(difference(full_tensor(places), std::get<1>(at::sort(whole, 1))), "");
  });
}

TEST(PlainForm, LeavesResizingAndConversionToLibtorch) {
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"a", 2}});
    const at::Tensor whole = numbers({8, 6});
    const at::Tensor x = distribute_tensor(whole, mesh, {Shard(1)});
    at::Tensor floats = at::zeros_like(x, at::kFloat);
    at::cumprod_out(floats, x, 1);
    at::Tensor plain = at::zeros_like(whole, at::kFloat);
    at::cumprod_out(plain, whole, 1);
    EXPECT_EQ(difference(full_tensor(floats), plain), "");
    at::Tensor empty = at::zeros_like(x).resize_({0});
    at::cumprod_out(empty, x, 1);
    EXPECT_EQ(difference(full_tensor(empty), at::cumprod(whole, 1)), "");
  });
}

TEST(PlainForm, IsRightHoweverTensorsAreCut) {
  expect_as_plain({numbers({7, 5}), numbers({7, 5}, 2)}, [](const Tensors& in) -> Tensors {
    at::Tensor x = in[0].clone();
    x.cumsum_(0).relu_().cumprod_(1);
    at::Tensor out = at::empty_like(in[1]);
    at::cumsum_out(out, in[0], 1);
    at::softmax_out(x, x, 0);
    x.polygamma_(1);  // the plain form takes them the other way round
    return {x, out};
  });
}

}  // namespace recut_test
}  // namespace tegula
