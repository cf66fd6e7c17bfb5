// SPDX-License-Identifier: Apache-2.0
// Checks that each model can memorize one batch, so that its gradients point in the right
// direction.
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/models/filled.h"
#include "worker/models/char_gpt.h"
#include "worker/models/mlp.h"
#include "worker/models/resnet.h"
#include "worker/models/simple_cnn.h"
#include "worker/models/vgg.h"

namespace sluice::worker {
namespace {

constexpr int64_t kBatch = 8;
constexpr SampleShape kColour = {.channels = 3, .height = 16, .width = 16, .classes = 10};

struct OverfitCase {
  std::string name;
  SampleShape shape;
  double rate;
  int steps;
  bool filled;  // Starts with the values of filled.h.
  std::function<std::shared_ptr<Model>(const SampleShape&)> make;
};

void PrintTo(const OverfitCase& c, std::ostream* out) { *out << c.name; }

ResNetOptions Narrow(ResNetOptions options) {
  options.width = 16;
  return options;
}

std::vector<OverfitCase> OverfitCases() {
  const SampleShape grey = {.channels = 1, .height = 28, .width = 28, .classes = 10};
  const SampleShape middling = {.channels = 3, .height = 32, .width = 32, .classes = 10};
  const SampleShape large = {.channels = 3, .height = 64, .width = 64, .classes = 10};
  const SampleShape text = {.context = 16, .classes = 20};
  const auto resnet = [](const ResNetOptions& options) {
    return [options](const SampleShape& shape) { return MakeResNet(options, shape); };
  };
  const auto vgg = [](bool batch_norm) {
    return [batch_norm](const SampleShape& shape) {
      return MakeVgg16({.batch_norm = batch_norm, .dropout = 0, .width = 8, .hidden = 128}, shape);
    };
  };
  return {
      {"mlp", kColour, 0.001, 30, false,
       [](const SampleShape& shape) { return MakeMlp({128}, shape); }},
      {"simple_cnn", grey, 0.001, 30, false, MakeSimpleCnn},
      {"resnet20", kColour, 0.003, 30, false, resnet(ResNet20())},
      {"resnet18", large, 0.003, 30, false, resnet(Narrow(ResNet18(/*small_stem=*/false)))},
      {"resnet18_small_stem", kColour, 0.003, 30, false,
       resnet(Narrow(ResNet18(/*small_stem=*/true)))},
      {"resnet50", large, 0.003, 30, false, resnet(Narrow(ResNet50(/*small_stem=*/false)))},
      // With torchvision's initial values and without BatchNorm, vgg16 needs hundreds of steps.
      {"vgg16", middling, 0.001, 30, true, vgg(false)},
      {"vgg16_bn", middling, 0.001, 40, false, vgg(true)},
      {"char_gpt", text, 0.003, 60, false,
       [](const SampleShape& shape) {
         return MakeCharGpt({.layers = 2, .heads = 2, .width = 64}, shape);
       }},
  };
}

class OverfitTest : public ::testing::TestWithParam<OverfitCase> {};

TEST_P(OverfitTest, LearnsABatchByHeart) {
  const OverfitCase& c = GetParam();
  at::set_num_threads(1);
  torch::manual_seed(1);
  const std::shared_ptr<Model> model = c.make(c.shape);
  if (c.filled) FillParameters(*model);
  const bool is_text = c.shape.is_tokens();
  const at::Tensor inputs =
      is_text
          ? FilledNumbers(kInputStream, c.shape.classes, {kBatch, c.shape.context})
          : FilledTensor(kInputStream, {kBatch, c.shape.channels, c.shape.height, c.shape.width})
                .to(at::kFloat);
  const at::Tensor targets = is_text ? FilledNumbers(kTargetStream, c.shape.classes, inputs.sizes())
                                     : FilledNumbers(kTargetStream, c.shape.classes, {kBatch});
  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(c.rate));
  const auto loss = [&] {
    return torch::nn::functional::cross_entropy(model->forward(inputs).flatten(0, -2),
                                                targets.flatten());
  };
  EXPECT_GT(loss().item<float>(), 1.5f);
  for (int step = 0; step < c.steps; ++step) {
    optimizer.zero_grad();
    loss().backward();
    optimizer.step();
  }
  EXPECT_LT(loss().item<float>(), 0.1f);
}

INSTANTIATE_TEST_SUITE_P(Models, OverfitTest, ::testing::ValuesIn(OverfitCases()),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace sluice::worker
