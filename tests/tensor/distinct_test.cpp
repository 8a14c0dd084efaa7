// Elements compared with others, where the tensor is cut: as on plain tensors, and little is sent.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tegula/comm/comm_log.h"
#include "tests/tensor/as_plain.h"
#include "tests/tensor/environment_variable.h"

namespace tegula {
namespace distinct_test {

at::Tensor some_integers(at::IntArrayRef shape, std::int64_t most) {
  return at::remainder(at::arange(c10::multiply_integers(shape), at::kLong) * 7, most).view(shape);
}

TEST(Distinct, ElementsAreFoundWithTheirPlacesAndCounts) {
  for (const at::Tensor& x : {some_integers({5, 7}, 6), some_integers({9}, 4),
                              some_integers({4, 3}, 5).to(at::kDouble) / 4}) {
    expect_as_plain({x}, [](const Tensors& in) {
      const auto [values, inverse, counts] = at::_unique2(in[0], true, true, true);
      return Tensors{values, inverse, counts};
    });
  }
}

TEST(Distinct, OnlyDistinctElementsTravel) {
  const EnvironmentVariable unchecked("TEGULA_CHECK", "0");
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"a", 2}});
    const at::Tensor x = distribute_tensor(some_integers({1000}, 3), mesh, {Shard(0)});
    const CommLog log(world);
    const at::Tensor values = std::get<0>(at::_unique2(x, true, false, false));
    EXPECT_LE(log.bytes(), 8 * (1 + 3)) << log.to_string();
    EXPECT_EQ(difference(full_tensor(values), at::arange(3, at::kLong)), "");
  });
}

TEST(Distinct, MembershipIsAskedByTile) {
  expect_as_plain({some_integers({5, 7}, 12), some_integers({6}, 5)}, [](const Tensors& in) {
    return Tensors{at::isin(in[0], in[1]), at::isin(in[0], in[1], false, /*invert=*/true)};
  });
}

TEST(Distinct, ClassesOfCutElementsStayCut) {
  expect_as_plain({some_integers({5, 7}, 4)}, [](const Tensors& in) {
    return Tensors{at::one_hot(in[0]), at::one_hot(in[0], 6)};
  });
  run_impatient(2, [](World& world) {
    const DeviceMesh mesh = world.mesh({{"a", 2}});
    const at::Tensor x = distribute_tensor(some_integers({6, 4}, 5), mesh, {Shard(1)});
    EXPECT_EQ(to_string(placements_of(at::one_hot(x, 9))), "[S(1)]");
    EXPECT_TRUE(contains(error_of([&] { at::one_hot(x, 3); }),
                         "one_hot is given a class that is not there"));
  });
}

TEST(Distinct, PartsThatAreNoViewsKeepTheirCut) {
  expect_as_plain({leaf({6, 5}, 1)}, [](const Tensors& in) {
    Tensors parts = at::unsafe_split(in[0], 4, 0);
    for (const at::Tensor& part : at::unsafe_split_with_sizes(in[0], {1, 3, 1}, 1)) {
      parts.push_back(part);
    }
    return parts;
  });
}

}  // namespace distinct_test
}  // namespace tegula
