// SPDX-License-Identifier: Apache-2.0
// RunFolder: a coordinator's checkpoint.dir. Locks the folder against a second coordinator as long
// as this object exists, and returns what an earlier coordinator left there. Blocks on the disk.
// Not thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/log.h"
#include "protocol/snapshot.h"

namespace sluice::job {
struct JobSpec;
}  // namespace sluice::job

namespace sluice::server {

class RunFolder {
 public:
  // Creates the folder, locks it and reads its contents. Logs damaged checkpoints, and unfinished
  // ones that it removes. Fails with FAILED_PRECONDITION if another coordinator holds the folder,
  // or if the folder has a run that this job cannot continue or a finished run of unknown workers.
  // Fails with other codes on disk errors.
  static absl::StatusOr<std::unique_ptr<RunFolder>> Open(const job::JobSpec& job,
                                                         const Logger& logger);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  // Returns the error for a folder that contains a finished run when the job needs a new one.
  static absl::Status FinishedRun(const job::JobSpec& job);
  // Returns the unfinished run to continue, or a finished run whose workers may not know of the end
  // yet. Empty if a new run begins.
  const std::optional<protocol::RunRecord>& run() const { return run_; }
  // The newest complete checkpoint and older ones, by ascending step.
  const std::vector<protocol::CheckpointManifest>& checkpoints() const { return checkpoints_; }
  // Steps of unusable checkpoints. Their files stay on disk for inspection.
  const std::vector<uint64_t>& damaged() const { return damaged_; }

  // Persist, Write and Drop first check the record of the run, because a lock can be lost while its
  // holder is alive (for example after a restart of a file server, or on a file system without
  // locks between machines). If another coordinator has written the record since, they change
  // nothing and fail with FAILED_PRECONDITION; this coordinator must then stop. If the record
  // cannot be read, they fail with UNAVAILABLE or DATA_LOSS.
  absl::Status Persist(const protocol::RunRecord& record);
  absl::Status Write(const protocol::CheckpointManifest& manifest) const;
  // Also removes files of older abandoned checkpoints that processes wrote late.
  absl::Status Drop(uint64_t step) const;

 private:
  RunFolder(std::string dir, int lock_fd, Logger logger)
      : dir_(std::move(dir)), lock_fd_(lock_fd), logger_(std::move(logger)) {}

  absl::Status CheckOurs(const protocol::RunRecord& ours) const;
  absl::Status CheckOurs() const;  // Compares the record with last_.
  absl::Status CheckParts(const protocol::CheckpointManifest& manifest) const;
  void NameForPeople(const protocol::CheckpointManifest& manifest) const;
  absl::Status Look(const job::JobSpec& job);
  absl::Status LookAtRun(const job::JobSpec& job);
  absl::Status CheckFits(const job::JobSpec& job,
                         const protocol::CheckpointManifest& manifest) const;
  absl::Status LookAtCheckpoint(const job::JobSpec& job, uint64_t step);

  const std::string dir_;
  const int lock_fd_;
  const Logger logger_;
  std::optional<protocol::RunRecord> run_;
  // The record that was found or was last passed to Persist.
  std::optional<protocol::RunRecord> last_;
  std::vector<protocol::CheckpointManifest> checkpoints_;
  std::vector<uint64_t> damaged_;
};

}  // namespace sluice::server
