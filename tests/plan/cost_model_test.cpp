#include "tegula/plan/cost_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tegula/base/error.h"
#include "tegula/plan/plan.h"

namespace tegula {
namespace cost_model_test {

TEST(CostModel, AxesThatWereNotMeasuredAreUsual) {
  const CostModel model = CostModel::calibrated({7, 3}, 9, {{"dp", {50, 1}}});
  EXPECT_EQ(model.link("dp"), (LinkCost{50, 1}));
  EXPECT_EQ(model.link("tp"), (LinkCost{7, 3}));
  EXPECT_EQ(model.copy_gb_per_s(), 9);
}

TEST(CostModel, EqualModelsHaveEqualHashes) {
  const CostModel one = CostModel::calibrated({7, 3}, 9, {{"dp", {50, 1}}});
  EXPECT_EQ(one, CostModel::calibrated({7, 3}, 9, {{"dp", {50, 1}}}));
  EXPECT_EQ(one.hash(), CostModel::calibrated({7, 3}, 9, {{"dp", {50, 1}}}).hash());
  EXPECT_NE(one, CostModel());
  EXPECT_NE(one.hash(), CostModel().hash());
  EXPECT_EQ(CostModel(), CostModel::calibrated({}, 8));
}

TEST(CostModel, NumbersThatMakeNoSenseAreRefused) {
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_THROW(CostModel::calibrated({-1, 5}, 8), UsageError);
  EXPECT_THROW(CostModel::calibrated({1, inf}, 8), UsageError);
  EXPECT_THROW(CostModel::calibrated({1, 5}, std::nan("")), UsageError);
  try {
    CostModel::calibrated({1, 5}, 8, {{"dp", {1, 0}}});
    FAIL() << "nothing was thrown";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "tegula: a cost model needs a positive bandwidth of \"dp\"\n"
                 "  bandwidth of \"dp\" 0.000000\n"
                 "  hint    latencies are in microseconds, bandwidths in GB/s");
  }
}

// latency + bytes / bandwidth + bytes of the new tile / copy bandwidth
TEST(Step, ItsTimeIsWhatTheModelSays) {
  const CostModel model = CostModel::calibrated({10, 2}, 4, {{"b", {30, 1}}});
  const auto step = [&](const char* from, const char* to) {
    const std::string tensor = "u8[4000, 1000] on (a=2, b=4) as ";
    return step_between(parse_spec(tensor + from), parse_spec(tensor + to), model);
  };
  const Step gather = step("[S(0), R]", "[R, R]");
  EXPECT_EQ(gather.bytes_sent, 2'000'000);
  EXPECT_EQ(gather.peak_bytes, 6'000'000);
  EXPECT_EQ(gather.picoseconds, (10 + 1000 + 1000) * 1'000'000LL);
  const Step both = step("[P(sum), P(sum)]", "[R, R]");
  EXPECT_EQ(both.bytes_sent, 7'000'000);
  EXPECT_EQ(both.picoseconds, (30 + 7000 + 1000) * 1'000'000LL);
  const Step turn = step("[S(0), R]", "[S(1), R]");
  EXPECT_EQ(turn.bytes_sent, 1'000'000);
  const Step scatter = step("[R, P(sum)]", "[R, S(0)]");
  EXPECT_EQ(scatter.bytes_sent, 3'000'000);
  const Step permute = step("[S(0), S(0)]", "[S(0)[1], S(0)[0]]");
  EXPECT_EQ(permute.bytes_sent, 500'000);
  const Step slice = step("[R, R]", "[S(0), R]");
  EXPECT_EQ(slice.bytes_sent, 0);
  EXPECT_EQ(slice.picoseconds, 500'200'000);
}

}  // namespace cost_model_test
}  // namespace tegula
