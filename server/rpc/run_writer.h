// SPDX-License-Identifier: Apache-2.0
// RunWriter: writes the coordinator's run records and manifests, and removes checkpoints, on a
// thread of its own. It holds one write at a time. A record that cannot be written is retried until
// it is durable or the job ends, because the job cannot continue without it. Thread-safe.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <variant>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "protocol/disk_wait.h"
#include "server/coordinator/coordinator_effects.h"
#include "server/rpc/run_folder.h"

namespace sluice::server {

// The effects that change the run's folder.
using RunWrite = std::variant<PersistRun, WriteCheckpoint, DropCheckpoint>;

// Carries out `write` in `folder`. Blocks on the disk.
absl::Status WriteTo(RunFolder* folder, const RunWrite& write);

class RunWriter {
 public:
  // Makes one attempt at a write. Called on the writer's thread.
  using Disk = std::function<absl::Status(const RunWrite&)>;
  // Called on the writer's thread, without its lock.
  struct Listener {
    // The write is durable, or it failed and is not retried. The listener may begin the next write.
    std::function<void(const RunWrite&, const absl::Status&)> written;
    // An attempt failed and the writer will retry. Not called again for the same status code.
    std::function<void()> retries;
  };

  RunWriter(Disk disk, Listener listener, const Clock* clock, Logger logger);
  // Finishes the write that has begun, without further retries.
  ~RunWriter();

  // Hands a write to the thread without blocking. The previous write must have ended.
  void Write(RunWrite write);
  // Call this when the job has ended or this process stops. No write is retried afterwards.
  void StopRetrying();
  // Describes the current write. `what` is empty if there is none.
  protocol::DiskWait NowAtDisk() const;

 private:
  // The current write.
  struct Attempts {
    std::string what;  // A readable description; empty if there is no write.
    absl::Time since;
    std::string trouble{};                          // Why the last attempt failed.
    absl::StatusCode code = absl::StatusCode::kOk;  // Code of the last failure.
  };

  void Run();
  // Waits for a write. Returns nullopt when the writer stops.
  std::optional<RunWrite> AwaitWrite();
  absl::Status WriteUntilDurable(const RunWrite& write);
  // Returns true if the job cannot continue until the write is done.
  bool MustBeWritten(const RunWrite& write) const;
  void ReportUnwritten(const absl::Status& status);
  // Returns false if retries have ended meanwhile.
  bool PauseBeforeRetry(absl::Duration pause);
  void EndAttempts(const absl::Status& status);

  const Disk disk_;
  const Listener listener_;
  const Clock* const clock_;
  const Logger logger_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::optional<RunWrite> waiting_ ABSL_GUARDED_BY(mutex_);  // Until the thread takes it.
  Attempts attempts_ ABSL_GUARDED_BY(mutex_);
  bool may_retry_ ABSL_GUARDED_BY(mutex_) = true;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace sluice::server
