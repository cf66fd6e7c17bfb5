// SPDX-License-Identifier: Apache-2.0
// ScalarCsv: rows as a text table, one line each, with the column names in the first line.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/scalars/appended_file.h"
#include "worker/scalars/scalar_row.h"

namespace sluice::worker {

// "step,epoch,wall_seconds,loss,..." or a row's values, with a line break. Absent values are empty.
std::string ScalarCsvHeader();
std::string ScalarCsvLine(const ScalarRow& row);

class ScalarCsv {
 public:
  // Opens or creates the file for a run that continues after step `step`. In an existing file it
  // keeps the rows up to that step, except a test of that step, which comes after the checkpoint
  // and is repeated. It reads rows up to the first malformed one and removes the rest. A file with
  // another header belongs to another program and is renamed to PATH.1, or to the first free name
  // of that form.
  static absl::StatusOr<ScalarCsv> Open(const std::string& path, uint64_t step);

  absl::Status Append(const ScalarRow& row) { return file_.Append(ScalarCsvLine(row)); }
  const std::string& path() const { return file_.path(); }
  // New name of another program's file. Empty if there was none.
  const std::string& moved_to() const { return moved_to_; }

 private:
  ScalarCsv(AppendedFile file, std::string moved_to)
      : file_(std::move(file)), moved_to_(std::move(moved_to)) {}

  AppendedFile file_;
  std::string moved_to_;
};

}  // namespace sluice::worker
