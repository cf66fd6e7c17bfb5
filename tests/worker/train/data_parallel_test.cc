// SPDX-License-Identifier: Apache-2.0
#include "worker/torch/data_parallel.h"

#include <torch/torch.h>

#include <string>
#include <thread>
#include <vector>

#include "absl/strings/escaping.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/train/memory_job.h"

namespace sluice::worker {
namespace {

namespace nn = torch::nn;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

nn::Sequential TwoLayers() {
  torch::manual_seed(7);
  return nn::Sequential(nn::Linear(3, 4), nn::ReLU(), nn::Linear(4, 2));
}

// Wraps a model in a job of one rank.
class DataParallelTest : public ::testing::Test {
 protected:
  std::unique_ptr<DataParallel> Wrap(const nn::Module& module, uint32_t accumulation = 1) {
    auto made = DataParallel::Join(module, session_.get(), {.accumulation_steps = accumulation});
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? *std::move(made) : nullptr;
  }

  MemoryJob job_{1};
  std::unique_ptr<MemoryJob::RankSession> session_ = job_.MakeSession(0);
};

TEST_F(DataParallelTest, GradientsAreSubmittedWhileBackwardRunsLastLayerFirst) {
  nn::Sequential model = TwoLayers();
  const auto parallel = Wrap(*model);
  // The hook runs between the backward passes of the two layers.
  std::vector<uint32_t> in_between;
  const at::Tensor hidden = model[0]->as<nn::Linear>()->forward(torch::ones({5, 3}));
  hidden.register_hook([&](at::Tensor gradient) {
    in_between = session_->submitted();
    return gradient;
  });
  model[2]->as<nn::Linear>()->forward(hidden.relu()).sum().backward();
  EXPECT_THAT(in_between, ::testing::UnorderedElementsAre(2, 3));
  EXPECT_THAT(session_->submitted(), ::testing::UnorderedElementsAre(0, 1, 2, 3));
  EXPECT_TRUE(parallel->Synchronize().ok());
}

TEST_F(DataParallelTest, TableNamesTensorsInModuleOrder) {
  nn::Sequential model = TwoLayers();
  const auto parallel = Wrap(*model);
  ASSERT_EQ(parallel->table().size(), 4);
  EXPECT_EQ(ToString(parallel->table()[0]), "0.weight [4, 3] float32");
  EXPECT_EQ(ToString(parallel->table()[3]), "2.bias [2] float32");
  EXPECT_EQ(session_->table(), parallel->table());
}

TEST_F(DataParallelTest, FrozenParametersStayOutAndUnusedOnesGiveZeros) {
  nn::Sequential model = TwoLayers();
  model[0]->as<nn::Linear>()->weight.set_requires_grad(false);
  const auto parallel = Wrap(*model);
  EXPECT_EQ(parallel->table().size(), 3);
  model[2]->as<nn::Linear>()->forward(torch::ones({1, 4})).sum().backward();
  EXPECT_EQ(session_->submitted().size(), 2);
  ASSERT_TRUE(parallel->Synchronize().ok());
  const at::Tensor unused = model[0]->as<nn::Linear>()->bias;
  EXPECT_TRUE(torch::equal(unused.grad(), torch::zeros({4})));
  EXPECT_TRUE(torch::equal(model[2]->as<nn::Linear>()->bias.grad(), torch::ones({2})));
}

TEST_F(DataParallelTest, AnUnusedParameterDoesNotGiveAnEarlierStepsMeanAgain) {
  nn::Sequential model = TwoLayers();
  const auto parallel = Wrap(*model);
  model->forward(torch::ones({1, 3})).sum().backward();
  ASSERT_TRUE(parallel->Synchronize().ok());
  ASSERT_FALSE(torch::equal(model[2]->as<nn::Linear>()->bias.grad(), torch::zeros({2})));
  model[0]->as<nn::Linear>()->forward(torch::ones({1, 3})).sum().backward();  // No zero_grad.
  ASSERT_TRUE(parallel->Synchronize().ok());
  EXPECT_TRUE(torch::equal(model[2]->as<nn::Linear>()->bias.grad(), torch::zeros({2})));
}

struct TiedModel : nn::Module {
  TiedModel() {
    weight = register_parameter("weight", torch::ones({3, 3}));
    register_parameter("same", weight);
  }
  at::Tensor weight;
};

TEST_F(DataParallelTest, TiedParametersAreOneTensorWithTheSumOfTheirGradients) {
  TiedModel model;
  const auto parallel = Wrap(model);
  ASSERT_EQ(parallel->table().size(), 1);
  const auto parameters = model.named_parameters();
  const at::Tensor loss = parameters["weight"].sum() + 2 * parameters["same"].sum();
  loss.backward();
  EXPECT_THAT(session_->submitted(), ElementsAre(0));
  ASSERT_TRUE(parallel->Synchronize().ok());
  EXPECT_TRUE(torch::equal(model.weight.grad(), torch::full({3, 3}, 3.0f)));
}

TEST_F(DataParallelTest, AccumulatedPassesAreAveragedAndLeaveDuringTheLast) {
  nn::Sequential model = TwoLayers();
  const auto parallel = Wrap(*model, /*accumulation=*/3);
  const at::Tensor bias = model[2]->as<nn::Linear>()->bias;
  for (const float factor : {1.0f, 2.0f, 6.0f}) {
    EXPECT_THAT(session_->submitted(), IsEmpty());
    (model->forward(torch::ones({1, 3})).sum() * factor).backward();
  }
  EXPECT_EQ(session_->submitted().size(), 4);
  ASSERT_TRUE(parallel->Synchronize().ok());
  EXPECT_TRUE(torch::equal(bias.grad(), torch::full({2}, 3.0f)));
}

TEST_F(DataParallelTest, AStepThatRanOutOfDataAveragesThePassesItHad) {
  nn::Sequential model = TwoLayers();
  const auto parallel = Wrap(*model, /*accumulation=*/3);
  const at::Tensor bias = model[2]->as<nn::Linear>()->bias;
  for (const float factor : {1.0f, 2.0f}) {
    (model->forward(torch::ones({1, 3})).sum() * factor).backward();
  }
  ASSERT_TRUE(parallel->Synchronize().ok());
  EXPECT_TRUE(torch::equal(bias.grad(), torch::full({2}, 1.5f)));
}

TEST_F(DataParallelTest, BothFormsOfZeroGradWork) {
  nn::Sequential model = TwoLayers();
  const auto parallel = Wrap(*model);
  const at::Tensor bias = model[2]->as<nn::Linear>()->bias;
  torch::optim::SGD optimizer(parallel->parameters(), 0.0);
  for (const bool to_none : {true, false, true}) {
    optimizer.zero_grad(to_none);
    model->forward(torch::ones({1, 3})).sum().backward();
    ASSERT_TRUE(parallel->Synchronize().ok());
    EXPECT_TRUE(torch::equal(bias.grad(), torch::ones({2})));
  }
}

TEST_F(DataParallelTest, ChannelsLastWeightsKeepTheirStrides) {
  nn::Conv2d conv(nn::Conv2dOptions(3, 4, 2));
  conv->weight.set_data(conv->weight.detach().contiguous(at::MemoryFormat::ChannelsLast));
  const auto parallel = Wrap(*conv);
  EXPECT_THAT(parallel->table()[0].strides, ElementsAre(12, 1, 6, 3));
  const at::Tensor images = torch::randn({2, 3, 5, 5});
  conv->forward(images).square().sum().backward();
  const at::Tensor expected = conv->weight.grad().clone();
  ASSERT_TRUE(parallel->Synchronize().ok());
  EXPECT_TRUE(torch::equal(conv->weight.grad(), expected));
}

TEST_F(DataParallelTest, AGradientThatLiesOtherwiseIsLaidAsTheParameter) {
  TiedModel model;
  const auto parallel = Wrap(model);
  const at::Tensor values = torch::arange(9, torch::kFloat).reshape({3, 3});
  model.weight.mutable_grad() = values.t();  // Column-major. Backward adds in place.
  (model.weight.sum() * 0).backward();
  ASSERT_TRUE(parallel->Synchronize().ok());
  EXPECT_TRUE(torch::equal(model.weight.grad(), values.t()));
}

TEST_F(DataParallelTest, SkipTakesPartWithNothing) {
  nn::Sequential model = TwoLayers();
  const auto parallel = Wrap(*model);
  const auto result = parallel->Skip();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->n_max, 0);
  EXPECT_EQ(session_->skips(), 1);
  model->forward(torch::ones({1, 3})).sum().backward();
  EXPECT_THAT(parallel->Skip().status().message(), HasSubstr("Synchronize"));
  EXPECT_TRUE(parallel->Synchronize().ok());
}

TEST_F(DataParallelTest, AParameterWithoutAMeanIsNotMovedByTheOptimizer) {
  nn::Sequential model = TwoLayers();
  const auto parallel = Wrap(*model);
  const std::vector<at::Tensor>& parameters = parallel->parameters();
  torch::optim::SGD optimizer(parameters,
                              torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.1));
  session_->LeaveOut(2, {0, 3});
  for (int step = 1; step <= 3; ++step) {
    optimizer.zero_grad(/*set_to_none=*/false);
    model->forward(torch::ones({1, 3})).square().sum().backward();
    ASSERT_TRUE(parallel->Synchronize().ok());
    std::vector<at::Tensor> before;
    for (const at::Tensor& parameter : parameters) before.push_back(parameter.detach().clone());
    optimizer.step();
    for (size_t i = 0; i < parameters.size(); ++i) {
      const bool stays = step == 2 && (i == 0 || i == 3);
      EXPECT_EQ(parameters[i].grad().defined(), !stays) << "step " << step << ", parameter " << i;
      EXPECT_EQ(torch::equal(parameters[i], before[i]), stays)
          << "step " << step << ", parameter " << i;
    }
  }
}

TEST_F(DataParallelTest, AParameterThatIsUnfrozenLaterIsAnErrorOnceItHasAGradient) {
  nn::Sequential model = TwoLayers();
  const at::Tensor weight = model[0]->as<nn::Linear>()->weight;
  weight.set_requires_grad(false);
  const auto parallel = Wrap(*model);
  model->forward(torch::ones({1, 3})).sum().backward();
  EXPECT_TRUE(parallel->Synchronize().ok());
  weight.set_requires_grad(true);
  model[2]->as<nn::Linear>()->forward(torch::ones({1, 4})).sum().backward();
  EXPECT_TRUE(parallel->Synchronize().ok()) << "no backward pass has reached the parameter";
  model->forward(torch::ones({1, 3})).sum().backward();
  const absl::Status refused = parallel->Synchronize().status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("parameter 0.weight has a gradient"));
}

TEST_F(DataParallelTest, MisuseIsToldByName) {
  nn::Sequential model = TwoLayers();
  const auto parallel = Wrap(*model);
  EXPECT_EQ(parallel->Synchronize().status().code(), absl::StatusCode::kFailedPrecondition);
  model->forward(torch::ones({1, 3})).sum().backward();
  model->forward(torch::ones({1, 3})).sum().backward();
  EXPECT_THAT(parallel->Synchronize().status().message(), HasSubstr("accumulation_steps is 1"));
}

TEST_F(DataParallelTest, AnErrorOfSubmitComesOutOfSynchronize) {
  nn::Sequential model = TwoLayers();
  const auto parallel = Wrap(*model);
  session_->FailNextSubmit(absl::UnavailableError("shard 1 is gone"));
  model->forward(torch::ones({1, 3})).sum().backward();
  EXPECT_EQ(parallel->Synchronize().status(), absl::UnavailableError("shard 1 is gone"));
}

TEST_F(DataParallelTest, ATakenHookSlotIsRefusedAndADestroyedWrapperFreesIt) {
  nn::Sequential model = TwoLayers();
  auto parallel = Wrap(*model);
  const auto second = DataParallel::Join(*model, session_.get());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(second.status().message(), HasSubstr("0.weight"));
  parallel.reset();
  EXPECT_TRUE(DataParallel::Join(*model, session_.get()).ok());
}

TEST_F(DataParallelTest, WhatCannotBeTrainedIsRefusedByName) {
  nn::Linear doubles(2, 2);
  doubles->to(torch::kFloat64);
  EXPECT_THAT(DataParallel::Join(*doubles, session_.get()).status().message(),
              HasSubstr("weight is of type Double"));
  nn::ReLU nothing;
  EXPECT_FALSE(DataParallel::Join(*nothing, session_.get()).ok());
  nn::Embedding sparse(nn::EmbeddingOptions(10, 2).sparse(true));
  const auto parallel = Wrap(*sparse);
  sparse->forward(torch::tensor({1, 2})).sum().backward();
  EXPECT_THAT(parallel->Synchronize().status().message(), HasSubstr("sparse gradient"));
}

TEST_F(DataParallelTest, TheHashIsOfTheParametersBytes) {
  TiedModel model;
  const auto parallel = Wrap(model);
  const std::string ones = parallel->ParametersSha256();
  // sha256 of nine little-endian floats of 1.0.
  EXPECT_EQ(absl::BytesToHexString(ones),
            "535918286916675b94b05c03a164174657cb7c1c85b5c721755b86b65a38719f");
  {
    const torch::NoGradGuard no_grad;
    model.weight[2][2] = -1.0f;
  }
  EXPECT_NE(parallel->ParametersSha256(), ones);
}

// Two ranks with different initial parameters train on halves of each batch. They must get the same
// parameters as one process that trains on whole batches.
TEST(DataParallelTwoRanksTest, TrainAsOneProcessDoesOnTheJoinedBatch) {
  constexpr int kSteps = 20;
  constexpr int kHalf = 8;
  torch::manual_seed(1);
  const at::Tensor inputs = torch::randn({kSteps, 2 * kHalf, 3});
  const at::Tensor targets = torch::randn({kSteps, 2 * kHalf, 2});
  std::vector<nn::Sequential> models;
  for (int i = 0; i < 2; ++i)
    models.push_back(nn::Sequential(nn::Linear(3, 4), nn::Tanh(), nn::Linear(4, 2)));
  nn::Sequential alone = nn::Sequential(nn::Linear(3, 4), nn::Tanh(), nn::Linear(4, 2));
  {
    const torch::NoGradGuard no_grad;
    for (size_t i = 0; i < 4; ++i) alone->parameters()[i].copy_(models[0]->parameters()[i]);
  }
  MemoryJob job(2);
  std::vector<std::string> hashes(2);
  const auto train = [&](uint32_t rank) {
    const auto session = job.MakeSession(rank);
    const auto parallel = DataParallel::Join(*models[rank], session.get());
    ASSERT_TRUE(parallel.ok()) << parallel.status();
    EXPECT_FALSE((*parallel)->joined().parameters_agree);
    torch::optim::SGD optimizer((*parallel)->parameters(),
                                torch::optim::SGDOptions(0.1).momentum(0.9));
    for (int step = 0; step < kSteps; ++step) {
      optimizer.zero_grad();
      const at::Tensor mine = inputs[step].slice(0, rank * kHalf, (rank + 1) * kHalf);
      const at::Tensor wanted = targets[step].slice(0, rank * kHalf, (rank + 1) * kHalf);
      torch::mse_loss(models[rank]->forward(mine), wanted).backward();
      ASSERT_TRUE((*parallel)->Synchronize().ok());
      optimizer.step();
    }
    hashes[rank] = (*parallel)->ParametersSha256();
  };
  std::thread other(train, 1);
  train(0);
  other.join();
  EXPECT_EQ(hashes[0], hashes[1]);
  torch::optim::SGD optimizer(alone->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    torch::mse_loss(alone->forward(inputs[step]), targets[step]).backward();
    optimizer.step();
  }
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(torch::allclose(alone->parameters()[i], models[0]->parameters()[i], 1e-4, 1e-6));
  }
}

}  // namespace
}  // namespace sluice::worker
