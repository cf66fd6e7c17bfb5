// SPDX-License-Identifier: Apache-2.0
#include "job/file/reference_file.h"

#include <algorithm>
#include <fstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace sluice::job {
namespace {

constexpr size_t kLineBytesMax = 4096;
constexpr uint64_t kLinesMax = 10'000'000;

absl::Status Wrong(const std::string& path, uint64_t line, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(path, ":", line, ": ", what, "; give the scalars.csv of a run with tests"));
}

// Returns the column with the header `name`, or the number of columns if there is none.
size_t ColumnOf(const std::vector<absl::string_view>& header, absl::string_view name) {
  return static_cast<size_t>(std::find(header.begin(), header.end(), name) - header.begin());
}

}  // namespace

absl::StatusOr<std::vector<CurvePoint>> ReadReferenceFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string line(kLineBytesMax, '\0');
  std::string header_line;
  std::vector<absl::string_view> header;
  size_t step_at = 0;
  size_t accuracy_at = 0;
  std::vector<CurvePoint> curve;
  if (!file) {
    return absl::NotFoundError(
        absl::StrCat("cannot open ", path, "; check the path and your read permission"));
  }
  for (uint64_t number = 1; file.getline(line.data(), static_cast<std::streamsize>(line.size()));
       ++number) {
    if (number > kLinesMax) return Wrong(path, number, "the file has too many lines");
    const absl::string_view text = absl::StripSuffix(absl::string_view(line.data()), "\r");
    if (number == 1) {
      header_line = std::string(text);
      header = absl::StrSplit(header_line, ',');
      step_at = ColumnOf(header, "step");
      accuracy_at = ColumnOf(header, "test_accuracy");
      if (step_at < header.size() && accuracy_at < header.size()) continue;
      return Wrong(path, number, "there are no columns step and test_accuracy");
    }
    const std::vector<absl::string_view> cells = absl::StrSplit(text, ',');
    if (cells.size() != header.size()) {
      return Wrong(
          path, number,
          absl::StrCat("there are ", cells.size(), " cells, and ", header.size(), " columns"));
    }
    if (cells[accuracy_at].empty()) continue;
    CurvePoint point;
    if (!absl::SimpleAtoi(cells[step_at], &point.step) ||
        !absl::SimpleAtod(cells[accuracy_at], &point.metric) ||
        !(point.metric >= 0 && point.metric <= 1)) {
      return Wrong(path, number, "step must be a whole number and test_accuracy a share");
    }
    point.metric *= 100;
    if (curve.size() == kCurvePointsMax) {
      return Wrong(path, number, absl::StrCat("there are more than ", kCurvePointsMax, " tests"));
    }
    curve.push_back(point);
  }
  if (!file.eof())
    return absl::InvalidArgumentError(
        absl::StrCat(path, " cannot be read, or has a line of ", kLineBytesMax, " bytes or more"));
  if (const absl::Status valid = ValidateCurve(curve); !valid.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", valid.message()));
  }
  return curve;
}

}  // namespace sluice::job
