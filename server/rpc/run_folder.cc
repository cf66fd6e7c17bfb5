// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <system_error>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "job/job_spec.h"
#include "protocol/checkpoint/checkpoint_folder.h"

namespace sluice::server {
namespace {

// Returns the descriptor that holds the lock. The kernel releases the lock however the process
// ends.
absl::StatusOr<int> Lock(const std::string& dir) {
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  if (error) {
    return absl::UnavailableError(
        absl::StrCat("checkpoint.dir ", dir, " cannot be created: ", error.message()));
  }
  const std::string path = absl::StrCat(dir, "/lock");
  const int lock_fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock_fd < 0) {
    return absl::UnavailableError(
        absl::StrCat(path, " cannot be opened: ", std::strerror(errno),
                     "; the servers need a checkpoint.dir that they can write to"));
  }
  if (::flock(lock_fd, LOCK_EX | LOCK_NB) == 0) return lock_fd;
  const int problem = errno;
  ::close(lock_fd);
  if (problem != EWOULDBLOCK) {
    return absl::UnavailableError(
        absl::StrCat(path, " cannot be locked: ", std::strerror(problem)));
  }
  return absl::FailedPreconditionError(
      absl::StrCat("another coordinator uses checkpoint.dir ", dir,
                   "; stop it first, or give this job a folder of its own"));
}

std::string BytesOf(uint32_t elements) {
  const uint64_t bytes = uint64_t{elements} * sizeof(float);
  return bytes % 1024 == 0 ? absl::StrCat(bytes / 1024, "KiB") : absl::StrCat(bytes);
}

// Returns the keys of a job file that give this layout.
std::string Keys(const protocol::LayoutParameters& layout) {
  std::string keys =
      absl::StrCat("compression.chunk_bytes: ", BytesOf(layout.chunk_elements),
                   " and compression.bundle_bytes: ", BytesOf(layout.bundle_elements));
  if (layout.fragments > 1) absl::StrAppend(&keys, " and fragments: ", layout.fragments);
  return keys;
}

}  // namespace

RunFolder::~RunFolder() { ::close(lock_fd_); }

absl::StatusOr<std::unique_ptr<RunFolder>> RunFolder::Open(const job::JobSpec& job,
                                                           const Logger& logger) {
  const absl::StatusOr<int> lock_fd = Lock(job.checkpoint.dir);
  if (!lock_fd.ok()) return lock_fd.status();
  auto folder = std::unique_ptr<RunFolder>(new RunFolder(job.checkpoint.dir, *lock_fd, logger));
  const absl::Status looked = folder->Look(job);
  if (!looked.ok()) return looked;
  return folder;
}

absl::Status RunFolder::Look(const job::JobSpec& job) {
  absl::Status status = LookAtRun(job);
  if (!status.ok()) return status;
  if (run_.has_value() && run_->finished) return absl::OkStatus();
  absl::StatusOr<std::vector<uint64_t>> steps = protocol::ListCheckpoints(dir_);
  if (!steps.ok()) return steps.status();
  std::reverse(steps->begin(), steps->end());
  for (const uint64_t step : *steps) {
    status = LookAtCheckpoint(job, step);
    if (!status.ok()) return status;
  }
  std::reverse(checkpoints_.begin(), checkpoints_.end());
  if (!checkpoints_.empty() || damaged_.empty()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("none of the checkpoints in ", dir_,
                                          " can be used (the log has the reasons); ",
                                          "restore them, or remove the folder to start over"));
}

absl::Status RunFolder::FinishedRun(const job::JobSpec& job) {
  return absl::FailedPreconditionError(
      absl::StrCat(job.checkpoint.dir, " holds a finished run of job ", job.name,
                   "; use another checkpoint.dir, or remove this one"));
}

absl::Status RunFolder::LookAtRun(const job::JobSpec& job) {
  absl::StatusOr<protocol::RunRecord> record = protocol::ReadRunRecord(dir_);
  if (absl::IsNotFound(record.status())) return absl::OkStatus();
  if (!record.ok()) return record.status();
  if (record->job_name != job.name) {
    return absl::FailedPreconditionError(absl::StrCat(dir_, " holds a run of job ",
                                                      record->job_name, ", not of ", job.name,
                                                      "; give this job another checkpoint.dir"));
  }
  const bool workers_known = record->members.size() == job::RankLimit(job);
  const bool in_rack = job.part.rack_of > 0;
  if (record->finished && (!workers_known || (job.checkpoint.replay_limit == 0 && !in_rack))) {
    return FinishedRun(job);
  }
  run_ = *std::move(record);
  last_ = run_;
  return absl::OkStatus();
}

absl::Status RunFolder::LookAtCheckpoint(const job::JobSpec& job, uint64_t step) {
  absl::StatusOr<protocol::CheckpointManifest> manifest = protocol::ReadManifest(dir_, step);
  if (!run_.has_value()) {
    return absl::FailedPreconditionError(
        absl::StrCat(dir_,
                     " holds checkpoints, but no run.json that names their run; use another "
                     "checkpoint.dir, or remove this one"));
  }
  if (absl::IsNotFound(manifest.status())) {
    // The term may continue. In that case, the processes report again which parts of this
    // checkpoint they have written.
    if (run_->generation > 0 && job.checkpoint.replay_limit > 0) {
      return absl::OkStatus();
    }
    logger_.Info("the checkpoint after step ", step, " was never complete; it is removed");
    return Drop(step);
  }
  absl::Status usable = manifest.status();
  if (usable.ok() && manifest->job_uid != run_->job_uid) {
    usable = absl::FailedPreconditionError("it is of another run");
  }
  // Older checkpoints are verified when they are needed. Other servers verify their parts when
  // these parts are requested.
  if (usable.ok() && checkpoints_.empty()) {
    usable =
        protocol::VerifyCheckpoint(dir_, *manifest, [](uint32_t server) { return server == 0; });
  }
  // A disk that does not answer is no reason to lose the steps since an older checkpoint.
  if (absl::IsUnavailable(usable)) {
    return absl::UnavailableError(absl::StrCat("the checkpoint after step ", step,
                                               " cannot be read now: ", usable.message(),
                                               "; start this server again when its disk works"));
  }
  if (!usable.ok()) {
    logger_.Warning("the checkpoint after step ", step, " cannot be used: ", usable.message());
    damaged_.push_back(step);
    return absl::OkStatus();
  }
  const absl::Status fits = CheckFits(job, *manifest);
  if (!fits.ok()) return fits;
  if (checkpoints_.empty() && manifest->job_hash != job.hash) {
    logger_.Warning("the checkpoint after step ", step,
                    " was written under another job file; the run continues with this one");
  }
  checkpoints_.push_back(*std::move(manifest));
  return absl::OkStatus();
}

// Does not compare the numbers of workers and shards, which may differ.
absl::Status RunFolder::CheckFits(const job::JobSpec& job,
                                  const protocol::CheckpointManifest& manifest) const {
  if (manifest.at_shards != job.checkpoint.at_shards()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the checkpoints in ", dir_, " were written with checkpoint.store: ",
                     NameOf(manifest.at_shards ? protocol::CheckpointStore::kShards
                                               : protocol::CheckpointStore::kPath),
                     ", this job has ", NameOf(job.checkpoint.store), "; use the same store"));
  }
  const protocol::LayoutParameters& wanted = job.exchange.compression.layout;
  if (manifest.layout == wanted) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the run in ", dir_, " has ", Keys(manifest.layout), ", and this job has ", Keys(wanted),
      "; a run continues only with the same values, so state them in ", "the job file"));
}

absl::Status RunFolder::CheckOurs(const protocol::RunRecord& ours) const {
  const absl::StatusOr<protocol::RunRecord> found = protocol::ReadRunRecord(dir_);
  if (absl::IsNotFound(found.status())) return absl::OkStatus();
  if (!found.ok()) return found.status();
  const auto place = [](const protocol::RunRecord& record) {
    return std::tuple(record.coordinator_incarnation, record.term, record.finished);
  };
  if (found->job_uid == ours.job_uid && place(*found) <= place(ours)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("another coordinator has written ", dir_, "/run.json: number ",
                   found->coordinator_incarnation, ", in ", found->finished ? "the last " : "",
                   "term ", found->term, " of run ", found->job_uid, "; this one, number ",
                   ours.coordinator_incarnation, ", in term ", ours.term, " of run ", ours.job_uid,
                   ", was replaced and changes nothing there"));
}

absl::Status RunFolder::CheckOurs() const {
  return last_.has_value() ? CheckOurs(*last_) : absl::OkStatus();
}

absl::Status RunFolder::Persist(const protocol::RunRecord& record) {
  const auto may_replace = [&] { return CheckOurs(record); };
  // The record is checked before anything is changed, and once more immediately before it is
  // replaced.
  absl::Status written = may_replace();
  if (!written.ok()) return written;
  // `last_` changes even if the write fails, because some errors occur after the record is in
  // place.
  last_ = record;
  written = protocol::WriteRunRecord(dir_, record, may_replace);
  if (!written.ok() || !record.finished) return written;
  const absl::Status removed =
      protocol::RemoveIncomplete(dir_, std::numeric_limits<uint64_t>::max());
  // The remaining files only waste disk space.
  if (!removed.ok()) logger_.Warning(removed.message());
  return absl::OkStatus();
}

absl::Status RunFolder::Write(const protocol::CheckpointManifest& manifest) const {
  absl::Status status = CheckOurs();
  if (status.ok()) status = CheckParts(manifest);
  if (!status.ok()) return status;
  NameForPeople(manifest);
  return protocol::WriteManifest(dir_, manifest, [this] { return CheckOurs(); });
}

// Checks that the parts exist. An earlier coordinator may have abandoned the checkpoint and removed
// parts that were later reported again to this coordinator.
absl::Status RunFolder::CheckParts(const protocol::CheckpointManifest& manifest) const {
  for (const protocol::CheckpointPart& part : manifest.parts) {
    const absl::Status fits = protocol::CheckPartNames(part);
    if (!fits.ok()) return fits;
    if (part.server != 0) continue;  // The part is on that server's disk.
    const std::string path = protocol::PartPath(
        manifest.at_shards ? protocol::PartsFolder(dir_, part.server) : dir_, part);
    std::error_code error;
    const uintmax_t bytes = std::filesystem::file_size(path, error);
    if (!error && bytes == part.bytes) continue;
    return absl::DataLossError(
        absl::StrCat(path, error ? absl::StrCat(" is gone: ", error.message())
                                 : absl::StrCat(" has ", bytes, " bytes, not ", part.bytes)));
  }
  return absl::OkStatus();
}

// Gives files for people (the parameters) their usual names, whichever process wrote them.
void RunFolder::NameForPeople(const protocol::CheckpointManifest& manifest) const {
  for (const protocol::CheckpointPart& part : manifest.parts) {
    const bool is_state = part.name.starts_with("worker-") || part.name.starts_with("shard-");
    if (is_state || part.file.empty() || part.server != 0) continue;
    const std::string dir = manifest.at_shards ? protocol::PartsFolder(dir_, part.server) : dir_;
    protocol::CheckpointPart by_name = part;
    by_name.file.clear();
    const absl::Status named =
        protocol::NameToo(protocol::PartPath(dir, part), protocol::PartPath(dir, by_name));
    if (!named.ok()) logger_.Warning(named.message(), "; it is ", protocol::PartPath(dir, part));
  }
}

absl::Status RunFolder::Drop(uint64_t step) const {
  const absl::Status ours = CheckOurs();
  if (!ours.ok()) return ours;
  const absl::Status removed = protocol::RemoveCheckpoint(dir_, step);
  // A checkpoint in progress is always for a step after `step`, so it is not removed here.
  const absl::Status swept = protocol::RemoveIncomplete(dir_, step);
  return removed.ok() ? swept : removed;
}

}  // namespace sluice::server
