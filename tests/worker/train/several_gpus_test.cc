// SPDX-License-Identifier: Apache-2.0
// A worker that distributes its passes over several GPUs must get the same results as one device
// that runs them in turn.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>

#include "tests/worker/train/memory_job.h"
#include "tests/worker/train/small_job.h"
#include "tests/worker/train/train_once.h"
#include "worker/train/train.h"

namespace sluice::worker {
namespace {

job::JobSpec JobOf(const std::string& device, uint32_t gpus, uint32_t passes) {
  job::JobSpec spec = SmallJob();
  spec.training.device = device;
  spec.training.gpus_per_worker = gpus;
  spec.training.gradient_accumulation_steps = passes;
  return spec;
}

TEST(SeveralGpusTest, TrainWhatOneDeviceTrains) {
  for (const job::Precision precision :
       {job::Precision::kFp32, job::Precision::kBf16, job::Precision::kFp16}) {
    job::JobSpec one = JobOf("cpu", 1, 2), two = JobOf("cuda", 2, 2);
    // The last step of an epoch has only one pass.
    one.data.limit = two.data.limit = 480;
    one.training.precision = two.training.precision = precision;
    const Ran wanted = TrainOnce(one), got = TrainOnce(two);
    EXPECT_EQ(got.report.parameters_sha256, wanted.report.parameters_sha256) << NameOf(precision);
    EXPECT_EQ(got.report.train_loss, wanted.report.train_loss) << NameOf(precision);
  }
}

TEST(SeveralGpusTest, GoOnFromEachOthersCheckpoints) {
  const job::JobSpec one = JobOf("cpu", 1, 2), two = JobOf("cuda", 2, 2);
  const Ran straight = TrainOnce(one);
  const Ran there = TrainOnce(two);
  ASSERT_GT(there.saved.size(), 7u);
  EXPECT_EQ(TrainOnce(one, 7, there.saved.at(7)).report.parameters_sha256,
            straight.report.parameters_sha256);
  EXPECT_EQ(TrainOnce(two, 7, straight.saved.at(7)).report.parameters_sha256,
            straight.report.parameters_sha256);
}

// The number of passes is not a multiple of the number of GPUs. The sum then has a different order:
// g0 + g2 first, and then g1.
TEST(SeveralGpusTest, SharePassesThatAreNoMultiple) {
  const Ran wanted = TrainOnce(JobOf("cpu", 1, 3)), got = TrainOnce(JobOf("cuda", 2, 3));
  EXPECT_NEAR(got.report.train_loss, wanted.report.train_loss, 1e-4);
}

TEST(SeveralGpusTest, AverageTheStatisticsOfTheirBatches) {
  job::JobSpec one = JobOf("cuda", 1, 2), two = JobOf("cuda", 2, 2);
  one.model = two.model = {};
  one.model.name = two.model.name = "simple_cnn";
  one.data.limit = two.data.limit = 128;
  const Ran wanted = TrainOnce(one), got = TrainOnce(two);
  EXPECT_NEAR(got.report.train_loss, wanted.report.train_loss, 0.05);
  EXPECT_NE(got.report.parameters_sha256, "");
}

TEST(SeveralGpusTest, MoreThanThereAreAreRefused) {
  MemoryJob job(1);
  const auto session = job.MakeSession(0);
  const absl::Status status =
      RunTraining(JobOf("auto", 3, 3), 0, session.get(), {}, Logger("worker-0")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), testing::HasSubstr("LibTorch sees 2 GPUs"));
}

}  // namespace
}  // namespace sluice::worker
