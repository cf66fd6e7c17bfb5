#include "worker/train/optimizers.h"

#include <torch/torch.h>

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

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

}  // namespace
}  // namespace sluice
