// SPDX-License-Identifier: Apache-2.0
#include "worker/train/optimizers.h"

#include <torch/torch.h>

#include <cmath>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "job/momentum.h"

namespace sluice::worker {
namespace {

using ::testing::HasSubstr;

TEST(OptimizersTest, EachDescends) {
  for (const char* name : {"sgd", "adam", "adamw", "muon", "rmsprop"}) {
    at::Tensor x = torch::full({4}, 3.0f, torch::requires_grad());
    auto optimizer = MakeOptimizer({.name = name, .lr = 0.01}, {x});
    ASSERT_TRUE(optimizer.ok()) << optimizer.status();
    SetLearningRate(optimizer->get(), 0.1);
    x.square().sum().backward();
    (*optimizer)->step();
    EXPECT_LT(x.max().item<float>(), 2.95f) << name;  // The new rate took effect.
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

// Runs one step per momentum on a single parameter. The gradients are 1, 2, 3, ..., and the
// learning rate comes from `spec`.
std::vector<float> Steps(const job::OptimizerSpec& spec, const std::vector<double>& momenta) {
  at::Tensor x = torch::zeros({1}, torch::requires_grad());
  auto optimizer = *MakeOptimizer(spec, {x});
  std::vector<float> values;
  for (size_t i = 0; i < momenta.size(); ++i) {
    x.mutable_grad() = torch::full({1}, static_cast<float>(i + 1));
    SetMomentum(spec, momenta[i], optimizer.get());
    SetLearningRate(optimizer.get(), spec.lr * job::RateFactor(spec, momenta[i]));
    optimizer->step();
    values.push_back(x.item<float>());
  }
  return values;
}

const std::vector<double> kMomenta = {0.9, 0.9, 0.5, 0.5, 0, 0, 0.9, 0.7};

// The expected values come from a simple formula: a step moves a parameter by rate × buffer, and a
// change of momentum must not change this movement.
TEST(OptimizersTest, MomentumOfSgdChangesWithoutAJump) {
  const job::OptimizerSpec spec{.name = "sgd", .lr = 0.1, .momentum = 0.9};
  const std::vector<float> got = Steps(spec, kMomenta);
  double x = 0;
  double moved = 0;  // The last step's movement if the gradient had been 0.
  for (size_t i = 0; i < kMomenta.size(); ++i) {
    const double m = kMomenta[i];
    moved = m * moved + spec.lr * (1 - m) / 0.1 * static_cast<double>(i + 1);
    x -= moved;
    EXPECT_NEAR(got[i], x, 1e-4) << i;
  }
}

TEST(OptimizersTest, MomentumOfRmspropChangesWithoutAJump) {
  const job::OptimizerSpec spec{.name = "rmsprop", .lr = 0.1, .momentum = 0.9, .alpha = 0.5};
  const std::vector<float> got = Steps(spec, kMomenta);
  double x = 0, moved = 0, squares = 0;
  for (size_t i = 0; i < kMomenta.size(); ++i) {
    const double m = kMomenta[i], gradient = static_cast<double>(i + 1);
    squares = 0.5 * squares + 0.5 * gradient * gradient;
    moved = m * moved + spec.lr * (1 - m) / 0.1 * gradient / std::sqrt(squares);
    x -= moved;
    EXPECT_NEAR(got[i], x, 1e-4) << i;
  }
}

// The expected values come from a simple formula: the average of gradients continues, and each
// gradient is weighted with the beta1 of its step.
TEST(OptimizersTest, Beta1OfAdamChangesWithoutAJump) {
  for (const char* name : {"adam", "adamw", "muon"}) {
    const job::OptimizerSpec spec{.name = name, .lr = 0.1};
    const std::vector<float> got = Steps(spec, kMomenta);
    double x = 0, average = 0, squares = 0;
    for (size_t i = 0; i < kMomenta.size(); ++i) {
      const auto updates = static_cast<double>(i + 1);
      const double m = kMomenta[i], gradient = updates;
      // `average` is bias-corrected. It enters the next average with its regular weight.
      const double old_weight = 1 - std::pow(m, updates - 1), weight = 1 - std::pow(m, updates);
      average = (m * old_weight * average + (1 - m) * gradient) / weight;
      squares = 0.999 * squares + 0.001 * gradient * gradient;
      x -= spec.lr * average / std::sqrt(squares / (1 - std::pow(0.999, updates)));
      EXPECT_NEAR(got[i], x, 1e-4) << name << " " << i;
    }
  }
}

TEST(OptimizersTest, WithoutAMomentumThereIsNoneToChange) {
  const job::OptimizerSpec spec{.name = "sgd", .lr = 0.1};
  EXPECT_EQ(Steps(spec, {0, 0}), (std::vector<float>{-0.1f, -0.3f}));
}

TEST(OptimizersTest, ClipsValuesThenTheNorm) {
  at::Tensor x = torch::zeros({2}, torch::requires_grad());
  const auto clip = [&](const job::OptimizerSpec& spec) {
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
}  // namespace sluice::worker
