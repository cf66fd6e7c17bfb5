// SPDX-License-Identifier: Apache-2.0
// Tests DataParallel with bfloat16 and float16 parameters, with and without atomic_step.
#include <torch/torch.h>

#include <limits>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/train/memory_job.h"
#include "worker/torch/data_parallel.h"

namespace sluice::worker {
namespace {

namespace nn = torch::nn;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

nn::Sequential TwoLayers(at::ScalarType type) {
  torch::manual_seed(7);
  nn::Sequential model(nn::Linear(3, 4), nn::Tanh(), nn::Linear(4, 2));
  model->to(type);
  return model;
}

class MastersTest : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  std::unique_ptr<DataParallel> Wrap(const nn::Module& module, DataParallelOptions options = {}) {
    auto made = DataParallel::Join(module, session_.get(), options);
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? *std::move(made) : nullptr;
  }

  MemoryJob job_{1};
  std::unique_ptr<MemoryJob::RankSession> session_ = job_.MakeSession(0);
};

// Training must match a reference that computes with rounded masters and applies the gradients to
// the masters.
TEST_P(MastersTest, TrainAsTheReferenceDoes) {
  const at::ScalarType type = GetParam();
  nn::Sequential model = TwoLayers(type);
  nn::Sequential reference = TwoLayers(type);
  std::vector<at::Tensor> masters;
  for (const at::Tensor& p : reference->parameters()) {
    masters.push_back(p.detach().to(torch::kFloat));
  }
  const auto parallel = Wrap(*model);
  torch::optim::SGD optimizer(parallel->parameters(), 0.01);
  for (int step = 0; step < 20; ++step) {
    const at::Tensor inputs = torch::randn({5, 3}).to(type);
    optimizer.zero_grad();
    model->forward(inputs).to(torch::kFloat).square().sum().backward();
    ASSERT_TRUE(parallel->Synchronize().ok());
    optimizer.step();
    parallel->CopyMastersToModule();

    reference->zero_grad();
    reference->forward(inputs).to(torch::kFloat).square().sum().backward();
    const torch::NoGradGuard no_grad;
    for (size_t i = 0; i < masters.size(); ++i) {
      at::Tensor parameter = reference->parameters()[i];
      masters[i].add_(parameter.grad().to(torch::kFloat), -0.01);
      parameter.copy_(masters[i]);
    }
  }
  for (size_t i = 0; i < masters.size(); ++i) {
    EXPECT_TRUE(torch::equal(parallel->parameters()[i], masters[i])) << i;
    EXPECT_TRUE(torch::equal(model->parameters()[i], reference->parameters()[i])) << i;
  }
}

class ShortMastersTest : public MastersTest {};

TEST_P(ShortMastersTest, AreWhatTableHashAndStateDictShow) {
  nn::Sequential model = TwoLayers(GetParam());
  const at::Tensor value = torch::full({4, 3}, 1.0f + 0x1p-20f);  // Rounds to 1.
  const auto parallel = Wrap(*model, {.master_values = {{"0.weight", value}}});
  EXPECT_EQ(ToString(parallel->table()[0]), "0.weight [4, 3] float32");
  EXPECT_TRUE(torch::equal(parallel->parameters()[0], value));
  const NamedTensors state = parallel->StateDict(*model);
  EXPECT_EQ(state[0].first, "0.weight");
  EXPECT_TRUE(torch::equal(state[0].second, value));
  const std::string before = parallel->ParametersSha256();
  parallel->CopyMastersToModule();
  EXPECT_TRUE(torch::equal(model->parameters()[0], torch::ones({4, 3}).to(GetParam())));
  EXPECT_EQ(parallel->ParametersSha256(), before);
  const torch::NoGradGuard no_grad;
  parallel->parameters()[0].fill_(1);
  EXPECT_NE(parallel->ParametersSha256(), before);
  EXPECT_THAT(DataParallel::Join(*TwoLayers(GetParam()), session_.get(),
                                 {.master_values = {{"0.weight", torch::ones({3, 4})}}})
                  .status()
                  .message(),
              HasSubstr("0.weight has another shape"));
}

TEST_P(MastersTest, PassesAreAveragedAndNothingIsLeftForTheNextStep) {
  nn::Sequential model = TwoLayers(GetParam());
  const auto parallel = Wrap(*model, {.accumulation_steps = 3});
  torch::optim::SGD optimizer(parallel->parameters(), 0.1);
  for (int step = 0; step < 2; ++step) {
    optimizer.zero_grad(/*set_to_none=*/false);
    for (const float factor : {1.0f, 2.0f, 6.0f}) {
      (model->forward(torch::ones({1, 3}).to(GetParam())).sum() * factor).backward();
    }
    ASSERT_TRUE(parallel->Synchronize().ok());
    EXPECT_TRUE(torch::equal(parallel->parameters()[3].grad(), torch::full({2}, 3.0f)));
  }
}

TEST_P(MastersTest, GradientsAreScaledOnTheirWay) {
  nn::Sequential model = TwoLayers(GetParam());
  const auto parallel = Wrap(*model);
  parallel->ScaleGradients(1.0f / 1024);
  (model->forward(torch::ones({1, 3}).to(GetParam())).sum() * 1024).backward();
  ASSERT_TRUE(parallel->Synchronize().ok());
  EXPECT_TRUE(torch::equal(parallel->parameters()[3].grad(), torch::ones({2})));
}

TEST_P(MastersTest, AnAtomicStepLeavesAsAWholeOrNotAtAll) {
  nn::Sequential model = TwoLayers(GetParam());
  const auto parallel = Wrap(*model, {.atomic_step = true});
  torch::optim::SGD optimizer(parallel->parameters(), 0.1);
  const at::Tensor inputs = torch::ones({1, 3}).to(GetParam());
  model->forward(inputs).sum().backward();
  EXPECT_THAT(session_->submitted(), IsEmpty()) << "nothing is submitted before Synchronize";
  ASSERT_TRUE(parallel->Synchronize().ok());
  EXPECT_THAT(parallel->overflowed(), IsEmpty());
  EXPECT_EQ(session_->skips(), 0u);
  EXPECT_TRUE(torch::equal(parallel->parameters()[3].grad(), torch::ones({2})));

  // Only one tensor, of the first layer, has an infinite gradient.
  model->forward(inputs).sum().backward();
  model[0]->as<nn::Linear>()->bias.mutable_grad()[1] = std::numeric_limits<float>::infinity();
  const auto result = parallel->Synchronize();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(parallel->overflowed(), "0.bias");
  EXPECT_EQ(session_->skips(), 1u);
  EXPECT_EQ(result->n_max, 0u);
  EXPECT_FALSE(parallel->parameters()[3].grad().defined()) << "no rank contributed a gradient";

  // The next step is not affected.
  optimizer.zero_grad(/*set_to_none=*/false);
  model->forward(inputs).sum().backward();
  ASSERT_TRUE(parallel->Synchronize().ok());
  EXPECT_THAT(parallel->overflowed(), IsEmpty());
  EXPECT_TRUE(torch::equal(parallel->parameters()[3].grad(), torch::ones({2})));

  model->forward(inputs).sum().backward();
  model->forward(inputs).sum().backward();
  EXPECT_THAT(parallel->Synchronize().status().message(), HasSubstr("accumulation_steps is 1"));
}

const auto kTypeName = [](const ::testing::TestParamInfo<at::ScalarType>& type) {
  return std::string(c10::toString(type.param));
};
INSTANTIATE_TEST_SUITE_P(Types, MastersTest,
                         ::testing::Values(torch::kFloat, torch::kBFloat16, torch::kHalf),
                         kTypeName);
INSTANTIATE_TEST_SUITE_P(Types, ShortMastersTest, ::testing::Values(torch::kBFloat16, torch::kHalf),
                         kTypeName);

// One rank's gradients overflow. The rank must use the mean, which comes only from the other rank,
// and both must stay equal.
TEST(MastersOfTwoRanksTest, ARankThatOverflowsTakesTheMeanOfTheOther) {
  MemoryJob job(2);
  std::vector<std::string> hashes(2);
  const auto train = [&](uint32_t rank) {
    const auto session = job.MakeSession(rank);
    nn::Linear model(nn::LinearOptions(3, 2));
    {
      const torch::NoGradGuard no_grad;
      model->weight.fill_(0.5f);
      model->bias.fill_(0.5f);
    }
    model->to(torch::kHalf);
    auto parallel = DataParallel::Join(*model, session.get(), {.atomic_step = true});
    ASSERT_TRUE(parallel.ok()) << parallel.status();
    torch::optim::SGD optimizer((*parallel)->parameters(), 0.125);
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      const at::Tensor loss = model->forward(torch::ones({1, 3}).to(torch::kHalf)).sum();
      const bool overflows = rank == 1 && step == 1;
      (overflows ? loss.to(torch::kFloat) * 1e6f : loss.to(torch::kFloat)).backward();
      const auto result = (*parallel)->Synchronize();
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_EQ(result->n_max, step == 1 ? 1u : 2u);
      EXPECT_EQ((*parallel)->overflowed().empty(), !overflows);
      EXPECT_TRUE(torch::equal((*parallel)->parameters()[1].grad(), torch::ones({2})));
      optimizer.step();
      (*parallel)->CopyMastersToModule();
    }
    EXPECT_TRUE(torch::equal(model->bias.detach(), torch::full({2}, 0.125f).to(torch::kHalf)));
    hashes[rank] = (*parallel)->ParametersSha256();
  };
  std::thread other(train, 1);
  train(0);
  other.join();
  EXPECT_EQ(hashes[0], hashes[1]);
}

}  // namespace
}  // namespace sluice::worker
