// SPDX-License-Identifier: Apache-2.0
// ScalarLog: writes a run's rows in both formats. Handles continued runs and disk errors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "base/log.h"
#include "worker/scalars/event_file.h"
#include "worker/scalars/scalar_csv.h"
#include "worker/scalars/scalar_row.h"

namespace sluice::worker {

// Not thread-safe. `logger` must outlive it.
class ScalarLog {
 public:
  // Opens scalars.csv and tensorboard/ in `folder`, and creates the folder if it does not exist.
  // The run continues after step `step` (0 for a new run). `now` is the time of day.
  ScalarLog(const std::string& folder, uint64_t step, absl::Time now, const Logger* logger);

  // Drops rows that cannot be written and warns at the first one; the run continues.
  void Append(const ScalarRow& row, absl::Time now);

 private:
  void Warn(const absl::Status& status);

  const Logger& logger_;
  std::optional<ScalarCsv> csv_;
  std::optional<EventFile> events_;
  bool warned_ = false;
};

}  // namespace sluice::worker
