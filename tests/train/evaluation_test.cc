#include "worker/train/evaluation.h"

#include <torch/torch.h>

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/train/image_batches.h"

namespace sluice {
namespace {

// Equal scores for the other classes.
class AlwaysClassTwo final : public Model {
 public:
  at::Tensor forward(const at::Tensor& inputs) override {
    at::Tensor scores = torch::zeros({inputs.size(0), 10});
    scores.select(1, 2).fill_(1.0f);
    return scores;
  }
};

TEST(ImageBatchesTest, PixelsAreNormalizedAndInOrder) {
  const LabelledImages images{
      .count = 2, .height = 1, .width = 2, .pixels = {0, 255, 51, 102}, .labels = {4, 7}};
  const ImageBatch batch = MakeBatch(images, {.mean = 0.5f, .deviation = 0.25f}, {1, 0});
  EXPECT_TRUE(torch::allclose(batch.images,
                              torch::tensor({-1.2f, -0.4f, -2.0f, 2.0f}).reshape({2, 1, 1, 2})));
  EXPECT_TRUE(torch::equal(batch.labels, torch::tensor({7, 4}, torch::kLong)));
}

TEST(EvaluationTest, CountsWhatIsRight) {
  AlwaysClassTwo model;
  const LabelledImages images{
      .count = 4, .height = 1, .width = 1, .pixels = {0, 0, 0, 0}, .labels = {2, 2, 2, 5}};
  const auto evaluation = Evaluate(&model, images, {}, nullptr);
  ASSERT_TRUE(evaluation.ok()) << evaluation.status();
  EXPECT_EQ(evaluation->accuracy, 0.75);
  EXPECT_NEAR(evaluation->loss, std::log(9 + std::exp(1.0)) - 0.75, 1e-6);
  const std::atomic<bool> stop = true;
  EXPECT_EQ(Evaluate(&model, images, {}, &stop).status().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace sluice
