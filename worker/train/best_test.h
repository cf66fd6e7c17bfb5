// BestTest: which of a run's tests was the best so far, and whether best.pt is of it. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "job/training_spec.h"

namespace sluice::worker {

struct BestTest {
  uint64_t step = 0;  // After which it was.
  double accuracy = 0;
  double loss = 0;

  friend bool operator==(const BestTest&, const BestTest&) = default;
};

// Images are judged by their accuracy, text by its loss, which its accuracy says little of.
enum class TestMeasure { kAccuracy, kLoss };
TestMeasure MeasureOf(const job::DataSpec& data);

bool IsBetter(const BestTest& test, const BestTest& than, TestMeasure measure);

// Of a run that goes on from a checkpoint, which remembers `remembered`, beside a best.pt that says
// of itself `written` (none: it is not there, or is of others). What is written counts if it is no
// worse: it is the same, or came between the checkpoint and the loss, and those parameters are
// as good as they were. Otherwise there is no best: the next test makes one.
std::optional<BestTest> BestToGoOnFrom(const std::optional<BestTest>& remembered,
                                       const std::optional<BestTest>& written, TestMeasure measure);

// One line of text that best.pt carries. Parse gives none for any other text.
std::string FormatBestTest(const BestTest& test);
std::optional<BestTest> ParseBestTest(absl::string_view text);

// "test accuracy 91.20 %, test loss 0.2511"; of text "test loss 1.4321 (perplexity 4.19), accuracy
// 57.20 % of next tokens".
std::string DescribeTest(double accuracy, double loss, TestMeasure measure);

}  // namespace sluice::worker
