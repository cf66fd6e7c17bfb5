// SPDX-License-Identifier: Apache-2.0
// A step without any rank's gradient must change nothing, wherever the optimizer runs.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/worker/train/memory_job.h"
#include "tests/worker/train/small_job.h"
#include "worker/data/batch_stream.h"
#include "worker/data/dataset.h"
#include "worker/train/model_trainer.h"

namespace sluice::worker {
namespace {

constexpr double kRate = 0.001;

// Runs the only rank of a job, step by step.
class OneRank {
 public:
  explicit OneRank(const job::JobSpec& spec)
      : spec_(spec),
        data_(*OpenDatasets(spec_.data, /*with_test=*/false)),
        sampler_({.samples = data_.training->size(),
                  .ranks = 1,
                  .rank = 0,
                  .batch_size = spec_.training.batch_size_per_worker,
                  .passes_per_step = 1,
                  .seed = spec_.seed}),
        batches_(
            data_.training.get(), &sampler_,
            {.epoch = {.seed = spec_.seed, .epoch = 0}, .end_step = sampler_.steps_per_epoch()}),
        trainer_(*ModelTrainer::Create(spec_, 0, data_.training->shape(), &logger_)) {
    EXPECT_TRUE(trainer_->Join(session_.get()).ok());
    session_->SetRate(static_cast<float>(kRate));
  }

  void Step() { Do({}); }
  // Runs a step in which all ranks skip.
  void EmptyStep() { Do({.closed = true}); }
  // Drops the same batches as EmptyStep, without an exchange.
  void LeaveOut() { Do({.exchange_begins = false, .exchange_ends = false, .closed = true}); }
  std::string hash() const { return trainer_->ParametersSha256(); }

 private:
  void Do(StepInput plan) {
    plan.step_of_deal = step_++;
    plan.step = step_;
    plan.rate = kRate;
    const auto done = trainer_->Step(plan, &batches_);
    ASSERT_TRUE(done.ok()) << done.status();
  }

  const job::JobSpec spec_;
  const Logger logger_{"worker-0"};
  MemoryJob job_{1};
  std::unique_ptr<MemoryJob::RankSession> session_ = job_.MakeSession(0);
  const Datasets data_;
  const ShardSampler sampler_;
  BatchStream batches_;
  const std::unique_ptr<ModelTrainer> trainer_;
  uint64_t step_ = 0;
};

class EmptyStepTest : public ::testing::TestWithParam<job::OptimizerSpec> {};

TEST_P(EmptyStepTest, IsAsIfItHadNotBeen) {
  for (const job::Precision precision :
       {job::Precision::kFp32, job::Precision::kBf16, job::Precision::kFp16}) {
    job::JobSpec spec = SmallJob();
    spec.optimizer = GetParam();
    spec.optimizer.lr = kRate;
    spec.training.precision = precision;
    OneRank with(spec), without(spec);
    for (int i = 0; i < 2; ++i) {
      with.Step();
      without.Step();
    }
    const std::string before = with.hash();
    with.EmptyStep();
    EXPECT_EQ(with.hash(), before) << NameOf(precision);
    // The optimizer's state is unchanged too.
    without.LeaveOut();
    with.Step();
    without.Step();
    EXPECT_NE(with.hash(), before);
    EXPECT_EQ(with.hash(), without.hash()) << NameOf(precision);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, EmptyStepTest,
    ::testing::Values(job::OptimizerSpec{.name = "sgd", .weight_decay = 0.01},
                      job::OptimizerSpec{.name = "sgd", .momentum = 0.9, .weight_decay = 0.01},
                      job::OptimizerSpec{.name = "adam"},
                      job::OptimizerSpec{.name = "adamw", .weight_decay = 0.1},
                      job::OptimizerSpec{.name = "rmsprop", .momentum = 0.9},
                      job::OptimizerSpec{.name = "sgd", .location = job::UpdateLocation::kShards}),
    [](const auto& test) { return absl::StrCat(test.param.name, test.index); });

}  // namespace
}  // namespace sluice::worker
