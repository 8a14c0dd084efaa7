#include "tegula/comm/environment.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "tegula/base/error.h"
#include "tegula/base/launch.h"

namespace tegula::inner::comm {
namespace environment_test {

Place place(const std::map<std::string, std::string>& variables) {
  return place_in([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(Environment, NothingSetMeansOneRankAlone) {
  const Place alone = place({});
  EXPECT_EQ(alone.launcher, "none");
  EXPECT_EQ(alone.size, 1);
  EXPECT_EQ(alone.local_size, 1);
}

TEST(Environment, OurOwnVariablesComeFirst) {
  const Place found = place({{"TEGULA_RANK", "3"},
                             {"TEGULA_WORLD_SIZE", "8"},
                             {"TEGULA_LOCAL_RANK", "1"},
                             {"TEGULA_LOCAL_WORLD_SIZE", "2"},
                             {"TEGULA_BACKEND", "gloo"},
                             {"TEGULA_TIMEOUT", "7"},
                             {"RANK", "0"},
                             {"WORLD_SIZE", "1"}});
  EXPECT_EQ(found.launcher, "tegula run");
  EXPECT_EQ(found.rank, 3);
  EXPECT_EQ(found.size, 8);
  EXPECT_EQ(found.local_rank, 1);
  EXPECT_EQ(found.local_size, 2);
  EXPECT_EQ(found.backend, "gloo");
  EXPECT_EQ(found.timeout, std::chrono::seconds(7));
}

TEST(Environment, ARankReadsWhatItsLauncherSet) {
  launch::set_launch({5, 8, 1, 4, "a job"});
  launch::set_variable(launch::kBackend, "gloo");
  const Place found = place_in_environment();
  for (const char* name : {launch::kRank, launch::kSize, launch::kLocalRank, launch::kLocalSize,
                           launch::kJob, launch::kBackend}) {
    unsetenv(name);
  }
  EXPECT_EQ(found.launcher, "tegula run");
  EXPECT_EQ(found.rank, 5);
  EXPECT_EQ(found.size, 8);
  EXPECT_EQ(found.local_rank, 1);
  EXPECT_EQ(found.local_size, 4);
  EXPECT_NE(found.job.find("a job"), std::string::npos);
  EXPECT_EQ(found.backend, "gloo");
}

TEST(Environment, TorchrunTellsItsStore) {
  const Place found = place({{"RANK", "1"},
                             {"WORLD_SIZE", "2"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "2"},
                             {"MASTER_ADDR", "node0"},
                             {"MASTER_PORT", "29500"},
                             {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  EXPECT_EQ(found.launcher, "torchrun");
  EXPECT_EQ(found.store_host, "node0");
  EXPECT_EQ(found.store_port, 29500);
  EXPECT_TRUE(found.launcher_has_store);
}

TEST(Environment, MpiAndSlurmAreUnderstood) {
  const Place open_mpi = place({{"OMPI_COMM_WORLD_RANK", "2"},
                                {"OMPI_COMM_WORLD_SIZE", "4"},
                                {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                                {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                {"PMIX_NAMESPACE", "job7"}});
  EXPECT_EQ(open_mpi.launcher, "Open MPI");
  EXPECT_EQ(open_mpi.local_size, 2);
  const Place mpich = place({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}});
  EXPECT_EQ(mpich.launcher, "MPICH");
  EXPECT_EQ(mpich.local_rank, 1);
  const Place slurm = place({{"SLURM_PROCID", "5"},
                             {"SLURM_NTASKS", "8"},
                             {"SLURM_LOCALID", "1"},
                             {"SLURM_STEP_TASKS_PER_NODE", "4(x2)"},
                             {"SLURM_JOB_ID", "17"}});
  EXPECT_EQ(slurm.launcher, "Slurm");
  EXPECT_EQ(slurm.local_size, 4);
  EXPECT_NE(open_mpi.job, slurm.job);
}

TEST(Environment, TheSecretIsPartOfTheJobUnderAnyLauncher) {
  const std::map<std::string, std::string> without = {
      {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "node0"}, {"MASTER_PORT", "29500"}};
  auto with = without;
  with["TEGULA_SECRET"] = " what only the ranks know\n";
  EXPECT_EQ(place(without).secret, "");
  EXPECT_EQ(place(with).secret, "what only the ranks know");
  EXPECT_NE(place(without).job, place(with).job);
  with["TEGULA_SECRET"] = "too short";
  EXPECT_THROW(place(with), UsageError);
}

TEST(Environment, PortsThatDoNotExistAreRefused) {
  for (const char* port : {"65536", "0", "-1", "x", "29500x", ""}) {
    try {
      place({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", port}});
      ADD_FAILURE() << port << " was taken";
    } catch (const UsageError& error) {
      EXPECT_EQ(error.sentence(), "the environment variable MASTER_PORT is no port");
    }
  }
}

TEST(Environment, WhatDoesNotFitIsRefused) {
  EXPECT_THROW(place({{"RANK", "two"}, {"WORLD_SIZE", "4"}}), UsageError);
  EXPECT_THROW(place({{"RANK", "-1"}, {"WORLD_SIZE", "4"}}), UsageError);
  EXPECT_THROW(place({{"RANK", "4"}, {"WORLD_SIZE", "4"}}), UsageError);
  EXPECT_THROW(
      place({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "3"}, {"SLURM_STEP_TASKS_PER_NODE", "2,1"}}),
      UsageError);
}

TEST(Environment, NumbersThatCannotBeMeantAreRefusedByTheirNames) {
  const auto why = [](std::map<std::string, std::string> variables) -> std::string {
    variables.insert({{"TEGULA_RANK", "0"}, {"TEGULA_WORLD_SIZE", "2"}});  // unless given
    try {
      place(variables);
    } catch (const UsageError& error) {
      return error.sentence();
    }
    return "nothing was thrown";
  };
  const std::string start = "the environment variable ";
  EXPECT_EQ(why({{"TEGULA_TIMEOUT", "0"}}), start + "TEGULA_TIMEOUT is no whole number from 1 on");
  EXPECT_EQ(why({{"TEGULA_LOCAL_WORLD_SIZE", "0"}}),
            start + "TEGULA_LOCAL_WORLD_SIZE is no whole number from 1 on");
  EXPECT_EQ(why({{"TEGULA_WORLD_SIZE", "0x2"}}),
            start + "TEGULA_WORLD_SIZE is no whole number from 0 on");
}

TEST(Environment, SlurmsTasksPerNodeAreANumberAndPerhapsHowOften) {
  const auto local_size = [](const std::string& tasks) {
    return place(
               {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_STEP_TASKS_PER_NODE", tasks}})
        .local_size;
  };
  EXPECT_EQ(local_size("4"), 4);
  EXPECT_EQ(local_size("2(x2)"), 2);
  for (const char* tasks : {"-1", "two", "2x", "99999999999999999999", "0", "(x2)"}) {
    EXPECT_THROW(local_size(tasks), UsageError) << tasks;
  }
}

}  // namespace environment_test
}  // namespace tegula::inner::comm
