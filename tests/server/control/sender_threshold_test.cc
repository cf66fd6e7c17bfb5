// SPDX-License-Identifier: Apache-2.0
// Tests how a sender converts one density to one threshold for all of its tensors or, with
// scope=tensor, to one threshold for each tensor.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "compress/compressor.h"
#include "server/control/bit_allocation.h"
#include "server/control/codec_rate_distortion.h"
#include "tests/server/control/small_tensors.h"

namespace sluice::server {
namespace {

constexpr size_t kSizes[] = {200000, 50000, 20000};
constexpr double kScales[] = {1e-3, 1e-2, 4e-3};
constexpr size_t kSenderThresholdTensors = 3;
constexpr uint64_t kSteps = 30;  // Enough steps for residuals and thresholds to settle.

double Cost(size_t elements, double sent) {
  const auto all = static_cast<double>(elements);
  return all * SparseBits(sent / all, compress::ValueFormat::kFp16) / 8;
}

// Bytes sent and energy lost for the accumulators of one step.
struct Outcome {
  double bytes = 0;
  double lost = 0;
  double first_sent = 0;  // Number of values sent from tensor 0.
};

// A sender that uses one spec for tensors of very different scale.
class Sender {
 public:
  explicit Sender(const std::string& spec) : compressor_(Chunks(spec), {}) {}

  Outcome Step(uint64_t step, double loudness) {
    accumulators_.assign(kSenderThresholdTensors, {});
    Outcome outcome;
    for (size_t i = 0; i < kSenderThresholdTensors; ++i) {
      const std::vector<float> gradient =
          Values(kSenderThresholdTensors * step + i, kSizes[i], loudness * kScales[i]);
      accumulators_[i] = gradient;
      const absl::Span<const float> owed = compressor_.residual(i);
      for (size_t j = 0; j < owed.size(); ++j) accumulators_[i][j] += owed[j];
      std::vector<std::byte> frame;
      EXPECT_TRUE(compressor_.Encode(i, step, gradient, &frame).ok());
      double sent = 0;
      const absl::Span<const float> left = compressor_.residual(i);
      for (size_t j = 0; j < left.size(); ++j) {
        // A sent value leaves only the rounding error of fp16.
        if (std::abs(left[j]) < 0.01F * std::abs(accumulators_[i][j])) {
          ++sent;
        } else {
          outcome.lost += double{left[j]} * left[j];
        }
      }
      if (i == 0) outcome.first_sent = sent;
      outcome.bytes += Cost(kSizes[i], sent);
    }
    compressor_.EndStep(step);
    return outcome;
  }

 private:
  static std::vector<compress::ChunkConfig> Chunks(const std::string& spec) {
    std::vector<compress::ChunkConfig> chunks;
    for (uint32_t i = 0; i < kSenderThresholdTensors; ++i) {
      chunks.push_back(
          {.count = kSizes[i], .spec = *compress::ParseCodecSpec(spec), .id = i, .tensor = i});
    }
    return chunks;
  }

  compress::Compressor compressor_;
  std::vector<std::vector<float>> accumulators_;
};

// With scope=tensor, a tensor with small values must also send its share of values. Optimizers like
// Adam need this.
TEST(SenderThreshold, OfEachTensorGivesQuietOnesTheirShare) {
  Sender all("topk:1%"), each("topk:1%,scope=tensor");
  double of_all = 0, of_each = 0;
  for (uint64_t step = 0; step < kSteps; ++step) {
    const double a = all.Step(step, 1).first_sent, b = each.Step(step, 1).first_sent;
    if (step < kSteps / 2) continue;
    of_all += a;
    of_each += b;
  }
  const double steps = kSteps - kSteps / 2;
  EXPECT_NEAR(of_each / (steps * kSizes[0]), 0.01, 0.002);
  EXPECT_LT(of_all, 0.5 * of_each);
}

}  // namespace
}  // namespace sluice::server
