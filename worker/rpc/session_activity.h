// SPDX-License-Identifier: Apache-2.0
// SessionActivity: what a joined session is doing, for its heartbeats and its figures: the progress
// that the program reports, the last sign of life of the training thread, and what this thread
// waits for. The caller passes in all times. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "protocol/membership.h"
#include "worker/core/quality_meter.h"
#include "worker/core/session.h"

namespace sluice::worker {

class SessionActivity {
 public:
  // `restoring_step` is the step of the checkpoint that the worker starts from; 0 if there is none.
  SessionActivity(absl::Time now, uint64_t restoring_step);

  // Records a sign of life: the training thread called the session, or got an answer from it.
  void Moved(absl::Time now);
  // Records that the training thread waits for other processes or disks. Such a wait does not count
  // against the worker. Does nothing if the thread already waits, because one wait may take several
  // calls.
  void WaitBegan(absl::Time now);
  // Returns when the wait began.
  absl::Time WaitEnded(absl::Time now);

  // Records why the last attempt to read the checkpoint failed.
  void RestoreFailed(absl::string_view why);
  void RestoreEnded(absl::Time now);

  void Reported(const Progress& progress, absl::Time now);
  void Skipped(uint32_t bundles);
  void Measured(const CodingQuality& quality);
  void ParametersHashed(uint64_t step, absl::string_view sha256);

  // Sets the fields that describe the activity. Sets the wait for a disk only while the worker
  // restores. Leaves out the hash of the parameters, which Heartbeat adds itself.
  void FillHeartbeat(absl::Time now, protocol::WorkerHeartbeat* heartbeat) const;
  // Sets the last hash of the parameters, for the message to Leave.
  void FillHash(protocol::WorkerHeartbeat* heartbeat) const;
  void FillFigures(SessionFigures* figures) const;

 private:
  mutable Mutex mutex_;
  absl::Time last_progress_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Time> waiting_since_ ABSL_GUARDED_BY(mutex_);
  uint64_t restoring_step_ ABSL_GUARDED_BY(mutex_);  // 0 once the checkpoint is restored.
  const absl::Time restoring_since_;
  std::string restore_trouble_ ABSL_GUARDED_BY(mutex_);
  Progress progress_ ABSL_GUARDED_BY(mutex_);
  absl::Time reported_ ABSL_GUARDED_BY(mutex_);  // When progress_ was reported.
  uint64_t skipped_bundles_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<CodingQuality> quality_ ABSL_GUARDED_BY(mutex_);
  uint64_t hash_step_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string parameters_sha256_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice::worker
