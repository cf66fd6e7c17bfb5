// RunFolder: checkpoint.dir as the coordinator of a job has it: held against a second coordinator
// for as long as this lives, with what an earlier one left there. Blocks on the disk. Not
// thread-safe.
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
  // Makes the folder, locks it, and looks what is there: says in the log what is damaged and what
  // of unfinished checkpoints was removed. FAILED_PRECONDITION: another coordinator has it, or it
  // holds a run that this job cannot go on with, or a finished one of unknown workers. Other
  // errors: trouble with the disk.
  static absl::StatusOr<std::unique_ptr<RunFolder>> Open(const job::JobSpec& job,
                                                         const Logger& logger);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  // That a run in this folder is over, for somebody who wants to begin another.
  static absl::Status FinishedRun(const job::JobSpec& job);
  // Of an unfinished run that is to go on, or of a finished one whose workers may not know it yet;
  // none: a new run begins here.
  const std::optional<protocol::RunRecord>& run() const { return run_; }
  // The newest that is whole, and older ones; ascending.
  const std::vector<protocol::CheckpointManifest>& checkpoints() const { return checkpoints_; }
  // Steps of what cannot be used and was left for a person to look at.
  const std::vector<uint64_t>& damaged() const { return damaged_; }

  // These look at the record of the run first, since a lock may be lost while its holder lives (a
  // file server that is started again, a file system without locks between machines).
  // FAILED_PRECONDITION: another coordinator has written it since; nothing is changed, and this one
  // has nothing to say any more. UNAVAILABLE, DATA_LOSS: it cannot be read.
  absl::Status Persist(const protocol::RunRecord& record);
  absl::Status Write(const protocol::CheckpointManifest& manifest) const;
  // And what processes that were late left of older ones that were given up.
  absl::Status Drop(uint64_t step) const;

 private:
  RunFolder(std::string dir, int lock_fd, Logger logger)
      : dir_(std::move(dir)), lock_fd_(lock_fd), logger_(std::move(logger)) {}

  absl::Status CheckOurs(const protocol::RunRecord& ours) const;
  absl::Status CheckOurs() const;  // By last_.
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
  std::optional<protocol::RunRecord> last_;  // Found, or given to Persist.
  std::vector<protocol::CheckpointManifest> checkpoints_;
  std::vector<uint64_t> damaged_;
};

}  // namespace sluice::server
