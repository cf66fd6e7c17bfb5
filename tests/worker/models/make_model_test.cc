// SPDX-License-Identifier: Apache-2.0
#include "worker/models/make_model.h"

#include <torch/torch.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/models/vgg.h"

namespace sluice::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

job::ModelSpec Named(const std::string& name, std::vector<uint32_t> hidden = {}) {
  job::ModelSpec spec;
  spec.name = name;
  spec.hidden = std::move(hidden);
  return spec;
}

SampleShape Grey(uint32_t height, uint32_t width) {
  return {.channels = 1, .height = height, .width = width, .classes = 10};
}

int64_t MakeModelCountElements(const torch::nn::Module& module) {
  int64_t count = 0;
  for (const at::Tensor& tensor : module.parameters()) count += tensor.numel();
  return count;
}

// Uses one thread, because on a busy machine a second thread would wait for a core.
class MakeModelTest : public ::testing::Test {
 protected:
  MakeModelTest() { at::set_num_threads(1); }
};

TEST_F(MakeModelTest, SimpleCnnHasItsSizeAndGivesScores) {
  auto model = MakeModel(Named("simple_cnn"), Grey(28, 28));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(MakeModelCountElements(**model), 215370);
  EXPECT_EQ((*model)->forward(torch::zeros({3, 1, 28, 28})).sizes(), at::IntArrayRef({3, 10}));
  EXPECT_EQ((*model)->named_parameters()[0].key(), "conv1.weight");
  EXPECT_FALSE(MakeModel(Named("simple_cnn"), Grey(3, 28)).ok());
}

TEST_F(MakeModelTest, MlpHasTheLayersOfTheJob) {
  auto model = MakeModel(Named("mlp", {20, 30}), Grey(4, 5));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(MakeModelCountElements(**model), 20 * 20 + 20 + 20 * 30 + 30 + 30 * 10 + 10);
  EXPECT_EQ((*model)->forward(torch::zeros({3, 1, 4, 5})).sizes(), at::IntArrayRef({3, 10}));
}

TEST_F(MakeModelTest, WhatIsNotKnownIsToldByName) {
  EXPECT_THAT(MakeModel(Named("resnet"), Grey(28, 28)).status().message(), HasSubstr("resnet"));
  EXPECT_THAT(MakeModel(Named("custom"), Grey(28, 28)).status().message(), HasSubstr("own_loop"));
}

TEST_F(MakeModelTest, OneSeedGivesTheSameParameters) {
  torch::manual_seed(3);
  const auto one = MakeModel(Named("mlp"), Grey(4, 4));
  torch::manual_seed(3);
  const auto same = MakeModel(Named("mlp"), Grey(4, 4));
  ASSERT_TRUE(one.ok() && same.ok());
  EXPECT_TRUE(torch::equal((*one)->parameters()[0], (*same)->parameters()[0]));
}

TEST_F(MakeModelTest, OthersThanGreyImagesOfTenClasses) {
  const SampleShape colour = {.channels = 3, .height = 8, .width = 12, .classes = 7};
  for (const char* name : {"mlp", "simple_cnn"}) {
    auto model = MakeModel(Named(name), colour);
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ((*model)->forward(torch::zeros({2, 3, 8, 12})).sizes(), at::IntArrayRef({2, 7}));
  }
}

TEST_F(MakeModelTest, ModelsTakeTheSamplesTheyAreMadeFor) {
  const SampleShape text = {.context = 16, .classes = 65};
  for (const char* name : {"mlp", "simple_cnn", "resnet20", "resnet18", "resnet50", "vgg16"}) {
    const auto model = MakeModel(Named(name), text);
    EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(model.status().message(), HasSubstr("takes images")) << name;
  }
  EXPECT_THAT(MakeModel(Named("char_gpt"), Grey(28, 28)).status().message(),
              HasSubstr("takes text"));
  EXPECT_TRUE(MakeModel(Named("char_gpt"), text).ok());
  EXPECT_THAT(MakeModel({.name = "char_gpt", .heads = 3}, text).status().message(),
              AllOf(HasSubstr("width of char_gpt, 128"), HasSubstr("heads, 3")));
}

// Training with the smallest allowed images must work. If the last stage received a single pixel,
// BatchNorm could not compute a variance for a batch of one image.
TEST_F(MakeModelTest, SmallestImagesAreTrainedOn) {
  struct Least {
    job::ModelSpec spec;
    uint32_t side;
  };
  for (const auto& [spec, side] :
       {Least{{.name = "simple_cnn"}, 4}, Least{{.name = "resnet20"}, 5},
        Least{{.name = "resnet18"}, 9}, Least{{.name = "resnet18", .stem = "imagenet"}, 33},
        Least{{.name = "resnet50"}, 9}}) {
    const auto model = MakeModel(spec, Grey(side, side + 1));
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ((*model)->forward(torch::zeros({1, 1, side, side + 1})).sizes(),
              at::IntArrayRef({1, 10}));
    EXPECT_THAT(MakeModel(spec, Grey(side, side - 1)).status().message(),
                AllOf(HasSubstr(absl::StrCat("at least ", side, " × ", side)),
                      HasSubstr(absl::StrCat("not ", side, " × ", side - 1))))
        << spec.name;
  }
  EXPECT_THAT(MakeModel(Named("vgg16"), Grey(31, 64)).status().message(), HasSubstr("32 × 32"));
}

TEST_F(MakeModelTest, TheStemGoesByTheImagesSizeUnlessTheJobNamesIt) {
  const auto kernel = [](const std::string& stem, uint32_t height, uint32_t width) {
    const auto model = MakeModel({.name = "resnet18", .stem = stem}, Grey(height, width));
    return model.ok() ? (*model)->parameters()[0].size(2) : 0;
  };
  EXPECT_EQ(kernel("auto", 64, 64), 7);
  EXPECT_EQ(kernel("auto", 63, 64), 3);
  EXPECT_EQ(kernel("auto", 64, 63), 3);
  EXPECT_EQ(kernel("cifar", 64, 64), 3);
  EXPECT_EQ(kernel("imagenet", 48, 48), 7);
}

double Deviation(const Model& model, const std::string& name) {
  return model.named_parameters()[name].std().item<double>();
}

TEST_F(MakeModelTest, InitialValuesAreDrawnAsTorchvisionDraws) {
  torch::manual_seed(2);
  const auto resnet = MakeModel(Named("resnet18"), Grey(64, 64));
  ASSERT_TRUE(resnet.ok()) << resnet.status();
  // He's initialization: the square root of 2 / fan-out.
  EXPECT_NEAR(Deviation(**resnet, "conv1.weight"), std::sqrt(2.0 / (64 * 49)), 1e-3);
  EXPECT_NEAR(Deviation(**resnet, "layer2.0.conv1.weight"), std::sqrt(2.0 / (128 * 9)), 1e-3);
  EXPECT_NEAR(Deviation(**resnet, "layer2.0.downsample.0.weight"), std::sqrt(2.0 / 128), 5e-3);
  const auto vgg = MakeVgg16({.width = 16, .hidden = 64}, Grey(32, 32));
  EXPECT_NEAR(Deviation(*vgg, "features.2.weight"), std::sqrt(2.0 / (16 * 9)), 5e-3);
  EXPECT_NEAR(Deviation(*vgg, "classifier.0.weight"), 0.01, 1e-4);
  for (const auto& entry : vgg->named_parameters()) {
    if (entry.value().dim() > 1) continue;
    EXPECT_EQ(entry.value().abs().max().item<float>(), 0) << entry.key();
  }
}

}  // namespace
}  // namespace sluice::worker
