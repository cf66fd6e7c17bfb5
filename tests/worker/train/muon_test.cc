// SPDX-License-Identifier: Apache-2.0
#include "worker/train/muon.h"

#include <torch/torch.h>

#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "worker/models/make_model.h"
#include "worker/train/optimizers.h"

namespace sluice::worker {
namespace {

constexpr double kRate = 0.01;

TEST(MuonTest, BringsSingularValuesNearOne) {
  torch::manual_seed(1);
  for (const auto& [rows, columns] : {std::pair(16, 16), std::pair(48, 16), std::pair(8, 64)}) {
    const at::Tensor matrix = torch::randn({rows, columns}) * 1e-4;
    const at::Tensor result = Orthogonalized(matrix);
    const auto [u, values, v] = at::linalg_svd(result, /*full_matrices=*/false);
    EXPECT_GT(values.min().item<double>(), 0.6) << rows << " x " << columns;
    EXPECT_LT(values.max().item<double>(), 1.3) << rows << " x " << columns;
    // The singular vectors are the matrix's own: U' M V is diagonal and positive.
    const at::Tensor diagonal = u.t().mm(matrix).mm(v.t());
    const at::Tensor rest = diagonal - torch::diag(diagonal.diagonal());
    EXPECT_LT(rest.norm().item<double>(), 0.05 * matrix.norm().item<double>());
    EXPECT_GT(diagonal.diagonal().min().item<double>(), 0);
  }
  EXPECT_TRUE(at::equal(Orthogonalized(torch::zeros({3, 2})), torch::zeros({3, 2})));
}

// Any scale of a gradient gives the same step, and its root mean square is 0.2 of the rate.
TEST(MuonTest, AStepOfAMatrixHasAFixedLength) {
  for (const float scale : {1e-6f, 1.0f, 1e6f}) {
    torch::manual_seed(2);
    at::Tensor x = torch::zeros({32, 4, 2, 2}, torch::requires_grad());
    const auto optimizer =
        MakeOptimizer({.name = "muon", .lr = kRate, .beta1 = 0.9}, {x}, {0}).value();
    x.mutable_grad() = torch::randn({32, 4, 2, 2}) * scale;
    optimizer->step();
    // 16 singular values near 1, times 0.2 * sqrt(32).
    const double norm = x.norm().item<double>() / (kRate * 0.2 * std::sqrt(32.0));
    EXPECT_NEAR(norm, std::sqrt(16.0), 0.6) << scale;
  }
}

// The formula of muon.h, in steps with different gradients.
TEST(MuonTest, FollowsItsFormula) {
  torch::manual_seed(3);
  at::Tensor x = torch::randn({6, 10}).requires_grad_();
  at::Tensor want = x.detach().clone(), mean = torch::zeros({6, 10});
  const auto optimizer =
      MakeOptimizer({.name = "muon", .lr = kRate, .beta1 = 0.8, .weight_decay = 0.5}, {x}, {0})
          .value();
  for (int i = 0; i < 5; ++i) {
    const at::Tensor gradient = torch::randn({6, 10});
    x.mutable_grad() = gradient.clone();
    optimizer->step();
    mean = 0.8 * mean + 0.2 * gradient;
    want = want * (1 - kRate * 0.5) - kRate * 0.2 * std::sqrt(10.0) * Orthogonalized(mean);
    EXPECT_TRUE(at::allclose(x, want, 1e-5, 1e-6)) << i;
  }
}

TEST(MuonTest, OtherParametersGetAdamw) {
  torch::manual_seed(4);
  std::vector<at::Tensor> of_muon, of_adamw;
  for (const auto& sizes : {std::vector<int64_t>{5}, {4, 3}, {2, 2}}) {
    of_muon.push_back(torch::randn(sizes).requires_grad_());
    of_adamw.push_back(of_muon.back().detach().clone().requires_grad_());
  }
  const job::OptimizerSpec spec{.lr = kRate, .weight_decay = 0.1};
  auto named = [&](const char* name) {
    job::OptimizerSpec with = spec;
    with.name = name;
    return with;
  };
  const auto muon = MakeOptimizer(named("muon"), of_muon, {1}).value();
  const auto adamw = MakeOptimizer(named("adamw"), of_adamw).value();
  for (int step = 0; step < 3; ++step) {
    for (size_t i = 0; i < 3; ++i) {
      of_muon[i].mutable_grad() = torch::randn_like(of_muon[i]);
      of_adamw[i].mutable_grad() = of_muon[i].grad().clone();
    }
    muon->step();
    adamw->step();
  }
  EXPECT_TRUE(at::equal(of_muon[0], of_adamw[0]));
  EXPECT_FALSE(at::allclose(of_muon[1], of_adamw[1], 1e-3, 1e-3)) << "a matrix";
  EXPECT_TRUE(at::equal(of_muon[2], of_adamw[2])) << "a table that was not chosen";
}

TEST(MuonTest, AMatrixWithoutAGradientStays) {
  at::Tensor used = torch::ones({2, 2}, torch::requires_grad());
  at::Tensor unused = torch::ones({2, 2}, torch::requires_grad());
  const auto optimizer =
      MakeOptimizer({.name = "muon", .lr = kRate, .weight_decay = 0.5}, {used, unused}, {0, 1})
          .value();
  used.mutable_grad() = torch::ones({2, 2});
  optimizer->step();
  EXPECT_FALSE(at::equal(used, torch::ones({2, 2})));
  EXPECT_TRUE(at::equal(unused, torch::ones({2, 2})));
}

TEST(MuonTest, EachModelNamesItsOwnEdges) {
  for (const char* name : {"mlp", "simple_cnn", "vgg16", "resnet20"}) {
    job::ModelSpec spec{.name = name};
    spec.hidden = {8};
    const auto model =
        MakeModel(spec, {.channels = 3, .height = 32, .width = 32, .classes = 10}).value();
    const auto parameters = model->named_parameters();
    ASSERT_EQ(model->EdgeWeights().size(), 1u) << name;
    const at::Tensor* last = parameters.find(model->EdgeWeights()[0]);
    ASSERT_NE(last, nullptr) << name << ' ' << model->EdgeWeights()[0];
    EXPECT_EQ(last->size(0), 10) << name;
  }
}

}  // namespace
}  // namespace sluice::worker
