// SPDX-License-Identifier: Apache-2.0
// Tests copies of a model that run some of a step's passes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/worker/train/memory_job.h"
#include "worker/torch/data_parallel.h"
#include "worker/torch/module_replicas.h"

namespace sluice::worker {
namespace {

namespace nn = torch::nn;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

nn::Sequential Net() {
  torch::manual_seed(7);
  return nn::Sequential(nn::Linear(3, 4), nn::BatchNorm1d(4), nn::Linear(4, 2));
}

class ModuleReplicasTest : public ::testing::Test {
 protected:
  void Wrap(uint32_t accumulation, bool atomic = false) {
    auto replicas = ModuleReplicas::Create(*model_, {copy_.ptr()});
    ASSERT_TRUE(replicas.ok()) << replicas.status();
    replicas_ = *std::move(replicas);
    auto made = DataParallel::Join(
        *model_, session_.get(),
        {.accumulation_steps = accumulation, .atomic_step = atomic, .replicas = replicas_.get()});
    ASSERT_TRUE(made.ok()) << made.status();
    parallel_ = *std::move(made);
    replicas_->Load();
  }
  // Runs a pass in which the gradient of the last bias is `factor`.
  static void Pass(nn::Sequential& model, float factor) {
    (model->forward(torch::rand({4, 3})).sum() * (factor / 4)).backward();
  }
  at::Tensor Bias() { return model_[2]->as<nn::Linear>()->bias; }

  MemoryJob job_{1};
  std::unique_ptr<MemoryJob::RankSession> session_ = job_.MakeSession(0);
  nn::Sequential model_ = Net(), copy_ = Net();
  std::unique_ptr<ModuleReplicas> replicas_;
  std::unique_ptr<DataParallel> parallel_;
};

TEST_F(ModuleReplicasTest, PassesOfAllAreAveragedAndLeaveDuringTheModelsLast) {
  ASSERT_NO_FATAL_FAILURE(Wrap(4));
  for (int step = 0; step < 2; ++step) {
    Pass(copy_, 2);
    parallel_->CountPassesOfReplicas(1);
    Pass(model_, 1);
    EXPECT_THAT(session_->submitted(), IsEmpty());
    Pass(copy_, 4);
    parallel_->CountPassesOfReplicas(2);
    Pass(model_, 5);
    EXPECT_THAT(session_->submitted(), SizeIs(6));
    ASSERT_TRUE(parallel_->Synchronize().ok());
    EXPECT_TRUE(torch::allclose(Bias().grad(), torch::full({2}, 3.0f)));
    Bias().mutable_grad().zero_();
  }
}

TEST_F(ModuleReplicasTest, AStepThatRanOutOfDataAveragesThePassesItHad) {
  ASSERT_NO_FATAL_FAILURE(Wrap(4));
  Pass(copy_, 2);
  parallel_->CountPassesOfReplicas(1);
  Pass(model_, 1);
  Pass(model_, 6);
  ASSERT_TRUE(parallel_->Synchronize().ok());
  EXPECT_TRUE(torch::allclose(Bias().grad(), torch::full({2}, 3.0f)));
}

TEST_F(ModuleReplicasTest, WhatACopyAloneFoundCounts) {
  ASSERT_NO_FATAL_FAILURE(Wrap(2));
  Pass(copy_, 8);
  parallel_->CountPassesOfReplicas(1);
  model_[0]->as<nn::Linear>()->forward(torch::ones({1, 3})).sum().backward();
  ASSERT_TRUE(parallel_->Synchronize().ok());
  EXPECT_TRUE(torch::allclose(Bias().grad(), torch::full({2}, 4.0f)));
}

TEST_F(ModuleReplicasTest, ACopyThatOverflowsSkipsTheStep) {
  ASSERT_NO_FATAL_FAILURE(Wrap(2, /*atomic=*/true));
  Pass(copy_, INFINITY);
  parallel_->CountPassesOfReplicas(1);
  Pass(model_, 1);
  ASSERT_TRUE(parallel_->Synchronize().ok());
  EXPECT_FALSE(parallel_->overflowed().empty());
  // The next step must not be affected.
  EXPECT_FALSE(Bias().grad().defined()) << "no rank contributed a gradient";
  Pass(copy_, 1);
  parallel_->CountPassesOfReplicas(1);
  Pass(model_, 3);
  ASSERT_TRUE(parallel_->Synchronize().ok());
  EXPECT_TRUE(parallel_->overflowed().empty());
  EXPECT_TRUE(torch::allclose(Bias().grad(), torch::full({2}, 2.0f)));
}

TEST_F(ModuleReplicasTest, ParametersAndBuffersGoOutAndStatisticsComeBackAsAMean) {
  ASSERT_NO_FATAL_FAILURE(Wrap(2));
  const auto statistics = [](nn::Sequential& model) {
    return model[1]->as<nn::BatchNorm1d>()->running_mean;
  };
  {
    const at::NoGradGuard no_grad;
    Bias().fill_(5);
    statistics(model_).fill_(1);
    replicas_->Load();
    EXPECT_TRUE(torch::equal(copy_[2]->as<nn::Linear>()->bias, torch::full({2}, 5.0f)));
    EXPECT_TRUE(torch::equal(statistics(copy_), torch::ones({4})));
    statistics(copy_).fill_(4);
  }
  replicas_->AverageBuffers(0);
  EXPECT_TRUE(torch::equal(statistics(model_), torch::ones({4})));
  replicas_->AverageBuffers(1);
  EXPECT_TRUE(torch::equal(statistics(model_), torch::full({4}, 2.5f)));
}

TEST_F(ModuleReplicasTest, OtherModelsAreRefusedByName) {
  nn::Sequential wider(nn::Linear(3, 5), nn::BatchNorm1d(5), nn::Linear(5, 2));
  EXPECT_THAT(ModuleReplicas::Create(*model_, {wider.ptr()}).status().message(),
              AllOf(HasSubstr("parameter 0.weight"), HasSubstr("another shape or type")));
  nn::Sequential other(nn::Linear(3, 4), nn::LayerNorm(nn::LayerNormOptions({4})),
                       nn::Linear(4, 2));
  EXPECT_THAT(ModuleReplicas::Create(*model_, {other.ptr()}).status().message(),
              HasSubstr("buffer 1.running_mean is missing"));
}

}  // namespace
}  // namespace sluice::worker
