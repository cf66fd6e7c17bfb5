// SPDX-License-Identifier: Apache-2.0
#include "worker/train/train.h"

#include <torch/torch.h>

#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "absl/strings/escaping.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/train/memory_job.h"
#include "tests/worker/train/small_job.h"
#include "tests/worker/train/train_alone.h"
#include "worker/train/parameters_file.h"

namespace sluice::worker {
namespace {

using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::SizeIs;

std::string ScratchFolder() {
  return ::testing::TempDir() + "/" +
         ::testing::UnitTest::GetInstance()->current_test_info()->name();
}

c10::Dict<c10::IValue, c10::IValue> LoadParameters(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  return torch::pickle_load(bytes).toGenericDict();
}

TEST(TrainTest, LearnsAndReports) {
  MemoryJob job(1);
  const auto session = job.MakeSession(0);
  uint64_t last_step = 0;
  TrainOptions options;
  options.on_progress = [&](const Progress& progress) { last_step = progress.step; };
  const auto report = RunTraining(SmallJob(), 0, session.get(), options, Logger("worker-0"));
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->steps, 32);
  EXPECT_EQ(report->skipped, 0);
  EXPECT_EQ(report->parameters, 784 * 32 + 32 + 32 * 10 + 10);
  EXPECT_GT(report->test_accuracy.value_or(0), 0.9);
  EXPECT_LT(report->test_loss.value_or(9), 1.0);
  EXPECT_GT(report->step_ms_p95, 0);
  EXPECT_GT(report->samples_per_second, 0);
  EXPECT_EQ(report->traffic.steps, 32);
  EXPECT_TRUE(session->left());
  EXPECT_EQ(last_step, 32);
  ASSERT_THAT(session->reported_parameters(), SizeIs(1));
  EXPECT_EQ(absl::BytesToHexString(session->reported_parameters().at(32)),
            report->parameters_sha256);
  EXPECT_EQ(session->progress().back().total_steps, 32);
  EXPECT_EQ(session->progress().back().validation_metric, report->test_accuracy);
  ASSERT_THAT(session->tested(), SizeIs(Ge(2))) << "a test follows each epoch and the last step";
  EXPECT_EQ(session->tested().back(), report->test_accuracy);
}

TEST(TrainTest, OneSeedGivesTheSameBits) {
  job::JobSpec spec = SmallJob();
  const auto one = TrainAlone(spec);
  const auto same = TrainAlone(spec);
  spec.seed = 12;
  const auto other = TrainAlone(spec);
  ASSERT_TRUE(one.ok() && same.ok() && other.ok());
  EXPECT_EQ(one->parameters_sha256, same->parameters_sha256);
  EXPECT_NE(one->parameters_sha256, other->parameters_sha256);
}

TEST(TrainTest, StepsMayEndWithinAnEpochAndPassesMakeSteps) {
  job::JobSpec spec = SmallJob();
  spec.training.epochs = 0;
  spec.training.steps = 11;
  spec.training.gradient_accumulation_steps = 2;  // 8 steps per epoch.
  const auto report = TrainAlone(spec);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->steps, 11);
}

// With 65 samples in batches of 16, the second rank has no data for the third step of an epoch. The
// rank must skip the step, and all ranks must end with equal parameters.
TEST(TrainTest, ARankWithoutDataSkipsAndAllEndAlike) {
  job::JobSpec spec = SmallJob();
  spec.workers = 2;
  spec.data.limit = 65;
  spec.training.batch_size_per_worker = 16;
  MemoryJob job(2);
  const auto session0 = job.MakeSession(0);
  const auto session1 = job.MakeSession(1);
  absl::StatusOr<TrainReport> report1;
  std::thread other(
      [&] { report1 = RunTraining(spec, 1, session1.get(), {}, Logger("worker-1")); });
  const auto report0 = RunTraining(spec, 0, session0.get(), {}, Logger("worker-0"));
  other.join();
  ASSERT_TRUE(report0.ok()) << report0.status();
  ASSERT_TRUE(report1.ok()) << report1.status();
  EXPECT_EQ(report0->steps, 6);
  EXPECT_EQ(report1->steps, 6);
  EXPECT_EQ(session0->skips(), 0);
  EXPECT_EQ(session1->skips(), 2);
  EXPECT_EQ(report0->parameters_sha256, report1->parameters_sha256);
  EXPECT_TRUE(report0->test_accuracy.has_value());
  EXPECT_FALSE(report1->test_accuracy.has_value());
}

TEST(TrainTest, GivesUpWhenGradientsStayNonFinite) {
  MemoryJob job(1);
  const auto session = job.MakeSession(0);
  session->PretendNonFinite("fc1.weight");
  const auto report = RunTraining(SmallJob(), 0, session.get(), {}, Logger("worker-0"));
  EXPECT_THAT(report.status().message(), HasSubstr("20 steps in a row"));
  EXPECT_THAT(report.status().message(), HasSubstr("fc1.weight"));
  EXPECT_EQ(session->abandoned(), report.status().message());
  EXPECT_FALSE(session->left());
}

TEST(TrainTest, AFailedAgreementOnParametersEndsTheJobForAllWithTheReason) {
  MemoryJob job(1);
  const auto session = job.MakeSession(0);
  job.FailAgreement(absl::InvalidArgumentError("parameter w is not finite"));
  const auto report = RunTraining(SmallJob(), 0, session.get(), {}, Logger("worker-0"));
  EXPECT_THAT(report.status().message(), HasSubstr("parameter w is not finite"));
  EXPECT_THAT(session->abandoned(), HasSubstr("parameter w is not finite"));
}

TEST(TrainTest, TheStopFlagEndsTheRun) {
  std::atomic<bool> stop = false;
  TrainOptions options;
  options.stop = &stop;
  options.on_progress = [&](const Progress&) { stop = true; };
  job::JobSpec spec = SmallJob();
  spec.training.epochs = 0;
  spec.training.steps = 1u << 30;
  MemoryJob job(1);
  const auto session = job.MakeSession(0);
  const auto report = RunTraining(spec, 0, session.get(), options, Logger("worker-0"));
  EXPECT_EQ(report.status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(session->traffic().steps, 1);
}

TEST(TrainTest, DataThatIsNotThereFailsBeforeTheJoin) {
  job::JobSpec spec = SmallJob();
  spec.data.format = job::DataFormat::kIdx;
  spec.data.path = "/none";
  spec.data.train_images = "images.gz";
  MemoryJob job(1);
  const auto session = job.MakeSession(0);
  const auto report = RunTraining(spec, 0, session.get(), {}, Logger("worker-0"));
  EXPECT_THAT(report.status().message(), HasSubstr("/none/images.gz"));
  EXPECT_TRUE(session->abandoned().empty());
}

TEST(TrainTest, WhatLibTorchThrowsBecomesAStatus) {
  job::JobSpec spec = SmallJob();
  spec.optimizer.lr = -1;
  EXPECT_THAT(TrainAlone(spec).status().message(), HasSubstr("learning rate"));
}

TEST(TrainTest, OutputHoldsTheTrainedParameters) {
  job::JobSpec spec = SmallJob();
  spec.training.epochs = 1;
  spec.output = ScratchFolder() + "/new";
  const auto report = TrainAlone(spec);
  ASSERT_TRUE(report.ok()) << report.status();
  const auto loaded = LoadParameters(spec.output + "/parameters.pt");
  EXPECT_EQ(loaded.size(), 4);
  EXPECT_EQ(loaded.at("fc1.weight").toTensor().sizes(), at::IntArrayRef({32, 784}));
  EXPECT_TRUE(std::filesystem::exists(spec.output + "/parameters.safetensors"));
}

struct Odd : torch::nn::Module {
  Odd() {
    values = register_parameter("values", torch::arange(6, torch::kFloat).reshape({2, 3}));
    register_parameter("turned", torch::arange(6, torch::kFloat).reshape({2, 3}).t());
    register_parameter("tied", values);
    register_parameter("frozen", torch::ones({1}), /*requires_grad=*/false);
    register_buffer("count", torch::tensor({5}, torch::kLong));
  }
  at::Tensor values;
};

TEST(ParametersFileTest, RoundTripsThroughPickleLoad) {
  const Odd module;
  const std::string folder = ScratchFolder();
  const absl::Status saved = SaveParameters(FormatParameters(module), folder + "/parameters.pt");
  ASSERT_TRUE(saved.ok()) << saved;
  const auto loaded = LoadParameters(folder + "/parameters.pt");
  EXPECT_EQ(loaded.size(), 5);
  for (const auto& entry : module.named_parameters()) {
    EXPECT_TRUE(torch::equal(loaded.at(entry.key()).toTensor(), entry.value())) << entry.key();
  }
  EXPECT_TRUE(torch::equal(loaded.at("count").toTensor(), torch::tensor({5}, torch::kLong)));
  EXPECT_FALSE(std::filesystem::exists(folder + "/parameters.pt.unfinished"));
}

TEST(ParametersFileTest, SafetensorsHasTypesShapesAndRows) {
  const absl::StatusOr<std::string> file = FormatSafetensors(TensorsOf(Odd()));
  ASSERT_TRUE(file.ok()) << file.status();
  for (const char* const entry :
       {R"("turned":{"dtype":"F32","shape":[3,2],"data_offsets":[24,48]})",
        R"("tied":{"dtype":"F32","shape":[2,3],"data_offsets":[48,72]})",
        R"("count":{"dtype":"I64","shape":[1],"data_offsets":[76,84]})"}) {
    EXPECT_THAT(*file, HasSubstr(entry));
  }
  // A transposed tensor is written in the order of its own rows.
  const float turned[] = {0, 3, 1, 4, 2, 5};
  EXPECT_THAT(*file, HasSubstr(std::string(reinterpret_cast<const char*>(turned), sizeof turned)));
}

TEST(ParametersFileTest, SafetensorsNamesTheTensorThatItCannotHold) {
  const NamedTensors tensors = {{"phase", torch::zeros({2}, torch::kComplexFloat)}};
  EXPECT_THAT(FormatSafetensors(tensors).status().message(), HasSubstr("tensor phase has type"));
}

TEST(ParametersFileTest, SaysWhereItCannotWrite) {
  EXPECT_THAT(SaveParameters(FormatParameters(Odd()), "/dev/null/here/x.pt").message(),
              HasSubstr("/dev/null/here"));
}

}  // namespace
}  // namespace sluice::worker
