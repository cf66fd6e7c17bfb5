// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "app/signal_watch.h"
#include "base/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "job/job_spec.h"
#include "worker/launch_environment.h"
#include "worker/worker_report.h"

namespace sluice::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

job::JobSpec FourWorkers() {
  job::JobSpec spec;
  spec.name = "four";
  spec.workers = 4;
  return spec;
}

absl::StatusOr<uint32_t> Rank(std::optional<uint32_t> flag,
                              const std::map<std::string, std::string>& environment) {
  return FindRank(flag, {}, FourWorkers(), [&](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

TEST(LaunchEnvironmentTest, RankComesFromTheFlagOrElseFromTheLauncher) {
  EXPECT_EQ(Rank(2, {{"RANK", "3"}}).value(), 2);
  EXPECT_EQ(Rank({}, {{"RANK", "3"}, {"SLURM_PROCID", "1"}}).value(), 3);
  EXPECT_EQ(Rank({}, {{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "4"}}).value(), 1);
  EXPECT_EQ(Rank({}, {{"RANK", ""}, {"JOB_COMPLETION_INDEX", "0"}}).value(), 0);
}

TEST(LaunchEnvironmentTest, WhatDoesNotFitTheJobIsTold) {
  EXPECT_THAT(Rank({}, {}).status().message(), HasSubstr("--rank"));
  EXPECT_THAT(Rank(4, {}).status().message(), HasSubstr("ranks 0 to 3"));
  EXPECT_THAT(Rank({}, {{"RANK", "two"}}).status().message(), HasSubstr("RANK=two"));
  EXPECT_THAT(Rank({}, {{"RANK", "1"}, {"WORLD_SIZE", "8"}}).status().message(),
              HasSubstr("started 8 processes (WORLD_SIZE)"));
  // An explicit rank must be independent of the size of the surrounding allocation.
  EXPECT_TRUE(Rank(1, {{"SLURM_NTASKS", "8"}}).ok());
}

TEST(LaunchEnvironmentTest, RanksOfARackCountWithinIt) {
  job::JobSpec racks = FourWorkers();
  racks.relays.workers = {1, 3};
  const auto rank = [&](std::optional<uint32_t> flag, uint32_t relay,
                        const std::map<std::string, std::string>& environment) {
    return FindRank(flag, relay, racks, [&](const char* name) -> const char* {
      const auto found = environment.find(name);
      return found == environment.end() ? nullptr : found->second.c_str();
    });
  };
  EXPECT_EQ(rank({}, 0, {{"JOB_COMPLETION_INDEX", "0"}, {"WORLD_SIZE", "1"}}).value(), 0);
  EXPECT_EQ(rank({}, 1, {{"JOB_COMPLETION_INDEX", "0"}, {"WORLD_SIZE", "3"}}).value(), 1);
  EXPECT_EQ(rank({}, 1, {{"JOB_COMPLETION_INDEX", "2"}, {"WORLD_SIZE", "3"}}).value(), 3);
  EXPECT_EQ(rank(1, 1, {{"RANK", "9"}}).value(), 2);
  EXPECT_THAT(rank({}, 1, {{"RANK", "0"}, {"WORLD_SIZE", "4"}}).status().message(),
              AllOf(HasSubstr("started 4 processes (WORLD_SIZE)"),
                    HasSubstr("relay 1 has 3 workers"), HasSubstr("relays.workers")));
  EXPECT_THAT(rank(1, 0, {}).status().message(), HasSubstr("rack of relay 0 has 1 workers"));
  EXPECT_THAT(rank(0, 2, {}).status().message(), HasSubstr("2 relays, 0 to 1"));
  racks.relays.workers.clear();
  EXPECT_THAT(rank(0, 0, {}).status().message(), HasSubstr("no `relays` section"));
}

TEST(LaunchEnvironmentTest, ThreadsAreANumberOrAShareOfTheCores) {
  const auto threads = [](const std::string& flag, const char* workers_here) {
    return FindThreads(flag, 16, [&](const char* name) -> const char* {
      return std::string(name) == "LOCAL_WORLD_SIZE" ? workers_here : nullptr;
    });
  };
  EXPECT_EQ(threads("", "4").value(), 0);
  EXPECT_EQ(threads("3", "4").value(), 3);
  EXPECT_EQ(threads("auto", nullptr).value(), 16);
  EXPECT_EQ(threads("auto", "4").value(), 4);
  EXPECT_EQ(threads("auto", "5").value(), 3);
  EXPECT_EQ(threads("auto", "64").value(), 1);
  for (const char* flag : {"0", "1025", "-1", "2.5", "Auto", "all"}) {
    EXPECT_THAT(threads(flag, nullptr).status().message(), HasSubstr("neither `auto` nor")) << flag;
  }
  EXPECT_THAT(threads("auto", "0").status().message(), HasSubstr("LOCAL_WORLD_SIZE is 0"));
  EXPECT_THAT(threads("auto", "x").status().message(), HasSubstr("LOCAL_WORLD_SIZE=x"));
}

TEST(WorkerReportTest, HoldsTheFiguresFlat) {
  TrainReport report;
  report.steps = 12;
  report.step_ms_p95 = 3.5;
  report.traffic.bytes_up = 999;
  report.parameters_sha256 = "ab";
  auto json = nlohmann::json::parse(SuccessJson(FourWorkers(), 3, report));
  EXPECT_EQ(json["job"], "four");
  EXPECT_EQ(json["rank"], 3);
  EXPECT_EQ(json["exit"], 0);
  EXPECT_EQ(json["steps"], 12);
  EXPECT_EQ(json["step_ms_p95"], 3.5);
  EXPECT_EQ(json["bytes_up"], 999);
  EXPECT_EQ(json["parameters_sha256"], "ab");
  EXPECT_FALSE(json.contains("test_accuracy"));
  report.test_accuracy = 0.5;
  json = nlohmann::json::parse(SuccessJson(FourWorkers(), 3, report));
  EXPECT_EQ(json["test_accuracy"], 0.5);
  EXPECT_EQ(json["judged_by"], "accuracy");
  EXPECT_FALSE(json.contains("best_step"));
  report.best = BestTest{.step = 9, .accuracy = 0.75, .loss = 2};
  json = nlohmann::json::parse(SuccessJson(FourWorkers(), 3, report));
  EXPECT_EQ(json["best_step"], 9);
  EXPECT_EQ(json["best_test_accuracy"], 0.75);
  EXPECT_EQ(json["best_test_loss"], 2);
}

TEST(WorkerReportTest, FailureSaysWhyWhateverBytesTheMessageHolds) {
  const auto json = nlohmann::json::parse(FailureJson(FourWorkers(), 1, 143, "bad \xFF byte"));
  EXPECT_EQ(json["exit"], 143);
  EXPECT_THAT(json["error"].get<std::string>(), HasSubstr("bad "));
  EXPECT_THAT(WriteReport("/dev/null/report.json", "{}").message(), HasSubstr("/dev/null/report"));
}

// Death tests send signals in separate processes.
TEST(SignalWatchDeathTest, CallsAtTheFirstSignalAndLetsTheProgramEndItself) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        app::BlockStopSignals();
        Mutex mutex;
        CondVar changed;
        int came = 0;
        app::SignalWatch watch(
            [&](int signal) {
              MutexLock lock(&mutex);
              came = signal;
              changed.SignalAll();
            },
            absl::Minutes(1));
        kill(getpid(), SIGINT);
        MutexLock lock(&mutex);
        while (came == 0) changed.Wait(&mutex);
        exit(came == SIGINT && watch.received() == SIGINT ? 7 : 8);
      },
      ::testing::ExitedWithCode(7), "");
}

TEST(SignalWatchDeathTest, EndsAProgramThatDoesNot) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        app::BlockStopSignals();
        app::SignalWatch watch([](int) {}, absl::Milliseconds(1));
        kill(getpid(), SIGTERM);
        for (;;) pause();
      },
      ::testing::ExitedWithCode(128 + SIGTERM), "");
}

TEST(SignalWatchDeathTest, WithoutASignalItGoesQuietly) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        app::BlockStopSignals();
        {
          app::SignalWatch watch([](int) { exit(9); }, absl::Minutes(1));
        }
        exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace sluice::worker
