// SPDX-License-Identifier: Apache-2.0
// Compares update rules with the LibTorch optimizers that workers run. The results must match,
// because a job may run its updates on either side.
#include <torch/torch.h>

#include <vector>

#include "gtest/gtest.h"
#include "server/shard/update_rule.h"
#include "worker/train/optimizers.h"

namespace sluice::server {
namespace {

class LibTorchRuleTest : public ::testing::TestWithParam<job::OptimizerSpec> {};

TEST_P(LibTorchRuleTest, EndsWhereLibTorchDoes) {
  constexpr int64_t kCount = 1001;
  torch::manual_seed(3);
  const at::Tensor parameter = torch::randn({kCount}).requires_grad_();
  const auto optimizer = worker::MakeOptimizer(GetParam(), {parameter});
  ASSERT_TRUE(optimizer.ok()) << optimizer.status();
  const auto rule = UpdateRule::Create(GetParam());
  ASSERT_TRUE(rule.ok()) << rule.status();

  const auto* const first = parameter.const_data_ptr<float>();
  std::vector<float> parameters(first, first + kCount);
  std::vector<std::vector<float>> slots(rule->slots(), std::vector<float>(kCount));
  std::vector<absl::Span<float>> spans;
  for (std::vector<float>& slot : slots) spans.push_back(absl::MakeSpan(slot));
  uint64_t updates = 0;
  for (uint64_t step = 1; step <= 100; ++step) {
    const at::Tensor gradient = torch::randn({kCount});
    parameter.mutable_grad() = gradient;
    // In a step without a mean, a worker unsets the gradient, and a shard makes no update.
    if (step % 7 == 1) parameter.mutable_grad() = at::Tensor();
    // The rate changes in every step, as under a schedule.
    const double rate = GetParam().lr / static_cast<double>(step);
    worker::SetLearningRate(optimizer->get(), rate);
    (*optimizer)->step();
    if (step % 7 == 1) continue;
    rule->Apply(++updates, rate, rule->momentum(),
                {gradient.const_data_ptr<float>(), static_cast<size_t>(kCount)},
                absl::MakeSpan(parameters), spans);
  }
  const at::Tensor ours = torch::from_blob(parameters.data(), {kCount});
  const double furthest = (ours - parameter.detach()).abs().max().item<double>();
  EXPECT_LT(furthest, 2e-6);
}

INSTANTIATE_TEST_SUITE_P(
    All, LibTorchRuleTest,
    ::testing::Values(
        job::OptimizerSpec{.name = "sgd", .lr = 0.1},
        job::OptimizerSpec{.name = "sgd", .lr = 0.1, .momentum = 0.9, .weight_decay = 0.01},
        job::OptimizerSpec{.name = "sgd", .lr = 0.1, .momentum = 0.5, .nesterov = true},
        job::OptimizerSpec{.name = "adam", .lr = 0.01, .weight_decay = 0.01},
        job::OptimizerSpec{.name = "adamw", .lr = 0.01, .beta1 = 0.5, .weight_decay = 0.1},
        job::OptimizerSpec{.name = "rmsprop", .lr = 0.01, .weight_decay = 0.01},
        job::OptimizerSpec{.name = "rmsprop", .lr = 0.01, .momentum = 0.9, .alpha = 0.9}),
    [](const auto& test) { return test.param.name + std::to_string(test.index); });

}  // namespace
}  // namespace sluice::server
