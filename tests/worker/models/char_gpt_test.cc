// SPDX-License-Identifier: Apache-2.0
#include "worker/models/char_gpt.h"

#include <torch/torch.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/models/filled.h"

namespace sluice::worker {
namespace {

constexpr SampleShape kCharGptText = {.context = 12, .classes = 11};

std::shared_ptr<Model> Small(double dropout = 0) {
  torch::manual_seed(5);
  return MakeCharGpt({.layers = 2, .heads = 2, .width = 16, .dropout = dropout}, kCharGptText);
}

// Uses one thread, because on a busy machine a second thread would wait for a core.
class CharGptTest : public ::testing::Test {
 protected:
  CharGptTest() { at::set_num_threads(1); }
};

TEST_F(CharGptTest, ScoresDependOnNoTokenAfterThem) {
  const torch::NoGradGuard no_grad;
  const auto model = Small();
  const at::Tensor tokens = FilledNumbers(kInputStream, 11, {2, 12});
  const at::Tensor scores = model->forward(tokens);
  EXPECT_EQ(scores.sizes(), at::IntArrayRef({2, 12, 11}));
  at::Tensor changed = tokens.clone();
  changed.select(1, 7).add_(1).remainder_(11);
  const at::Tensor after = model->forward(changed);
  EXPECT_TRUE(torch::equal(scores.narrow(1, 0, 7), after.narrow(1, 0, 7)));
  for (int64_t place = 7; place < 12; ++place) {
    EXPECT_FALSE(torch::allclose(scores.select(1, place), after.select(1, place))) << place;
  }
}

TEST_F(CharGptTest, TakesShorterRowsThanItsContext) {
  const torch::NoGradGuard no_grad;
  const auto model = Small();
  const at::Tensor tokens = FilledNumbers(kInputStream, 11, {2, 12});
  EXPECT_TRUE(torch::allclose(model->forward(tokens.narrow(1, 0, 5)),
                              model->forward(tokens).narrow(1, 0, 5), 1e-5, 1e-6));
}

TEST_F(CharGptTest, DropsOutWhileItTrainsOnly) {
  const torch::NoGradGuard no_grad;
  const auto model = Small(/*dropout=*/0.3);
  const at::Tensor tokens = FilledNumbers(kInputStream, 11, {2, 12});
  EXPECT_FALSE(torch::allclose(model->forward(tokens), model->forward(tokens)));
  torch::manual_seed(8);
  const at::Tensor once = model->forward(tokens);
  torch::manual_seed(8);
  EXPECT_TRUE(torch::equal(once, model->forward(tokens)));
  model->eval();
  EXPECT_TRUE(torch::equal(model->forward(tokens), model->forward(tokens)));
  EXPECT_TRUE(torch::equal(model->forward(tokens), [&] {
    const auto without = Small();
    without->eval();
    return without->forward(tokens);
  }()));
}

TEST_F(CharGptTest, StartsNearUniformScores) {
  const torch::NoGradGuard no_grad;
  const auto model = MakeCharGpt({.layers = 8, .heads = 4, .width = 64}, kCharGptText);
  for (const auto& entry : model->named_parameters()) {
    if (entry.value().dim() < 2) continue;
    const bool adds = absl::EndsWith(entry.key(), "c_proj.weight");
    // 4 is the square root of twice the number of layers.
    const double expected = adds ? 0.02 / 4 : 0.02;
    EXPECT_NEAR(entry.value().std().item<double>(), expected, 0.08 * expected) << entry.key();
  }
  const at::Tensor scores = model->forward(FilledNumbers(kInputStream, 11, {2, 12}));
  EXPECT_LT(scores.abs().max().item<double>(), 1.5);
}

}  // namespace
}  // namespace sluice::worker
