// ScalarCsv: rows as a table in text, one line each, with the columns' names in the first.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/scalars/appended_file.h"
#include "worker/scalars/scalar_row.h"

namespace sluice::worker {

// "step,epoch,wall_seconds,loss,...", with the end of the line; then rows, empty where a row has no
// value.
std::string ScalarCsvHeader();
std::string ScalarCsvLine(const ScalarRow& row);

class ScalarCsv {
 public:
  // Of a file that is there, keeps what a run that goes on after step `step` has of it: rows up to
  // that step, but for its tests, which come after the checkpoint and are made again. Its rows are
  // read up to the first that is not as written here, and the rest is cut off. A file with another
  // first line is somebody else's, and is moved aside: PATH.1, or the first such name that is free.
  static absl::StatusOr<ScalarCsv> Open(const std::string& path, uint64_t step);

  absl::Status Append(const ScalarRow& row) { return file_.Append(ScalarCsvLine(row)); }
  const std::string& path() const { return file_.path(); }
  // Where a file of others was moved; empty: there was none.
  const std::string& moved_to() const { return moved_to_; }

 private:
  ScalarCsv(AppendedFile file, std::string moved_to)
      : file_(std::move(file)), moved_to_(std::move(moved_to)) {}

  AppendedFile file_;
  std::string moved_to_;
};

}  // namespace sluice::worker
