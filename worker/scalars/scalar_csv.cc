// SPDX-License-Identifier: Apache-2.0
#include "worker/scalars/scalar_csv.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace sluice::worker {
namespace {

constexpr size_t kLineBytesMax = 4096;  // Limit for a row; actual rows have about a tenth of that.
constexpr int kAsideMax = 1000;
constexpr size_t kLeadingColumns = 3;  // step, epoch, wall_seconds

// Returns a line without its line break, or nullopt at the end of the file or if the line exceeds
// the limit.
std::optional<std::string> ReadLine(std::istream* file) {
  std::string line(kLineBytesMax, '\0');
  file->getline(line.data(), static_cast<std::streamsize>(line.size()));
  if (!file->good()) return std::nullopt;
  line.resize(static_cast<size_t>(file->gcount()) - 1);
  return line;
}

// Returns true if the line is a row that a run after `step` keeps.
bool IsKept(const std::string& line, uint64_t step) {
  const absl::Span<const ScalarColumn> columns = ScalarColumns();
  const std::vector<absl::string_view> cells = absl::StrSplit(line, ',');
  uint64_t row = 0;
  if (cells.size() != kLeadingColumns + columns.size() || !absl::SimpleAtoi(cells[0], &row)) {
    return false;
  }
  bool tested = false;
  for (size_t i = 0; i < columns.size(); ++i) {
    const bool is_test =
        columns[i].value == &ScalarRow::test_accuracy || columns[i].value == &ScalarRow::test_loss;
    tested = tested || (is_test && !cells[kLeadingColumns + i].empty());
  }
  return row < step || (row == step && !tested);
}

// Returns the size of the header and all kept rows, or nullopt if the file has another header.
std::optional<uint64_t> KeptBytes(std::istream* file, uint64_t step) {
  const std::string header = ScalarCsvHeader();
  const std::optional<std::string> first = ReadLine(file);
  if (!first.has_value() || *first + "\n" != header) return std::nullopt;
  uint64_t kept = header.size();
  while (const std::optional<std::string> line = ReadLine(file)) {
    if (!IsKept(*line, step)) break;
    kept += line->size() + 1;
  }
  return kept;
}

absl::StatusOr<std::string> MoveAside(const std::string& path) {
  for (int i = 1; i <= kAsideMax; ++i) {
    const std::string aside = absl::StrCat(path, ".", i);
    std::error_code error;
    if (std::filesystem::exists(aside, error)) continue;
    if (std::rename(path.c_str(), aside.c_str()) == 0) return aside;
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot move ", path, " to ", aside));
  }
  return absl::AlreadyExistsError(
      absl::StrCat(path, " is not a table of scalars, and ", kAsideMax,
                   " such files were moved aside already: remove some"));
}

}  // namespace

std::string ScalarCsvHeader() {
  std::string line = "step,epoch,wall_seconds";
  for (const ScalarColumn& column : ScalarColumns()) absl::StrAppend(&line, ",", column.name);
  return line + "\n";
}

std::string ScalarCsvLine(const ScalarRow& row) {
  std::string line = absl::StrFormat("%d,%d,%.3f", row.step, row.epoch, row.wall_seconds);
  for (const ScalarColumn& column : ScalarColumns()) {
    const std::optional<double>& value = row.*column.value;
    line += ',';
    if (value.has_value()) absl::StrAppendFormat(&line, "%.7g", *value);
  }
  return line + "\n";
}

absl::StatusOr<ScalarCsv> ScalarCsv::Open(const std::string& path, uint64_t step) {
  std::string moved_to;
  uint64_t kept = 0;
  std::error_code error;
  if (std::filesystem::file_size(path, error) > 0 && !error) {
    std::ifstream file(path, std::ios::binary);
    if (const std::optional<uint64_t> bytes = KeptBytes(&file, step)) {
      kept = *bytes;
    } else {
      absl::StatusOr<std::string> aside = MoveAside(path);
      if (!aside.ok()) return aside.status();
      moved_to = *std::move(aside);
    }
  }
  absl::StatusOr<AppendedFile> file = AppendedFile::Open(path, kept);
  if (!file.ok()) return file.status();
  if (file->size() == 0) {
    if (absl::Status status = file->Append(ScalarCsvHeader()); !status.ok()) return status;
  }
  return ScalarCsv(*std::move(file), std::move(moved_to));
}

}  // namespace sluice::worker
