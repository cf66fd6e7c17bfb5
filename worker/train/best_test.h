// SPDX-License-Identifier: Apache-2.0
// BestTest: tracks a run's best test and whether best.pt contains its parameters. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "job/training_spec.h"

namespace sluice::worker {

struct BestTest {
  uint64_t step = 0;  // Step before the test.
  double accuracy = 0;
  double loss = 0;

  friend bool operator==(const BestTest&, const BestTest&) = default;
};

// Images are compared by accuracy. Text is compared by loss, because its accuracy is not
// informative.
enum class TestMeasure { kAccuracy, kLoss };
TestMeasure MeasureOf(const job::DataSpec& data);

bool IsBetter(const BestTest& test, const BestTest& than, TestMeasure measure);

// Returns the best test for a run that continues from a checkpoint. `remembered` is the best test
// in the checkpoint. `written` is the test in the note of best.pt (absent if there is no such file
// or it belongs to another run). Returns `written` if it is not worse than `remembered`. It is then
// the same test, or a later one before the interruption, whose parameters remain valid. Otherwise
// returns nullopt, so that the next test becomes the best.
std::optional<BestTest> BestToGoOnFrom(const std::optional<BestTest>& remembered,
                                       const std::optional<BestTest>& written, TestMeasure measure);

// One line of text for the note of best.pt. Parse returns nullopt for any other text.
std::string FormatBestTest(const BestTest& test);
std::optional<BestTest> ParseBestTest(absl::string_view text);

// Returns "test accuracy 91.20 %, test loss 0.2511", or for text "test loss 1.4321 (perplexity
// 4.19), accuracy 57.20 % of next tokens".
std::string DescribeTest(double accuracy, double loss, TestMeasure measure);

}  // namespace sluice::worker
