// SPDX-License-Identifier: Apache-2.0
// Tests RunTraining from checkpoints. An interrupted run must end like an uninterrupted one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <map>
#include <optional>
#include <thread>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "tests/worker/train/memory_job.h"
#include "tests/worker/train/small_job.h"
#include "worker/train/train.h"

namespace sluice::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

job::JobSpec JobWith(const std::string& optimizer) {
  job::JobSpec spec = SmallJob();
  spec.model.hidden = {16};
  spec.optimizer.name = optimizer;
  spec.optimizer.lr = optimizer == "sgd" ? 0.05 : 0.002;
  spec.optimizer.momentum = optimizer == "sgd" ? 0.9 : 0;
  spec.lr_schedule.name = "cosine";
  return spec;
}

class ResumeTest : public ::testing::TestWithParam<const char*> {};

TEST_P(ResumeTest, EndsAsIfNeverStoppedWhereverItWas) {
  const job::JobSpec spec = JobWith(GetParam());
  const Logger logger("worker-0");
  TrainOptions options;
  const auto data = LoadTrainingData(spec, 0);
  ASSERT_TRUE(data.ok()) << data.status();
  options.data = *data;
  MemoryJob plain_job(1);
  const auto plain = RunTraining(spec, 0, plain_job.MakeSession(0).get(), options, logger);
  ASSERT_TRUE(plain.ok()) << plain.status();

  MemoryJob job(1);
  const auto session = job.MakeSession(0);
  session->CheckpointEvery(1);
  const auto undisturbed = RunTraining(spec, 0, session.get(), options, logger);
  ASSERT_TRUE(undisturbed.ok()) << undisturbed.status();
  EXPECT_EQ(undisturbed->parameters_sha256, plain->parameters_sha256);
  ASSERT_THAT(session->saved(), SizeIs(32));

  for (const uint64_t step : {1, 7, 15, 16, 17, 31, 32}) {
    MemoryJob again(1);
    const auto restored = again.MakeSession(0);
    restored->RestoreAfter(step, session->saved().at(step));
    const auto report = RunTraining(spec, 0, restored.get(), options, logger);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->parameters_sha256, plain->parameters_sha256) << "after step " << step;
    EXPECT_EQ(report->train_loss, plain->train_loss) << "after step " << step;
    EXPECT_EQ(report->test_accuracy, plain->test_accuracy) << "after step " << step;
    EXPECT_EQ(report->steps, 32u);
    EXPECT_EQ(report->traffic.steps, 32u) << "after step " << step;
    EXPECT_EQ(report->traffic.bytes_up, 320u) << "after step " << step;
    EXPECT_EQ(restored->progress().back().epoch, 2u) << "after step " << step;
    EXPECT_TRUE(restored->left());
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, ResumeTest,
                         ::testing::Values("sgd", "adam", "adamw", "muon", "rmsprop"));

// Plans change the momentum, and the checkpoint contains its last value. The interrupted run must
// end with equal parameters.
TEST_P(ResumeTest, EndsAsIfNeverStoppedWhileTheMomentumChanges) {
  job::JobSpec spec = JobWith(GetParam());
  if (spec.optimizer.name == "rmsprop") spec.optimizer.momentum = 0.9;
  const Logger logger("worker-0");
  const auto run = [&](MemoryJob::RankSession* session, bool plans) {
    if (plans) {
      session->PlanFrom(5, 0.5f);
      session->PlanFrom(12, 0.0f);
      session->PlanFrom(20, std::nullopt);
    }
    const auto report = RunTraining(spec, 0, session, {}, logger);
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? report->parameters_sha256 : "";
  };
  MemoryJob job(1);
  const auto session = job.MakeSession(0);
  session->CheckpointEvery(1);
  const std::string undisturbed = run(session.get(), true);
  for (const uint64_t step : {1, 4, 5, 11, 12, 15, 19, 20, 31}) {
    MemoryJob again(1);
    const auto restored = again.MakeSession(0);
    restored->RestoreAfter(step, session->saved().at(step));
    EXPECT_EQ(run(restored.get(), true), undisturbed) << "after step " << step;
  }
  MemoryJob plain(1);
  EXPECT_NE(run(plain.MakeSession(0).get(), false), undisturbed);
}

// Augmented images must give the same bits with and without an interruption, and with any prefetch.
TEST(ResumeData, AugmentedImagesComeAsTheyWouldHave) {
  job::JobSpec spec = JobWith("sgd");
  spec.data.format = job::DataFormat::kSyntheticCifar;
  spec.data.limit = 200;  // 4 steps per epoch. The last step has one pass and a part of another.
  spec.data.crop_padding = 4;
  spec.data.flip = true;
  spec.training.gradient_accumulation_steps = 2;
  const Logger logger("worker-0");
  const auto run = [&](uint32_t prefetch, uint64_t step, const std::string& state) {
    spec.data.prefetch = prefetch;
    MemoryJob job(1);
    auto session = job.MakeSession(0);
    session->CheckpointEvery(1);
    if (step > 0) session->RestoreAfter(step, state);
    const auto report = RunTraining(spec, 0, session.get(), {}, logger);
    EXPECT_TRUE(report.ok()) << report.status();
    return std::make_pair(report.ok() ? report->parameters_sha256 : "", session->saved());
  };
  const auto [plain, saved] = run(0, 0, "");
  ASSERT_THAT(saved, SizeIs(8));
  for (const uint32_t prefetch : {1u, 2u, 50u}) EXPECT_EQ(run(prefetch, 0, "").first, plain);
  for (const uint64_t step : {1, 3, 4, 5, 8}) {
    EXPECT_EQ(run(2, step, saved.at(step)).first, plain) << "after step " << step;
  }
  spec.data.flip = false;
  EXPECT_NE(run(2, 0, "").first, plain);
}

// With 65 samples in batches of 16, the second rank has no data for the third step of an epoch.
// Both ranks must continue from any step.
TEST(ResumeRanksTest, AllRanksGoOnWhereOneSkips) {
  job::JobSpec spec = JobWith("sgd");
  spec.workers = 2;
  spec.data.limit = 65;
  spec.training.batch_size_per_worker = 16;
  spec.training.gradient_accumulation_steps = 1;
  // Returns both ranks' hashes. If `step` is not 0, the ranks are restored after that step.
  const auto run = [&](uint64_t step, std::map<uint64_t, std::string>(&saved)[2]) {
    MemoryJob job(2);
    std::unique_ptr<MemoryJob::RankSession> sessions[2];
    absl::StatusOr<TrainReport> reports[2];
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < 2; ++rank) {
      sessions[rank] = job.MakeSession(rank);
      sessions[rank]->CheckpointEvery(1);
      if (step > 0) sessions[rank]->RestoreAfter(step, saved[rank].at(step));
    }
    for (uint32_t rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        reports[rank] = RunTraining(spec, rank, sessions[rank].get(), {},
                                    Logger(absl::StrCat("worker-", rank)));
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (uint32_t rank = 0; rank < 2; ++rank) {
      EXPECT_TRUE(reports[rank].ok()) << reports[rank].status();
      if (step == 0) saved[rank] = sessions[rank]->saved();
    }
    return reports[0]->parameters_sha256 + " " + reports[1]->parameters_sha256;
  };
  std::map<uint64_t, std::string> saved[2];
  const std::string undisturbed = run(0, saved);
  for (const uint64_t step : {2, 3, 4}) EXPECT_EQ(run(step, saved), undisturbed) << step;
}

// Three ranks, or one rank, finish a pass that two ranks began. The run with three ranks must also
// continue after an interruption.
TEST(ResumeRanksTest, OtherRanksGoOn) {
  std::map<uint32_t, std::map<uint64_t, std::string>> saved;  // By rank, then step.
  const auto run = [&](uint32_t ranks, uint64_t step, bool save) {
    job::JobSpec spec = JobWith("sgd");
    spec.workers = ranks;
    MemoryJob job(ranks);
    std::vector<std::unique_ptr<MemoryJob::RankSession>> sessions;
    std::vector<absl::StatusOr<TrainReport>> reports(ranks);
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      sessions.push_back(job.MakeSession(rank));
      sessions[rank]->CheckpointEvery(1);
      const auto had = static_cast<uint32_t>(saved.size());
      if (step > 0) sessions[rank]->RestoreAfter(step, saved[rank % had].at(step));
    }
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank, spec] {
        reports[rank] = RunTraining(spec, rank, sessions[rank].get(), {},
                                    Logger(absl::StrCat("worker-", rank)));
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      EXPECT_TRUE(reports[rank].ok()) << reports[rank].status();
      EXPECT_EQ(reports[rank]->parameters_sha256, reports[0]->parameters_sha256) << rank;
    }
    if (save) saved.clear();
    for (uint32_t rank = 0; save && rank < ranks; ++rank) saved[rank] = sessions[rank]->saved();
    return *reports[0];
  };
  const TrainReport of_two = run(2, 0, /*save=*/true);
  EXPECT_EQ(of_two.steps, 16u) << "two passes of 512 samples take 16 steps of 64 samples";
  // After 5 steps, 192 samples of the first pass are left.
  EXPECT_EQ(run(1, 5, false).steps, 5u + 6 + 16);
  EXPECT_EQ(run(1, 8, false).steps, 8u + 16) << "step 8 is the last one of a pass";
  const TrainReport of_three = run(3, 5, /*save=*/true);
  EXPECT_EQ(of_three.steps, 5u + 2 + 6);
  EXPECT_LT(of_three.test_loss.value(), 0.7 * std::log(10.0)) << "guessing would give log 10";
  for (const uint64_t step : {6, 7, 8, 13}) {
    EXPECT_EQ(run(3, step, false).parameters_sha256, of_three.parameters_sha256) << step;
  }
}

TEST(ResumeErrorsTest, RankZeroAddsParametersThatPyTorchReads) {
  MemoryJob job(1);
  const auto session = job.MakeSession(0);
  session->CheckpointEvery(32);
  const auto report = RunTraining(JobWith("sgd"), 0, session.get(), {}, Logger("worker-0"));
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_THAT(session->saved_files(), SizeIs(1));
  EXPECT_EQ(session->saved_files()[0].name, "parameters.pt");
  const std::string& bytes = session->saved_files()[0].bytes;
  const auto dict =
      torch::pickle_load(std::vector<char>(bytes.begin(), bytes.end())).toGenericDict();
  EXPECT_EQ(dict.size(), 4u);
  EXPECT_EQ(dict.at("fc1.weight").toTensor().sizes(), at::IntArrayRef({16, 784}));
}

TEST(ResumeErrorsTest, AStateThatDoesNotFitEndsTheJobForAll) {
  MemoryJob job(1);
  const auto session = job.MakeSession(0);
  session->CheckpointEvery(4);
  ASSERT_TRUE(RunTraining(JobWith("sgd"), 0, session.get(), {}, Logger("worker-0")).ok());
  const auto fails_with = [&](const job::JobSpec& spec, uint64_t step, std::string state) {
    MemoryJob again(1);
    const auto restored = again.MakeSession(0);
    restored->RestoreAfter(step, std::move(state));
    const auto report = RunTraining(spec, 0, restored.get(), {}, Logger("worker-0"));
    EXPECT_FALSE(report.ok());
    EXPECT_EQ(restored->abandoned(), report.status().message());
    return std::string(report.status().message());
  };
  EXPECT_THAT(fails_with(JobWith("sgd"), 8, session->saved().at(4)), HasSubstr("after step 4"));
  EXPECT_THAT(fails_with(JobWith("sgd"), 8, "no archive"), HasSubstr("LibTorch"));
  job::JobSpec wider = JobWith("sgd");
  wider.model.hidden = {17};
  EXPECT_THAT(fails_with(wider, 4, session->saved().at(4)), HasSubstr("fc1.weight"));
  job::JobSpec shorter = JobWith("sgd");
  shorter.training.epochs = 1;
  EXPECT_THAT(fails_with(shorter, 32, session->saved().at(32)), HasSubstr("made shorter"));
}

TEST(ResumeErrorsTest, ARollbackIsNobodysFailure) {
  MemoryJob job(1);
  const auto session = job.MakeSession(0);
  session->FailNextSubmit(RollbackError("the job went back"));
  const auto report = RunTraining(JobWith("sgd"), 0, session.get(), {}, Logger("worker-0"));
  EXPECT_TRUE(IsRollback(report.status())) << report.status();
  EXPECT_THAT(session->abandoned(), IsEmpty());
}

}  // namespace
}  // namespace sluice::worker
