// ScalarLog: a run's rows in both forms, and what becomes of them when it goes on or a disk fails.
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

// Not thread-safe. `logger` outlives it.
class ScalarLog {
 public:
  // scalars.csv and tensorboard/ in `folder`, which is made if need be, of a run that goes on after
  // step `step` (0: begins). `now` is the time of day.
  ScalarLog(const std::string& folder, uint64_t step, absl::Time now, const Logger* logger);

  // What cannot be written is lost, and the first time a warning says so: no run ends for it.
  void Append(const ScalarRow& row, absl::Time now);

 private:
  void Warn(const absl::Status& status);

  const Logger& logger_;
  std::optional<ScalarCsv> csv_;
  std::optional<EventFile> events_;
  bool warned_ = false;
};

}  // namespace sluice::worker
