// SPDX-License-Identifier: Apache-2.0
// Checks that models have their published sizes, and torchvision's names and shapes.
#include <torch/torch.h>

#include <fstream>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/models/char_gpt.h"
#include "worker/models/make_model.h"

namespace sluice::worker {
namespace {

using ::testing::ElementsAreArray;

constexpr SampleShape kImageNet = {.channels = 3, .height = 224, .width = 224, .classes = 1000};
constexpr SampleShape kStateDictsCifar = {.channels = 3, .height = 32, .width = 32, .classes = 10};

int64_t StateDictsCountElements(const torch::nn::Module& module) {
  int64_t count = 0;
  for (const at::Tensor& tensor : module.parameters()) count += tensor.numel();
  return count;
}

std::string Describe(const std::string& name, const at::Tensor& tensor) {
  std::string text = name;
  for (const int64_t size : tensor.sizes()) absl::StrAppend(&text, " ", size);
  return text;
}

struct StateDict {
  std::vector<std::string> parameters;  // For example "conv1.weight 64 3 7 7", in order.
  std::vector<std::string> buffers;
};

StateDict StateDictOf(const torch::nn::Module& module) {
  StateDict state;
  for (const auto& entry : module.named_parameters()) {
    state.parameters.push_back(Describe(entry.key(), entry.value()));
  }
  for (const auto& entry : module.named_buffers()) {
    state.buffers.push_back(Describe(entry.key(), entry.value()));
  }
  return state;
}

// Reads a model's rows from the table that record_reference.py made.
StateDict Torchvision(const std::string& model) {
  std::ifstream table(SLUICE_MODEL_REFERENCES "/torchvision_state_dicts.txt");
  StateDict state;
  for (std::string line; std::getline(table, line);) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(' ', 1));
    if (parts[0] != model) continue;
    const bool is_buffer =
        absl::StrContains(parts[1], ".running_") || absl::StrContains(parts[1], ".num_batches");
    (is_buffer ? state.buffers : state.parameters).push_back(parts[1]);
  }
  return state;
}

struct Published {
  const char* torchvision;
  job::ModelSpec spec;
  int64_t parameters;
};

void PrintTo(const Published& c, std::ostream* out) { *out << c.torchvision; }

class TorchvisionTest : public ::testing::TestWithParam<Published> {};

TEST_P(TorchvisionTest, SizeNamesShapesAndOrderAreItsOwn) {
  const auto model = MakeModel(GetParam().spec, kImageNet);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(StateDictsCountElements(**model), GetParam().parameters);
  const StateDict ours = StateDictOf(**model);
  const StateDict theirs = Torchvision(GetParam().torchvision);
  ASSERT_FALSE(theirs.parameters.empty());
  EXPECT_THAT(ours.parameters, ElementsAreArray(theirs.parameters));
  EXPECT_THAT(ours.buffers, ElementsAreArray(theirs.buffers));
}

INSTANTIATE_TEST_SUITE_P(
    Models, TorchvisionTest,
    ::testing::Values(Published{"resnet18", {.name = "resnet18"}, 11689512},
                      Published{"resnet50", {.name = "resnet50"}, 25557032},
                      Published{"vgg16", {.name = "vgg16"}, 138357544},
                      Published{"vgg16_bn", {.name = "vgg16", .batch_norm = true}, 138365992}),
    [](const auto& instance) { return std::string(instance.param.torchvision); });

TEST(PublishedSizeTest, ResNet20IsThePapersWithShortcutsOfOptionA) {
  const auto model = MakeModel({.name = "resnet20"}, kStateDictsCifar);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(StateDictsCountElements(**model), 269722);
}

// torchvision has no models with a small stem. All other layers must have the same sizes.
TEST(PublishedSizeTest, TheSmallStemHasSmallerFilters) {
  for (const auto& [name, elements] : {std::pair{"resnet18", 11173962}, {"resnet50", 23520842}}) {
    const auto model = MakeModel({.name = name}, kStateDictsCifar);
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ(StateDictsCountElements(**model), elements) << name;
    const StateDict state = StateDictOf(**model);
    std::vector<std::string> expected = Torchvision(name).parameters;
    expected.front() = "conv1.weight 64 3 3 3";
    expected[expected.size() - 2] =
        absl::StrReplaceAll(expected[expected.size() - 2], {{"1000", "10"}});
    expected.back() = "fc.bias 10";
    EXPECT_THAT(state.parameters, ElementsAreArray(expected)) << name;
  }
}

TEST(PublishedSizeTest, ATransformerAsLargeAsGpt2HasAsManyParameters) {
  const auto model =
      MakeCharGpt({.layers = 12, .heads = 12, .width = 768}, {.context = 1024, .classes = 50257});
  EXPECT_EQ(StateDictsCountElements(*model), 124439808);
  const auto usual = MakeModel({.name = "char_gpt"}, {.context = 64, .classes = 65});
  ASSERT_TRUE(usual.ok()) << usual.status();
  EXPECT_EQ(StateDictsCountElements(**usual), 809856);  // As documented in docs/job-file.md.
}

TEST(PublishedSizeTest, ATransformersTensorsAreNamedAsGpt2s) {
  const auto model =
      MakeCharGpt({.layers = 1, .heads = 2, .width = 6}, {.context = 5, .classes = 9});
  EXPECT_THAT(
      StateDictOf(*model).parameters,
      ElementsAreArray({"wte.weight 9 6", "wpe.weight 5 6", "h.0.ln_1.weight 6", "h.0.ln_1.bias 6",
                        "h.0.attn.c_attn.weight 18 6", "h.0.attn.c_attn.bias 18",
                        "h.0.attn.c_proj.weight 6 6", "h.0.attn.c_proj.bias 6", "h.0.ln_2.weight 6",
                        "h.0.ln_2.bias 6", "h.0.mlp.c_fc.weight 24 6", "h.0.mlp.c_fc.bias 24",
                        "h.0.mlp.c_proj.weight 6 24", "h.0.mlp.c_proj.bias 6", "ln_f.weight 6",
                        "ln_f.bias 6"}));
  EXPECT_TRUE(StateDictOf(*model).buffers.empty());
}

}  // namespace
}  // namespace sluice::worker
