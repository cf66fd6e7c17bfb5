#include "worker/rpc/own_snapshot.h"

#include "absl/strings/str_cat.h"
#include "job/checkpoint/checkpoint_folder.h"
#include "job/checkpoint/snapshot_format.h"

namespace sluice {

absl::StatusOr<WorkerSnapshot> ReadOwnSnapshot(const std::string& dir, uint64_t step,
                                               const Sender& sender) {
  if (dir.empty()) {
    return absl::FailedPreconditionError(
        "this worker's job file has no checkpoint.dir: give all servers and workers of a job the "
        "same one");
  }
  const absl::StatusOr<CheckpointManifest> manifest = ReadManifest(dir, step);
  if (absl::IsNotFound(manifest.status())) {
    return absl::NotFoundError(
        absl::StrCat(manifest.status().message(),
                     "; the coordinator found it there: checkpoint.dir must be one "
                     "folder that all servers and workers see"));
  }
  if (!manifest.ok()) return manifest.status();
  if (manifest->job_uid != sender.job_uid) {
    return absl::FailedPreconditionError(absl::StrCat(
        StepFolder(dir, step), " is of run ", manifest->job_uid, ", and this is run ",
        sender.job_uid, ": checkpoint.dir must be one folder that all servers and workers see"));
  }
  const std::string name = WorkerPartName(sender.rank, manifest->term);
  const absl::StatusOr<std::string> bytes = ReadPart(dir, *manifest, name);
  if (!bytes.ok()) return bytes.status();
  absl::StatusOr<WorkerSnapshot> snapshot = ParseWorkerSnapshot(*bytes);
  if (!snapshot.ok()) {
    return absl::Status(snapshot.status().code(), absl::StrCat(StepFolder(dir, step), "/", name,
                                                               ": ", snapshot.status().message()));
  }
  if (snapshot->rank != sender.rank || snapshot->step != step ||
      snapshot->job_uid != sender.job_uid) {
    return absl::DataLossError(absl::StrCat(
        StepFolder(dir, step), "/", name, " holds the state of rank ", snapshot->rank,
        " after step ", snapshot->step, " of run ", snapshot->job_uid, ", wanted rank ",
        sender.rank, " after step ", step, " of run ", sender.job_uid));
  }
  return snapshot;
}

}  // namespace sluice
