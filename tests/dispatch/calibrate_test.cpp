#include "tegula/dispatch/calibrate.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "tegula/plan/redistribute_planner.h"

namespace tegula {
namespace calibrate_test {

// A file of its own for each test.
class Calibration : public testing::Test {
 protected:
  Calibration() {
    path_ = std::filesystem::temp_directory_path() /
            ("tegula-costs-" + std::to_string(getpid()) + "-" +
             testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove(path_);
    setenv("TEGULA_COSTS", path_.c_str(), 1);
  }
  ~Calibration() override {
    unsetenv("TEGULA_COSTS");
    std::filesystem::remove(path_);
  }

  // The models that all ranks get.
  std::vector<CostModel> models(int ranks, std::vector<MeshAxis> axes) {
    std::vector<CostModel> all;
    std::mutex mutex;
    run_ranks(ranks, [&](World& world) {
      const CostModel model = use_measured_costs(world, world.mesh(axes));
      EXPECT_EQ(world.part<RedistributePlanner>().cost_model(), model);
      const std::lock_guard lock(mutex);
      all.push_back(model);
    });
    return all;
  }

  std::filesystem::path path_;
};

TEST_F(Calibration, GivesAllRanksOneModelAndKeepsIt) {
  const std::vector<CostModel> first = models(4, {{"dp", 2}, {"tp", 2}});
  for (const CostModel& model : first) EXPECT_EQ(model, first.front());
  EXPECT_TRUE(std::filesystem::exists(path_));
  // what is kept is read, not measured anew: measured figures never repeat to the last digit
  const std::vector<CostModel> again = models(4, {{"dp", 2}, {"tp", 2}});
  const std::vector<CostModel> once_more = models(4, {{"dp", 2}, {"tp", 2}});
  EXPECT_EQ(again.front(), once_more.front());
  EXPECT_NEAR(again.front().copy_gb_per_s(), first.front().copy_gb_per_s(), 0.01);
}

TEST_F(Calibration, OfAnotherMeshIsMeasuredAndKeptBeside) {
  models(2, {{"tp", 2}});
  models(2, {{"dp", 2}});
  std::ifstream file(path_);
  std::string text((std::istreambuf_iterator<char>(file)), {});
  EXPECT_NE(text.find("tp=2:"), std::string::npos) << text;
  EXPECT_NE(text.find("dp=2:"), std::string::npos) << text;
}

TEST_F(Calibration, FileThatIsNoneOfOursIsReplaced) {
  std::ofstream(path_) << "garbage\ntp=2: 1 -3 nan\n";
  const CostModel model = models(2, {{"tp", 2}}).front();
  EXPECT_GT(model.link("tp").gb_per_s, 0);
  std::ofstream(path_) << "tegula costs 1\ntp=2: 8 -3 5\n";
  EXPECT_GT(models(2, {{"tp", 2}}).front().link("tp").latency_us, 0);
}

TEST_F(Calibration, WorksWithoutAPlaceToKeepIt) {
  setenv("TEGULA_COSTS", "/proc/nowhere/costs", 1);
  EXPECT_GT(models(2, {{"tp", 2}}).front().copy_gb_per_s(), 0);
}

}  // namespace calibrate_test
}  // namespace tegula
