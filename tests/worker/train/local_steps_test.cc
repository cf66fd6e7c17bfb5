// SPDX-License-Identifier: Apache-2.0
// Tests RunTraining in jobs whose workers run several local steps and send the changes of their
// weights.
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
using ::testing::IsEmpty;
using ::testing::SizeIs;

// The job has 32 steps, and its last round has only two. MemoryJob's shards do plain gradient
// descent, which at rate 1 sets the parameters to the mean of the workers' parameters.
job::JobSpec LocalJob() {
  job::JobSpec spec = SmallJob();
  spec.exchange.mode = job::Mode::kLocalSgd;
  spec.local.steps = 5;
  spec.local.outer_optimizer = job::OuterOptimizer::kAverage;
  spec.local.outer_lr = 1;
  spec.lr_schedule.name = "cosine";
  return spec;
}

class LocalStepsTest : public ::testing::TestWithParam<job::Precision> {};

// With one worker, the average is that worker's result, so local steps must equal training alone.
TEST_P(LocalStepsTest, OneWorkerEndsWhereItWouldAlone) {
  job::JobSpec plain = LocalJob();
  plain.exchange.mode = job::Mode::kSync;
  plain.training.precision = GetParam();
  plain.training.gradient_accumulation_steps = 2;
  plain.optimizer.clip_norm = 1;
  const auto want = TrainAlone(plain);
  ASSERT_TRUE(want.ok()) << want.status();
  for (const job::Mode mode : {job::Mode::kLocalSgd, job::Mode::kAsync, job::Mode::kSsp}) {
    job::JobSpec local = plain;
    local.exchange.mode = mode;
    const auto got = TrainAlone(local);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_GT(got->test_accuracy.value(), 0.5) << NameOf(mode);
    EXPECT_NEAR(got->test_loss.value(), want->test_loss.value(), 1e-3) << NameOf(mode);
    EXPECT_NEAR(got->train_loss, want->train_loss, 1e-3) << NameOf(mode);
    EXPECT_EQ(got->steps, 16u);
    EXPECT_EQ(got->rounds, local.exchange.mode == job::Mode::kLocalSgd ? 4u : 16u);
    EXPECT_EQ(got->traffic.steps, got->rounds);
    EXPECT_EQ(got->staleness.has_value(), local.exchange.mode != job::Mode::kLocalSgd);
  }
}

INSTANTIATE_TEST_SUITE_P(Precisions, LocalStepsTest,
                         ::testing::Values(job::Precision::kFp32, job::Precision::kBf16,
                                           job::Precision::kFp16));

class LocalRanksTest : public ::testing::Test {
 protected:
  // Returns hashes by rank. If `round` is not 0, every session is restored after that round.
  std::vector<std::string> Run(const job::JobSpec& spec, uint64_t round) {
    MemoryJob job(spec.workers);
    sessions_.clear();
    reports_.assign(spec.workers, absl::UnknownError("did not run"));
    for (uint32_t rank = 0; rank < spec.workers; ++rank) {
      sessions_.push_back(job.MakeSession(rank));
      sessions_[rank]->CheckpointEvery(1);
      if (round > 0) sessions_[rank]->RestoreAfter(round, saved_[rank].at(round));
    }
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < spec.workers; ++rank) {
      threads.emplace_back([&, rank] {
        reports_[rank] = RunTraining(spec, rank, sessions_[rank].get(), {},
                                     Logger(absl::StrCat("worker-", rank)));
      });
    }
    for (std::thread& thread : threads) thread.join();
    std::vector<std::string> hashes;
    for (uint32_t rank = 0; rank < spec.workers; ++rank) {
      EXPECT_TRUE(reports_[rank].ok()) << reports_[rank].status();
      hashes.push_back(reports_[rank]->parameters_sha256);
      if (round == 0) saved_[rank] = sessions_[rank]->saved();
    }
    return hashes;
  }

  std::vector<std::unique_ptr<MemoryJob::RankSession>> sessions_;
  std::vector<absl::StatusOr<TrainReport>> reports_;
  std::map<uint64_t, std::string> saved_[2];
};

// Rounds continue past the end of an epoch, and checkpoints count rounds. A restart from any round
// must give the same parameters.
TEST_F(LocalRanksTest, RanksAgreeAndGoOnFromAnyRound) {
  job::JobSpec spec = LocalJob();
  spec.workers = 2;
  spec.optimizer.name = "adam";
  spec.optimizer.momentum = 0;
  spec.optimizer.lr = 0.005;
  spec.training.ema_decay = 0.5;
  const std::vector<std::string> undisturbed = Run(spec, 0);
  EXPECT_EQ(undisturbed[0], undisturbed[1]);
  EXPECT_EQ(reports_[0]->steps, 16u);
  EXPECT_EQ(reports_[0]->rounds, 4u);
  EXPECT_GT(reports_[0]->test_accuracy.value(), 0.5);
  EXPECT_EQ(sessions_[0]->progress().back().step, 16u);
  ASSERT_THAT(sessions_[0]->reported_parameters(), SizeIs(1));
  EXPECT_EQ(sessions_[0]->reported_parameters().begin()->first, 4u)
      << "hashes are reported per round";
  ASSERT_THAT(saved_[1], SizeIs(4));
  for (const uint64_t round : {1, 2, 3, 4}) {
    EXPECT_EQ(Run(spec, round), undisturbed) << "after round " << round;
  }
}

// With 65 samples in batches of 16, the second rank has no data for the third step of an epoch.
// With one local step per round, the rank must skip that whole round.
TEST_F(LocalRanksTest, ARankWithoutDataInAWholeRoundSkipsIt) {
  job::JobSpec spec = LocalJob();
  spec.workers = 2;
  spec.data.limit = 65;
  spec.training.batch_size_per_worker = 16;
  spec.local.steps = 1;
  const auto expect_agreement = [&] {
    const std::vector<std::string> hashes = Run(spec, 0);
    EXPECT_EQ(hashes[0], hashes[1]);
  };
  expect_agreement();
  EXPECT_EQ(sessions_[0]->skips(), 0u);
  EXPECT_EQ(sessions_[1]->skips(), 2u);
  spec.local.steps = 3;
  expect_agreement();
  EXPECT_EQ(sessions_[1]->skips(), 0u) << "rank 1 has data for a part of the round";
}

TEST(LocalStepsErrorsTest, AnOptimizerThatDivergesIsNamed) {
  job::JobSpec spec = LocalJob();
  spec.optimizer.lr = 1e30;
  spec.training.epochs = 10;
  for (const job::Mode mode : {job::Mode::kLocalSgd, job::Mode::kAsync}) {
    spec.exchange.mode = mode;
    const auto report = TrainAlone(spec);
    EXPECT_EQ(report.status().code(), absl::StatusCode::kOutOfRange) << report.status();
    EXPECT_THAT(std::string(report.status().message()), HasSubstr("lower optimizer.lr"));
  }
}

// If an epoch ends within a round, the epoch's test must use the parameters of the last exchange.
TEST(LocalStepsTestsTest, AnEpochThatEndsWithinARoundIsTestedAsOfTheLastExchange) {
  job::JobSpec spec = LocalJob();
  spec.local.steps = 1000;
  spec.training.epochs = 2;
  spec.output = ::testing::TempDir() + "/local_steps";
  const auto report = TrainAlone(spec);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->rounds, 1u);
  EXPECT_GT(report->test_accuracy.value(), 0.8) << "the last test follows an exchange";
  ASSERT_TRUE(report->best.has_value());
  EXPECT_EQ(report->best->step, 32u);
}

// Steps that closed without a late worker must be skipped without computation. Their samples are
// not used.
TEST(StepsBehindTest, AreSkipped) {
  const job::JobSpec spec = SmallJob();
  MemoryJob job(1);
  const auto session = job.MakeSession(0);
  session->PretendLate(/*step=*/14, /*steps_behind=*/3);
  const auto report = RunTraining(spec, 0, session.get(), {}, Logger("worker-0"));
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(session->skips(), 3u);
  EXPECT_EQ(report->steps, 32u);
  EXPECT_EQ(report->traffic.steps, 32u);
  EXPECT_THAT(session->abandoned(), IsEmpty());
}

// With local steps, a late worker is behind by whole rounds. The job has rounds of 5, 5, 5 and 1.
TEST(StepsBehindTest, AreRoundsOfLocalSteps) {
  job::JobSpec spec = LocalJob();
  spec.training.epochs = 1;
  MemoryJob job(1);
  const auto session = job.MakeSession(0);
  session->PretendLate(/*step=*/1, /*steps_behind=*/2);
  const auto report = RunTraining(spec, 0, session.get(), {}, Logger("worker-0"));
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(session->skips(), 2u);
  EXPECT_EQ(report->steps, 16u);
  EXPECT_EQ(report->rounds, 4u);
}

}  // namespace
}  // namespace sluice::worker
