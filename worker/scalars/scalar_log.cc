// SPDX-License-Identifier: Apache-2.0
#include "worker/scalars/scalar_log.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice::worker {

ScalarLog::ScalarLog(const std::string& folder, uint64_t step, absl::Time now, const Logger* logger)
    : logger_(*logger) {
  // EventFile::Create also creates `folder`.
  absl::StatusOr<EventFile> events =
      EventFile::Create(absl::StrCat(folder, "/tensorboard"), now, step);
  if (events.ok()) {
    events_.emplace(*std::move(events));
  } else {
    Warn(events.status());
  }
  absl::StatusOr<ScalarCsv> csv = ScalarCsv::Open(absl::StrCat(folder, "/scalars.csv"), step);
  if (!csv.ok()) {
    Warn(csv.status());
    return;
  }
  csv_.emplace(*std::move(csv));
  if (!csv_->moved_to().empty()) {
    logger_.Warning(csv_->path(), " was not a scalar table of this version and was renamed to ",
                    csv_->moved_to());
  }
}

void ScalarLog::Append(const ScalarRow& row, absl::Time now) {
  if (csv_.has_value()) Warn(csv_->Append(row));
  if (events_.has_value()) Warn(events_->Append(row, now));
}

void ScalarLog::Warn(const absl::Status& status) {
  if (status.ok() || warned_) return;
  warned_ = true;
  logger_.Warning(
      status.message(),
      "; scalars are lost until this is fixed. This warning appears once; training continues");
}

}  // namespace sluice::worker
