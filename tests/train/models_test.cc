#include "worker/train/models.h"

#include <torch/torch.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/train/evaluation.h"
#include "worker/train/image_batches.h"
#include "worker/train/optimizers.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

ModelSpec Named(const std::string& name, std::vector<uint32_t> hidden = {}) {
  ModelSpec spec;
  spec.name = name;
  spec.hidden = std::move(hidden);
  return spec;
}

int64_t CountElements(const torch::nn::Module& module) {
  int64_t count = 0;
  for (const at::Tensor& tensor : module.parameters()) count += tensor.numel();
  return count;
}

TEST(ModelsTest, SimpleCnnHasItsSizeAndGivesScores) {
  auto model = MakeModel(Named("simple_cnn"), {28, 28});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(CountElements(**model), 215370);
  EXPECT_EQ((*model)->forward(torch::zeros({3, 1, 28, 28})).sizes(), at::IntArrayRef({3, 10}));
  EXPECT_EQ((*model)->named_parameters()[0].key(), "conv1.weight");
  EXPECT_FALSE(MakeModel(Named("simple_cnn"), {3, 28}).ok());
}

TEST(ModelsTest, MlpHasTheLayersOfTheJob) {
  auto model = MakeModel(Named("mlp", {20, 30}), {4, 5});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(CountElements(**model), 20 * 20 + 20 + 20 * 30 + 30 + 30 * 10 + 10);
  EXPECT_EQ((*model)->forward(torch::zeros({3, 1, 4, 5})).sizes(), at::IntArrayRef({3, 10}));
}

TEST(ModelsTest, WhatIsNotKnownIsToldByName) {
  EXPECT_THAT(MakeModel(Named("resnet"), {28, 28}).status().message(), HasSubstr("resnet"));
  EXPECT_THAT(MakeModel(Named("custom"), {28, 28}).status().message(), HasSubstr("own_loop"));
}

TEST(ModelsTest, OneSeedGivesTheSameParameters) {
  torch::manual_seed(3);
  const auto one = MakeModel(Named("mlp"), {4, 4});
  torch::manual_seed(3);
  const auto same = MakeModel(Named("mlp"), {4, 4});
  ASSERT_TRUE(one.ok() && same.ok());
  EXPECT_TRUE(torch::equal((*one)->parameters()[0], (*same)->parameters()[0]));
}

TEST(OptimizersTest, EachDescends) {
  for (const char* name : {"sgd", "adam", "adamw", "rmsprop"}) {
    at::Tensor x = torch::full({4}, 3.0f, torch::requires_grad());
    auto optimizer = MakeOptimizer({.name = name, .lr = 0.01}, {x});
    ASSERT_TRUE(optimizer.ok()) << optimizer.status();
    SetLearningRate(optimizer->get(), 0.1);
    x.square().sum().backward();
    (*optimizer)->step();
    EXPECT_LT(x.max().item<float>(), 2.95f) << name;  // The rate that was set, not the first.
    EXPECT_GT(x.min().item<float>(), 1.0f) << name;
  }
  EXPECT_THAT(MakeOptimizer({.name = "lion"}, {}).status().message(), HasSubstr("lion"));
}

TEST(OptimizersTest, SgdTakesMomentumNesterovAndWeightDecay) {
  at::Tensor x = torch::ones({1}, torch::requires_grad());
  auto optimizer = MakeOptimizer(
      {.name = "sgd", .lr = 0.1, .momentum = 0.5, .nesterov = true, .weight_decay = 1.0}, {x});
  ASSERT_TRUE(optimizer.ok()) << optimizer.status();
  x.mutable_grad() = torch::ones({1});
  (*optimizer)->step();  // d = 1 + 1; nesterov: d + 0.5 d = 3.
  EXPECT_FLOAT_EQ(x.item<float>(), 0.7f);
}

TEST(OptimizersTest, ClipsValuesThenTheNorm) {
  at::Tensor x = torch::zeros({2}, torch::requires_grad());
  const auto clip = [&](const OptimizerSpec& spec) {
    x.mutable_grad() = torch::tensor({3.0f, -4.0f});
    ClipGradients(spec, {x});
    return x.grad();
  };
  EXPECT_TRUE(torch::equal(clip({}), torch::tensor({3.0f, -4.0f})));
  EXPECT_TRUE(torch::allclose(clip({.clip_norm = 1}), torch::tensor({0.6f, -0.8f})));
  EXPECT_TRUE(torch::equal(clip({.clip_value = 2}), torch::tensor({2.0f, -2.0f})));
  const float side = std::sqrt(0.5f);
  EXPECT_TRUE(
      torch::allclose(clip({.clip_norm = 1, .clip_value = 2}), torch::tensor({side, -side})));
}

TEST(ImageBatchesTest, PixelsAreNormalizedAndInOrder) {
  const LabelledImages images{
      .count = 2, .height = 1, .width = 2, .pixels = {0, 255, 51, 102}, .labels = {4, 7}};
  const ImageBatch batch = MakeBatch(images, {.mean = 0.5f, .deviation = 0.25f}, {1, 0});
  EXPECT_TRUE(torch::allclose(batch.images,
                              torch::tensor({-1.2f, -0.4f, -2.0f, 2.0f}).reshape({2, 1, 1, 2})));
  EXPECT_TRUE(torch::equal(batch.labels, torch::tensor({7, 4}, torch::kLong)));
}

TEST(EvaluationTest, CountsWhatIsRight) {
  // A model that always says class 2, with equal scores for the others.
  torch::nn::Sequential model(torch::nn::Flatten(), torch::nn::Linear(1, 10));
  {
    const torch::NoGradGuard no_grad;
    for (at::Tensor tensor : model->parameters()) tensor.zero_();
    model->parameters()[1][2] = 1.0f;
  }
  const LabelledImages images{
      .count = 4, .height = 1, .width = 1, .pixels = {0, 0, 0, 0}, .labels = {2, 2, 2, 5}};
  const auto evaluation = Evaluate(model, images, {}, nullptr);
  ASSERT_TRUE(evaluation.ok()) << evaluation.status();
  EXPECT_EQ(evaluation->accuracy, 0.75);
  EXPECT_NEAR(evaluation->loss, std::log(9 + std::exp(1.0)) - 0.75, 1e-6);
  const std::atomic<bool> stop = true;
  EXPECT_EQ(Evaluate(model, images, {}, &stop).status().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace sluice
