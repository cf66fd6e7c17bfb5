// SPDX-License-Identifier: Apache-2.0
// EventFile: rows in TensorBoard's format: a file of records, each an Event message with its length
// and checksums.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/scalars/appended_file.h"
#include "worker/scalars/scalar_row.h"

namespace sluice::worker {

class EventFile {
 public:
  // Creates a file in `folder`. Its name comes from `now` (time of day) and sorts after all
  // existing ones. Its first records invalidate all values of other files for steps above `step`.
  static absl::StatusOr<EventFile> Create(const std::string& folder, absl::Time now, uint64_t step);

  absl::Status Append(const ScalarRow& row, absl::Time now);
  const std::string& path() const { return file_.path(); }

 private:
  explicit EventFile(AppendedFile file) : file_(std::move(file)) {}

  AppendedFile file_;
};

}  // namespace sluice::worker
