// SPDX-License-Identifier: Apache-2.0
// Tests RunTraining in bf16 and fp16, with label smoothing, averages and accumulated passes.
#include "worker/train/precision.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <map>
#include <numeric>

#include "tests/worker/train/memory_job.h"
#include "tests/worker/train/small_job.h"
#include "tests/worker/train/train_once.h"
#include "worker/data/dataset.h"
#include "worker/models/make_model.h"
#include "worker/train/train.h"

namespace sluice::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

job::JobSpec JobOf(job::Precision precision) {
  job::JobSpec spec = SmallJob();
  spec.training.precision = precision;
  return spec;
}

class PrecisionTest : public ::testing::TestWithParam<job::Precision> {};

TEST_P(PrecisionTest, LearnsAsFp32Does) {
  const Ran fp32 = TrainOnce(JobOf(job::Precision::kFp32));
  const Ran run = TrainOnce(JobOf(GetParam()));
  EXPECT_NE(run.report.parameters_sha256, fp32.report.parameters_sha256);
  EXPECT_GT(run.report.test_accuracy.value(), 0.9);
  EXPECT_NEAR(run.report.test_loss.value(), fp32.report.test_loss.value(), 0.03);
  EXPECT_EQ(run.parameters.empty(), false);
  EXPECT_EQ(run.Parameter("fc1.weight").scalar_type(), torch::kFloat);
  // The file must contain the masters, not the model's rounded parameters.
  const at::Tensor weight = run.Parameter("fc1.weight");
  EXPECT_FALSE(torch::equal(weight, weight.to(torch::kBFloat16).to(torch::kFloat)));
  EXPECT_EQ(TrainOnce(JobOf(GetParam())).report.parameters_sha256, run.report.parameters_sha256);
}

TEST_P(PrecisionTest, AResumedRunEndsWithTheSameBits) {
  job::JobSpec spec = JobOf(GetParam());
  spec.training.ema_decay = 0.9;
  spec.training.label_smoothing = 0.1;
  spec.training.gradient_accumulation_steps = 2;  // 8 steps per epoch.
  const Ran whole = TrainOnce(spec);
  ASSERT_THAT(whole.saved, SizeIs(16));
  for (const uint64_t step : {1, 8, 13, 16}) {
    const Ran resumed = TrainOnce(spec, step, whole.saved.at(step));
    EXPECT_EQ(resumed.report.parameters_sha256, whole.report.parameters_sha256) << step;
    EXPECT_EQ(resumed.report.test_loss, whole.report.test_loss) << step;
    if (step == 16) continue;
    EXPECT_EQ(resumed.saved.at(16).size(), whole.saved.at(16).size()) << step;
    EXPECT_EQ(resumed.parameters, whole.parameters) << step;
  }
}

TEST_P(PrecisionTest, AStateOfOneIsReadInAnother) {
  job::JobSpec spec = JobOf(GetParam());
  const Ran run = TrainOnce(spec);
  for (const job::Precision other :
       {job::Precision::kFp32, job::Precision::kBf16, job::Precision::kFp16}) {
    spec.training.precision = other;
    const Ran resumed = TrainOnce(spec, 32, run.saved.at(32));
    EXPECT_EQ(resumed.report.parameters_sha256, run.report.parameters_sha256) << NameOf(other);
  }
}

INSTANTIATE_TEST_SUITE_P(All, PrecisionTest,
                         ::testing::Values(job::Precision::kBf16, job::Precision::kFp16),
                         [](const auto& precision) {
                           return std::string(NameOf(precision.param));
                         });

// Inputs are so large that gradients overflow at the first scales. The worker must skip those steps
// until the scale fits.
TEST(LossScalingTest, OverflowsAreSkippedUntilTheScaleFits) {
  job::JobSpec spec = JobOf(job::Precision::kFp16);
  spec.data.mean = {0};
  spec.data.std = {0.01};
  spec.optimizer.lr = 1e-4;
  spec.training.ema_decay = 0.5;
  const Ran run = TrainOnce(spec);
  EXPECT_GT(run.skips, 2u);
  EXPECT_LT(run.skips, 16u);
  EXPECT_EQ(run.report.skipped, run.skips);
  EXPECT_GT(run.report.test_accuracy.value(), 0.7) << "guessing gives 0.1";
  const Ran resumed = TrainOnce(spec, 2, run.saved.at(2));
  EXPECT_EQ(resumed.report.parameters_sha256, run.report.parameters_sha256);
  EXPECT_EQ(resumed.report.skipped, run.report.skipped);
}

TEST(LossScalingTest, AStepThatNobodyHadChangesNothing) {
  job::JobSpec spec = JobOf(job::Precision::kFp16);
  spec.data.mean = {0};
  spec.data.std = {0.01};
  spec.optimizer.weight_decay = 0.1;  // Weight decay would change parameters without any gradient.
  spec.training.epochs = 0;
  spec.training.steps = 1;
  const Ran one = TrainOnce(spec);
  ASSERT_EQ(one.skips, 1u);
  torch::manual_seed(spec.seed);
  const auto model = MakeModel(spec.model, {1, 28, 28, 0, 10});
  ASSERT_TRUE(model.ok());
  EXPECT_TRUE(torch::equal(one.Parameter("fc1.weight"),
                           (*model)->named_parameters()["fc1.weight"].detach()))
      << "the weight must keep its value from before rounding to fp16";
}

TEST(LossScalingTest, GivesUpOnceNoScaleHelps) {
  job::JobSpec spec = JobOf(job::Precision::kFp16);
  spec.data.mean = {0};
  spec.data.std = {1e-7};  // These inputs are infinite in fp16.
  spec.training.epochs = 4;
  MemoryJob job(1);
  const auto session = job.MakeSession(0);
  const auto report = RunTraining(spec, 0, session.get(), {}, Logger("worker-0"));
  EXPECT_THAT(report.status().message(), HasSubstr("20 steps in a row"));
  EXPECT_EQ(session->skips(), 16u + 20) << "16 skips lower the scale from 65536 to 1";
}

TEST(TrainingFeaturesTest, LabelSmoothingIsInTheTrainingLossOnly) {
  job::JobSpec spec = JobOf(job::Precision::kFp32);
  spec.data.limit = 32;  // A single batch.
  spec.training.epochs = 1;
  spec.optimizer.lr = 1e-12;  // Tests then see the initial parameters.
  const double plain = TrainOnce(spec).report.train_loss;
  const double tested = *TrainOnce(spec).report.test_loss;
  spec.training.label_smoothing = 0.2;
  const Ran smoothed = TrainOnce(spec);
  // The loss is (1 - s) * cross entropy + s * mean over classes of -log p.
  torch::manual_seed(spec.seed);
  const auto model = MakeModel(spec.model, {1, 28, 28, 0, 10});
  const auto sets = OpenDatasets(spec.data, false);
  ASSERT_TRUE(model.ok() && sets.ok());
  std::vector<uint32_t> all(32);
  std::iota(all.begin(), all.end(), 0);
  const auto batch = sets->training->MakeBatch(all, {});
  ASSERT_TRUE(batch.ok());
  const at::Tensor scores = (*model)->forward(batch->inputs);
  const double uniform = -torch::log_softmax(scores, 1).mean().item<double>();
  EXPECT_NE(smoothed.report.train_loss, plain);
  EXPECT_NEAR(smoothed.report.train_loss, 0.8 * plain + 0.2 * uniform, 1e-5);
  EXPECT_EQ(*smoothed.report.test_loss, tested);
}

TEST(TrainingFeaturesTest, TheAverageIsTestedAndKeptAndTrainingIsAsWithout) {
  job::JobSpec spec = JobOf(job::Precision::kFp32);
  const Ran plain = TrainOnce(spec);
  spec.training.ema_decay = 0.99;
  const Ran averaged = TrainOnce(spec);
  EXPECT_EQ(averaged.report.parameters_sha256, plain.report.parameters_sha256);
  EXPECT_NE(averaged.report.test_loss, plain.report.test_loss);
  EXPECT_FALSE(torch::equal(averaged.Parameter("fc1.weight"), plain.Parameter("fc1.weight")));
  EXPECT_TRUE(
      torch::allclose(averaged.Parameter("fc1.weight"), plain.Parameter("fc1.weight"), 0.1, 0.05));
}

// Four passes of 32 samples must equal one batch of the same 128 samples.
TEST(TrainingFeaturesTest, FourPassesAreOneBatchFourTimesAsLarge) {
  job::JobSpec spec = JobOf(job::Precision::kFp32);
  spec.training.gradient_accumulation_steps = 4;
  const Ran passes = TrainOnce(spec);
  EXPECT_EQ(TrainOnce(spec).report.parameters_sha256, passes.report.parameters_sha256);
  spec.training.gradient_accumulation_steps = 1;
  spec.training.batch_size_per_worker = 128;
  const Ran batch = TrainOnce(spec);
  EXPECT_EQ(passes.report.steps, batch.report.steps);
  EXPECT_NE(passes.report.parameters_sha256, batch.report.parameters_sha256);
  for (const char* name : {"fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"}) {
    const at::Tensor apart = passes.Parameter(name) - batch.Parameter(name);
    EXPECT_LT(apart.abs().max().item<double>(), 1e-5) << name;
  }
}

// The operations of all models must support both types, forward and backward.
TEST(ModelsPrecisionTest, EachComputesInShortFloats) {
  struct Case {
    const char* name;
    SampleShape shape;
  };
  for (const Case& one :
       {Case{"mlp", {1, 8, 8, 0, 10}}, Case{"simple_cnn", {3, 12, 12, 0, 10}},
        Case{"resnet20", {3, 16, 16, 0, 10}}, Case{"resnet18", {3, 16, 16, 0, 10}},
        Case{"char_gpt", {0, 0, 0, 8, 20}}}) {
    job::ModelSpec spec;
    spec.name = one.name;
    spec.hidden = {16};
    torch::manual_seed(2);
    const auto model = MakeModel(spec, one.shape);
    ASSERT_TRUE(model.ok()) << model.status();
    const at::Tensor inputs =
        one.shape.is_tokens()
            ? torch::randint(20, {2, 8}, torch::kLong)
            : torch::randn({2, one.shape.channels, one.shape.height, one.shape.width});
    const at::Tensor want = Scores(model->get(), inputs, torch::kFloat).detach();
    for (const at::ScalarType type : {torch::kBFloat16, torch::kHalf}) {
      const auto twin = MakeModel(spec, one.shape);
      {
        const torch::NoGradGuard no_grad;
        for (const auto& entry : (*model)->named_parameters()) {
          (*twin)->named_parameters()[entry.key()].copy_(entry.value());
        }
      }
      const NamedTensors before = ConvertParameters(twin->get(), type);
      EXPECT_FALSE(before.empty());
      for (const auto& entry : (*twin)->named_parameters()) {
        const bool norm = std::string(one.name).find("resnet") == 0 && entry.value().dim() == 1 &&
                          entry.key().find("fc") == std::string::npos &&
                          entry.key().find("linear") == std::string::npos;
        EXPECT_EQ(entry.value().scalar_type(), norm ? torch::kFloat : type)
            << one.name << " " << entry.key();
      }
      const at::Tensor scores = Scores(twin->get(), inputs, type);
      EXPECT_EQ(scores.scalar_type(), torch::kFloat);
      EXPECT_LT((scores.detach() - want).abs().max().item<float>(), 0.2) << one.name;
      scores.square().mean().backward();
      for (const at::Tensor& parameter : (*twin)->parameters()) {
        ASSERT_TRUE(parameter.grad().defined());
        EXPECT_EQ(parameter.grad().scalar_type(), parameter.scalar_type());
      }
    }
  }
}

}  // namespace
}  // namespace sluice::worker
