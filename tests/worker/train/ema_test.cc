// SPDX-License-Identifier: Apache-2.0
#include "worker/train/ema.h"

#include <torch/torch.h>

#include "gtest/gtest.h"

namespace sluice::worker {
namespace {

float First(const at::Tensor& tensor) { return tensor.flatten()[0].item<float>(); }

TEST(EmaTest, IsTheAverageByHand) {
  const at::Tensor parameter = torch::full({2, 3}, 1.0f);
  Ema ema(0.25, {parameter});
  EXPECT_EQ(First(ema.averages()[0]), 1);
  // The decays are 1/10, 2/11, 3/12, and then 0.25, because 4/13 is larger.
  double average = 1;
  int step = 0;
  for (const double decay : {1.0 / 10, 2.0 / 11, 0.25, 0.25, 0.25}) {
    const double value = 10.0 * ++step;
    parameter.fill_(value);
    ema.Update();
    average = decay * average + (1 - decay) * value;
    EXPECT_NEAR(First(ema.averages()[0]), average, 1e-5) << step;
  }
  EXPECT_EQ(ema.updates(), 5u);
  EXPECT_EQ(First(parameter), 50) << "the trained parameter must not change";
}

TEST(EmaTest, SwappingTwiceRestoresEveryBit) {
  torch::manual_seed(1);
  const std::vector<at::Tensor> parameters = {torch::randn({7}), torch::randn({3, 2}).t()};
  Ema ema(0.9, parameters);
  for (const at::Tensor& parameter : parameters) parameter.mul_(1.1).add_(0.3);
  ema.Update();
  std::vector<at::Tensor> trained;
  std::vector<at::Tensor> averaged;
  for (size_t i = 0; i < parameters.size(); ++i) {
    trained.push_back(parameters[i].clone());
    averaged.push_back(ema.averages()[i].clone());
  }
  const void* place = parameters[0].const_data_ptr();
  ema.Swap();
  for (size_t i = 0; i < parameters.size(); ++i) {
    EXPECT_TRUE(torch::equal(parameters[i], averaged[i]));
  }
  EXPECT_EQ(parameters[0].const_data_ptr(), place);
  ema.Swap();
  for (size_t i = 0; i < parameters.size(); ++i) {
    EXPECT_TRUE(torch::equal(parameters[i], trained[i]));
    EXPECT_TRUE(torch::equal(ema.averages()[i], averaged[i]));
  }
}

TEST(EmaTest, BeginsAnewFromTheParameters) {
  const at::Tensor parameter = torch::zeros({1});
  Ema ema(0.9, {parameter});
  parameter.fill_(5);
  ema.Reset();
  EXPECT_EQ(First(ema.averages()[0]), 5);
  EXPECT_EQ(ema.updates(), 0u);
}

}  // namespace
}  // namespace sluice::worker
