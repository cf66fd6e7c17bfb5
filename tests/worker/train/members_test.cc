// SPDX-License-Identifier: Apache-2.0
// Tests RunTraining with elastic membership. The present ranks must share the rest of a pass.
#include <gtest/gtest.h>

#include "tests/worker/train/memory_job.h"
#include "tests/worker/train/small_job.h"
#include "worker/train/train.h"

namespace sluice::worker {
namespace {

// Two workers begin this job. A pass has 512 samples, and each worker takes 32 per step.
job::JobSpec ElasticJob() {
  job::JobSpec spec = SmallJob();
  spec.training.epochs = 1;
  spec.workers = 2;
  spec.exchange.membership = job::Membership::kElastic;
  spec.max_workers = 4;
  return spec;
}

class MembersTest : public ::testing::Test {
 protected:
  absl::StatusOr<TrainReport> Train(uint32_t rank) {
    return RunTraining(spec_, rank, session_.get(), options_, logger_);
  }

  job::JobSpec spec_ = ElasticJob();
  const Logger logger_ = Logger("worker");
  TrainOptions options_;
  MemoryJob job_{1};
  std::unique_ptr<MemoryJob::RankSession> session_ = job_.MakeSession(0);
};

TEST_F(MembersTest, NobodyComesOrGoes) {
  session_->MembersSince(1, {0, 1});
  const auto report = Train(0);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->steps, 8u);
}

TEST_F(MembersTest, WhoIsLeftTakesTheRest) {
  session_->MembersSince(1, {0, 1});
  session_->MembersSince(3, {0});
  const auto report = Train(0);
  ASSERT_TRUE(report.ok()) << report.status();
  // Three steps of two workers use 192 samples. One worker uses the other 320.
  EXPECT_EQ(report->steps, 13u);
}

TEST_F(MembersTest, ANewcomerIsDealtNothingUntilItTookPart) {
  session_->MembersSince(1, {0, 1});
  session_->MembersSince(5, {0, 1, 3});
  const auto report = Train(3);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(session_->skips(), 5u);
  // Five steps used 320 of 512 samples. Three workers need two steps for the rest.
  EXPECT_EQ(report->steps, 7u);
}

TEST_F(MembersTest, GoesOnFromACheckpointWithWhoWasThere) {
  session_->MembersSince(1, {0, 1});
  session_->MembersSince(3, {0});
  session_->CheckpointEvery(1);
  const auto undisturbed = Train(0);
  ASSERT_TRUE(undisturbed.ok()) << undisturbed.status();
  for (const uint64_t step : {2, 3, 4}) {
    auto restored = job_.MakeSession(0);
    restored->RestoreAfter(step, session_->saved().at(step));
    restored->MembersSince(1, {0, 1});
    restored->MembersSince(3, {0});
    const auto report = RunTraining(spec_, 0, restored.get(), options_, logger_);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->parameters_sha256, undisturbed->parameters_sha256) << "after step " << step;
    EXPECT_EQ(report->steps, 13u);
  }
}

// With local steps, workers join and leave between rounds, which have three steps here.
class MembersOfRoundsTest : public MembersTest {
 protected:
  MembersOfRoundsTest() {
    spec_.exchange.mode = job::Mode::kLocalSgd;
    spec_.local.steps = 3;
    spec_.local.outer_optimizer = job::OuterOptimizer::kAverage;
    spec_.local.outer_lr = 1;
  }
};

TEST_F(MembersOfRoundsTest, WhoIsLeftTakesTheRest) {
  session_->MembersSince(1, {0, 1});
  session_->MembersSince(2, {0});
  const auto report = Train(0);
  ASSERT_TRUE(report.ok()) << report.status();
  // Six steps of two workers use 384 samples. One worker needs a round and a step for the rest.
  EXPECT_EQ(report->steps, 10u);
  EXPECT_EQ(report->rounds, 4u);
}

TEST_F(MembersOfRoundsTest, ANewcomerIsDealtNothingUntilItTookPart) {
  session_->MembersSince(1, {0, 1});
  session_->MembersSince(2, {0, 1, 3});
  const auto report = Train(3);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(session_->skips(), 2u);
  EXPECT_EQ(report->steps, 8u);
  EXPECT_EQ(report->rounds, 3u);
}

TEST_F(MembersOfRoundsTest, GoesOnFromACheckpointWithWhoWasThere) {
  session_->MembersSince(1, {0, 1});
  session_->MembersSince(2, {0});
  session_->CheckpointEvery(1);
  const auto undisturbed = Train(0);
  ASSERT_TRUE(undisturbed.ok()) << undisturbed.status();
  for (const uint64_t exchange : {1, 2, 3}) {
    auto restored = job_.MakeSession(0);
    restored->RestoreAfter(exchange, session_->saved().at(exchange));
    restored->MembersSince(1, {0, 1});
    restored->MembersSince(2, {0});
    const auto report = RunTraining(spec_, 0, restored.get(), options_, logger_);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->parameters_sha256, undisturbed->parameters_sha256) << exchange;
    EXPECT_EQ(report->steps, 10u);
  }
}

}  // namespace
}  // namespace sluice::worker
