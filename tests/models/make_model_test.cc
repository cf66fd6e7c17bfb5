#include "worker/models/make_model.h"

#include <torch/torch.h>

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

ModelSpec Named(const std::string& name, std::vector<uint32_t> hidden = {}) {
  ModelSpec spec;
  spec.name = name;
  spec.hidden = std::move(hidden);
  return spec;
}

SampleShape Grey(uint32_t height, uint32_t width) {
  return {.channels = 1, .height = height, .width = width, .classes = 10};
}

int64_t CountElements(const torch::nn::Module& module) {
  int64_t count = 0;
  for (const at::Tensor& tensor : module.parameters()) count += tensor.numel();
  return count;
}

TEST(MakeModelTest, SimpleCnnHasItsSizeAndGivesScores) {
  auto model = MakeModel(Named("simple_cnn"), Grey(28, 28));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(CountElements(**model), 215370);
  EXPECT_EQ((*model)->forward(torch::zeros({3, 1, 28, 28})).sizes(), at::IntArrayRef({3, 10}));
  EXPECT_EQ((*model)->named_parameters()[0].key(), "conv1.weight");
  EXPECT_FALSE(MakeModel(Named("simple_cnn"), Grey(3, 28)).ok());
}

TEST(MakeModelTest, MlpHasTheLayersOfTheJob) {
  auto model = MakeModel(Named("mlp", {20, 30}), Grey(4, 5));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(CountElements(**model), 20 * 20 + 20 + 20 * 30 + 30 + 30 * 10 + 10);
  EXPECT_EQ((*model)->forward(torch::zeros({3, 1, 4, 5})).sizes(), at::IntArrayRef({3, 10}));
}

TEST(MakeModelTest, WhatIsNotKnownIsToldByName) {
  EXPECT_THAT(MakeModel(Named("resnet"), Grey(28, 28)).status().message(), HasSubstr("resnet"));
  EXPECT_THAT(MakeModel(Named("custom"), Grey(28, 28)).status().message(), HasSubstr("own_loop"));
}

TEST(MakeModelTest, OneSeedGivesTheSameParameters) {
  torch::manual_seed(3);
  const auto one = MakeModel(Named("mlp"), Grey(4, 4));
  torch::manual_seed(3);
  const auto same = MakeModel(Named("mlp"), Grey(4, 4));
  ASSERT_TRUE(one.ok() && same.ok());
  EXPECT_TRUE(torch::equal((*one)->parameters()[0], (*same)->parameters()[0]));
}

TEST(MakeModelTest, OthersThanGreyImagesOfTenClasses) {
  const SampleShape colour = {.channels = 3, .height = 8, .width = 12, .classes = 7};
  for (const char* name : {"mlp", "simple_cnn"}) {
    auto model = MakeModel(Named(name), colour);
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ((*model)->forward(torch::zeros({2, 3, 8, 12})).sizes(), at::IntArrayRef({2, 7}));
  }
}

TEST(MakeModelTest, ModelsOfImagesTakeNoText) {
  const SampleShape text = {.context = 16, .classes = 65};
  for (const char* name : {"mlp", "simple_cnn"}) {
    const auto model = MakeModel(Named(name), text);
    EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(model.status().message(), HasSubstr("takes images")) << name;
  }
}

}  // namespace
}  // namespace sluice
