// SPDX-License-Identifier: Apache-2.0
#include "worker/train/evaluation.h"

#include <torch/torch.h>

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/dataset.h"

namespace sluice::worker {
namespace {

// Predicts class 2 with equal scores for the other classes.
class AlwaysClassTwo final : public Model {
 public:
  std::vector<std::string> EdgeWeights() const override { return {}; }
  at::Tensor forward(const at::Tensor& inputs) override {
    at::Tensor scores = torch::zeros({inputs.size(0), 10});
    scores.select(1, 2).fill_(1.0f);
    return scores;
  }
};

// `size` images of one pixel. The last one has class 5, and the others have class 2.
class ClassesTwoAndFive final : public Dataset {
 public:
  explicit ClassesTwoAndFive(uint32_t size) : size_(size) {}

  uint32_t size() const override { return size_; }
  SampleShape shape() const override { return {1, 1, 1, 0, 10}; }
  absl::StatusOr<Batch> MakeBatch(absl::Span<const uint32_t> samples, EpochKey) const override {
    const auto n = static_cast<int64_t>(samples.size());
    Batch batch{torch::zeros({n, 1, 1, 1}), torch::full({n}, 2, torch::kLong)};
    for (int64_t i = 0; i < n; ++i) {
      if (samples[static_cast<size_t>(i)] == size_ - 1) batch.targets[i] = 5;
    }
    return batch;
  }

 private:
  const uint32_t size_;
};

// A model of three tokens. After 0 it predicts 1, after 1 it rejects 2, and after 2 all scores are
// equal.
class KnowsZero final : public Model {
 public:
  std::vector<std::string> EdgeWeights() const override { return {}; }
  at::Tensor forward(const at::Tensor& inputs) override {
    at::Tensor scores = torch::zeros({inputs.size(0), inputs.size(1), 3});
    scores.select(2, 1).add_(inputs.eq(0).to(torch::kFloat));
    scores.select(2, 2).sub_(inputs.eq(1).to(torch::kFloat));
    return scores;
  }
};

// Every sample is the window 0 1 2. Each token is followed by the next, and 2 by 0.
class CountingWindows final : public Dataset {
 public:
  uint32_t size() const override { return 4; }
  SampleShape shape() const override { return {0, 0, 0, 3, 3}; }
  absl::StatusOr<Batch> MakeBatch(absl::Span<const uint32_t> samples, EpochKey) const override {
    const auto n = static_cast<int64_t>(samples.size());
    return Batch{torch::tensor({0, 1, 2}, torch::kLong).repeat({n, 1}),
                 torch::tensor({1, 2, 0}, torch::kLong).repeat({n, 1})};
  }
};

TEST(EvaluationTest, CountsWhatIsRight) {
  AlwaysClassTwo model;
  for (const uint32_t size : {4u, 251u}) {
    const auto evaluation = Evaluate(&model, ClassesTwoAndFive(size), nullptr);
    ASSERT_TRUE(evaluation.ok()) << evaluation.status();
    EXPECT_DOUBLE_EQ(evaluation->accuracy, (size - 1.0) / size);
    EXPECT_NEAR(evaluation->loss, std::log(9 + std::exp(1.0)) - (size - 1.0) / size, 1e-6);
  }
  const std::atomic<bool> stop = true;
  EXPECT_EQ(Evaluate(&model, ClassesTwoAndFive(4), &stop).status().code(),
            absl::StatusCode::kCancelled);
}

TEST(EvaluationTest, LargeSamplesComeInSmallBatches) {
  EXPECT_EQ(EvaluationBatch({1, 28, 28, 0, 10}), 250u);
  EXPECT_EQ(EvaluationBatch({3, 32, 32, 0, 10}), 250u);
  EXPECT_EQ(EvaluationBatch({3, 224, 224, 0, 1000}), 55u);
  EXPECT_EQ(EvaluationBatch({3, 4096, 4096, 0, 10}), 1u);
  EXPECT_EQ(EvaluationBatch({0, 0, 0, 128, 65}), 250u);
  EXPECT_EQ(EvaluationBatch({0, 0, 0, 1024, 65}), 32u);
}

TEST(EvaluationTest, CountsTokens) {
  KnowsZero model;
  const auto evaluation = Evaluate(&model, CountingWindows(), nullptr);
  ASSERT_TRUE(evaluation.ok()) << evaluation.status();
  // The model is right after 0 and wrong after 1. After 2 all scores are equal, so the first class
  // counts as its prediction, which is right.
  EXPECT_NEAR(evaluation->accuracy, 2.0 / 3, 1e-9);
  const double after_zero = std::log(2 + std::exp(1.0)) - 1;
  const double after_one = std::log(2 + std::exp(-1.0)) + 1;
  EXPECT_NEAR(evaluation->loss, (after_zero + after_one + std::log(3.0)) / 3, 1e-6);
}

}  // namespace
}  // namespace sluice::worker
