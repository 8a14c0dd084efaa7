#include "tests/comm/suite.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <tuple>

namespace tegula {
namespace {

using Case = std::tuple<std::string, Way, int>;

class EveryEngine : public testing::TestWithParam<Case> {};

TEST_P(EveryEngine, GivesWhatAPlainComputationGives) {
  const auto& [body, way, ranks] = GetParam();
  EXPECT_NO_THROW(run_in(way, ranks, suite().at(body)));
}

std::vector<std::string> names() {
  std::vector<std::string> result;
  for (const auto& [name, body] : suite()) result.push_back(name);
  return result;
}

std::string name_of_case(const testing::TestParamInfo<Case>& info) {
  std::ostringstream text;
  text << std::get<0>(info.param) << std::get<1>(info.param) << std::get<2>(info.param);
  return text.str();
}

INSTANTIATE_TEST_SUITE_P(Shm, EveryEngine,
                         testing::Combine(testing::ValuesIn(names()),
                                          testing::Values(Way::Threads, Way::Processes),
                                          testing::Values(1, 2, 3, 4, 8)),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Gloo, EveryEngine,
                         testing::Combine(testing::ValuesIn(names()),
                                          testing::Values(Way::GlooThreads, Way::GlooProcesses),
                                          testing::Values(1, 2, 3)),
                         name_of_case);

}  // namespace
}  // namespace tegula

int main(int argc, char** argv) {
  at::set_num_threads(1);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
