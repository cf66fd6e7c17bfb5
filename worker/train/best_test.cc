// SPDX-License-Identifier: Apache-2.0
#include "worker/train/best_test.h"

#include <cmath>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace sluice::worker {

TestMeasure MeasureOf(const job::DataSpec& data) {
  const bool text = job::IsText(data.format);
  return text ? TestMeasure::kLoss : TestMeasure::kAccuracy;
}

bool IsBetter(const BestTest& test, const BestTest& than, TestMeasure measure) {
  if (measure == TestMeasure::kAccuracy) return test.accuracy > than.accuracy;
  // NaN is worse than any number.
  return test.loss < than.loss || (std::isnan(than.loss) && !std::isnan(test.loss));
}

std::optional<BestTest> BestToGoOnFrom(const std::optional<BestTest>& remembered,
                                       const std::optional<BestTest>& written,
                                       TestMeasure measure) {
  if (!remembered.has_value() || !written.has_value()) return std::nullopt;
  if (IsBetter(*remembered, *written, measure)) return std::nullopt;
  return written;
}

std::string FormatBestTest(const BestTest& test) {
  return absl::StrFormat("step %d accuracy %.17g loss %.17g", test.step, test.accuracy, test.loss);
}

std::optional<BestTest> ParseBestTest(absl::string_view text) {
  const std::vector<absl::string_view> words = absl::StrSplit(text, ' ');
  BestTest test;
  if (words.size() != 6 || words[0] != "step" || words[2] != "accuracy" || words[4] != "loss" ||
      !absl::SimpleAtoi(words[1], &test.step) || !absl::SimpleAtod(words[3], &test.accuracy) ||
      !absl::SimpleAtod(words[5], &test.loss)) {
    return std::nullopt;
  }
  return test;
}

std::string DescribeTest(double accuracy, double loss, TestMeasure measure) {
  if (measure == TestMeasure::kAccuracy) {
    return absl::StrFormat("test accuracy %.2f %%, test loss %.4f", accuracy * 100, loss);
  }
  return absl::StrFormat("test loss %.4f (perplexity %.2f), accuracy %.2f %% of next tokens", loss,
                         std::exp(loss), accuracy * 100);
}

}  // namespace sluice::worker
