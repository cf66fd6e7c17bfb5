// SPDX-License-Identifier: Apache-2.0
// Checks that a forward and backward pass and a step of SGD give PyTorch's results, tensor by
// tensor, as recorded by record_reference.py.
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <memory>
#include <ostream>
#include <sstream>
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

constexpr double kRate = 0.002;
// Models compute in double precision. The error is relative, or absolute for values below 1.
constexpr double kTolerance = 1e-8;

struct ReferenceStepCase {
  std::string name;
  SampleShape shape;
  at::IntArrayRef inputs;
  std::function<std::shared_ptr<Model>(const SampleShape&)> make;
};

void PrintTo(const ReferenceStepCase& c, std::ostream* out) { *out << c.name; }

std::vector<ReferenceStepCase> ReferenceStepCases() {
  static constexpr int64_t kMlp[] = {5, 3, 4, 5}, kGrey[] = {3, 1, 28, 28};
  static constexpr int64_t kCifar[] = {4, 3, 32, 32}, kSmall[] = {2, 3, 16, 16};
  static constexpr int64_t kMiddling[] = {2, 3, 64, 64}, kText[] = {2, 9};
  const SampleShape cifar = {.channels = 3, .height = 32, .width = 32, .classes = 10};
  const SampleShape small = {.channels = 3, .height = 16, .width = 16, .classes = 10};
  const SampleShape middling = {.channels = 3, .height = 64, .width = 64, .classes = 10};
  const auto resnet = [](const ResNetOptions& options) {
    return [options](const SampleShape& shape) { return MakeResNet(options, shape); };
  };
  const auto narrow_vgg = [](bool batch_norm) {
    return [batch_norm](const SampleShape& shape) {
      return MakeVgg16({.batch_norm = batch_norm, .dropout = 0, .width = 8, .hidden = 32}, shape);
    };
  };
  return {
      {"mlp",
       {.channels = 3, .height = 4, .width = 5, .classes = 7},
       kMlp,
       [](const SampleShape& shape) {
         return MakeMlp({20, 30}, shape);
       }},
      {"simple_cnn",
       {.channels = 1, .height = 28, .width = 28, .classes = 10},
       kGrey,
       MakeSimpleCnn},
      {"resnet20", cifar, kCifar, resnet(ResNet20())},
      {"resnet18", middling, kMiddling, resnet(ResNet18(/*small_stem=*/false))},
      {"resnet18_small_stem", small, kSmall, resnet(ResNet18(/*small_stem=*/true))},
      {"resnet50", middling, kMiddling, resnet(ResNet50(/*small_stem=*/false))},
      {"vgg16", middling, kMiddling, narrow_vgg(false)},
      {"vgg16_bn", middling, kMiddling, narrow_vgg(true)},
      {"char_gpt",
       {.context = 12, .classes = 11},
       kText,
       [](const SampleShape& shape) {
         return MakeCharGpt({.layers = 3, .heads = 4, .width = 32}, shape);
       }},
  };
}

// Returns the values of the line that begins with `model` and `what`.
std::vector<double> Recorded(const std::string& model, const std::string& what) {
  std::ifstream file(SLUICE_MODEL_REFERENCES "/reference_steps.txt");
  std::vector<double> values;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string found_model, found_what;
    words >> found_model >> found_what;
    if (found_model != model || found_what != what) continue;
    for (double value = 0; words >> value;) values.push_back(value);
  }
  return values;
}

std::vector<double> Norms(const std::vector<at::Tensor>& tensors) {
  std::vector<double> norms;
  norms.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    norms.push_back(tensor.to(at::kDouble).norm().item<double>());
  }
  return norms;
}

void ExpectRecorded(const std::string& model, const std::string& what,
                    const std::vector<double>& values) {
  const std::vector<double> recorded = Recorded(model, what);
  ASSERT_EQ(values.size(), recorded.size()) << what;
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_NEAR(values[i], recorded[i], kTolerance * std::max(1.0, std::fabs(recorded[i])))
        << what << " " << i;
  }
}

class ReferenceStepTest : public ::testing::TestWithParam<ReferenceStepCase> {};

TEST_P(ReferenceStepTest, IsPyTorchs) {
  const ReferenceStepCase& c = GetParam();
  at::set_num_threads(1);
  const std::shared_ptr<Model> model = c.make(c.shape);
  model->to(at::kDouble);
  FillParameters(*model);
  const bool is_text = c.shape.is_tokens();
  const at::Tensor inputs = is_text ? FilledNumbers(kInputStream, c.shape.classes, c.inputs)
                                    : FilledTensor(kInputStream, c.inputs);
  const at::Tensor targets =
      FilledNumbers(kTargetStream, c.shape.classes, is_text ? c.inputs : c.inputs.slice(0, 1));
  const auto loss = [&] {
    return torch::nn::functional::cross_entropy(model->forward(inputs).flatten(0, -2),
                                                targets.flatten());
  };
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(kRate));

  const at::Tensor first = loss();
  ExpectRecorded(c.name, "loss", {first.item<double>()});
  first.backward();
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : model->parameters()) gradients.push_back(parameter.grad());
  ExpectRecorded(c.name, "gradient_norms", Norms(gradients));
  optimizer.step();
  ExpectRecorded(c.name, "parameter_norms", Norms(model->parameters()));

  const torch::NoGradGuard no_grad;
  ExpectRecorded(c.name, "next_loss", {loss().item<double>()});
  ExpectRecorded(c.name, "buffer_norms", Norms(model->buffers()));
  model->eval();
  const at::Tensor scores = model->forward(inputs).flatten().slice(0, 0, 8).contiguous();
  const auto* const values = scores.const_data_ptr<double>();
  ExpectRecorded(c.name, "scores", std::vector<double>(values, values + scores.numel()));
}

INSTANTIATE_TEST_SUITE_P(Models, ReferenceStepTest, ::testing::ValuesIn(ReferenceStepCases()),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace sluice::worker
