// SPDX-License-Identifier: Apache-2.0
// With the optimizer on the shards, RunTraining must get the same results as with the workers' own
// optimizers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/worker/train/memory_job.h"
#include "tests/worker/train/small_job.h"
#include "tests/worker/train/train_alone.h"
#include "worker/train/train.h"

namespace sluice::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

// Has no momentum, because MemoryJob's shards do plain gradient descent.
job::JobSpec JobOn(job::UpdateLocation on) {
  job::JobSpec spec = SmallJob();
  spec.optimizer.momentum = 0;
  spec.optimizer.location = on;
  spec.lr_schedule.name = "cosine";
  return spec;
}

class ShardsUpdateTest : public ::testing::TestWithParam<job::Precision> {};

TEST_P(ShardsUpdateTest, EndsWhereTheWorkersOptimizerDoes) {
  job::JobSpec here = JobOn(job::UpdateLocation::kWorkers);
  job::JobSpec there = JobOn(job::UpdateLocation::kShards);
  here.training.precision = there.training.precision = GetParam();
  here.training.gradient_accumulation_steps = there.training.gradient_accumulation_steps = 2;
  here.training.ema_decay = there.training.ema_decay = 0.9;
  const auto want = TrainAlone(here);
  const auto got = TrainAlone(there);
  ASSERT_TRUE(want.ok()) << want.status();
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_GT(got->test_accuracy.value(), 0.5);
  EXPECT_NEAR(got->test_loss.value(), want->test_loss.value(), 1e-3);
  EXPECT_NEAR(got->train_loss, want->train_loss, 1e-3);
}

INSTANTIATE_TEST_SUITE_P(Precisions, ShardsUpdateTest,
                         ::testing::Values(job::Precision::kFp32, job::Precision::kBf16,
                                           job::Precision::kFp16));

// One rank has no data in an epoch's last step. All ranks must end with equal parameters.
TEST(ShardsUpdateRanksTest, AllEndAlike) {
  job::JobSpec spec = JobOn(job::UpdateLocation::kShards);
  spec.workers = 2;
  spec.data.limit = 65;
  spec.training.batch_size_per_worker = 16;
  MemoryJob job(2);
  absl::StatusOr<TrainReport> reports[2];
  std::vector<std::unique_ptr<MemoryJob::RankSession>> sessions;
  for (uint32_t rank = 0; rank < 2; ++rank) sessions.push_back(job.MakeSession(rank));
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      reports[rank] =
          RunTraining(spec, rank, sessions[rank].get(), {}, Logger(absl::StrCat("worker-", rank)));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& report : reports) ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(sessions[1]->skips(), 2u);
  EXPECT_EQ(reports[0]->parameters_sha256, reports[1]->parameters_sha256);
}

TEST(ShardsUpdateResumeTest, EndsAsIfNeverStopped) {
  const job::JobSpec spec = JobOn(job::UpdateLocation::kShards);
  MemoryJob job(1);
  const auto session = job.MakeSession(0);
  session->CheckpointEvery(1);
  const auto undisturbed = RunTraining(spec, 0, session.get(), {}, Logger("worker-0"));
  ASSERT_TRUE(undisturbed.ok()) << undisturbed.status();
  ASSERT_THAT(session->saved(), SizeIs(32));
  for (const uint64_t step : {1, 16, 31}) {
    MemoryJob again(1);
    const auto restored = again.MakeSession(0);
    restored->RestoreAfter(step, session->saved().at(step));
    const auto report = RunTraining(spec, 0, restored.get(), {}, Logger("worker-0"));
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->parameters_sha256, undisturbed->parameters_sha256) << "after step " << step;
  }
  // The shards had the optimizer, so the workers' checkpoint has no optimizer state. Restoring it
  // for a worker optimizer must fail.
  MemoryJob other(1);
  const auto restored = other.MakeSession(0);
  restored->RestoreAfter(16, session->saved().at(16));
  const auto refused =
      RunTraining(JobOn(job::UpdateLocation::kWorkers), 0, restored.get(), {}, Logger("worker-0"));
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("continue with optimizer.location shards"));
}

}  // namespace
}  // namespace sluice::worker
