// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/parts_claim.h"

#include "absl/strings/str_cat.h"
#include "protocol/checkpoint/checkpoint_folder.h"

namespace sluice::server {
namespace {

absl::Status OfAnotherRun(const std::string& folder, const protocol::RunRecord& record) {
  return absl::FailedPreconditionError(absl::StrCat(
      folder, " holds parts of another run, of job ", record.job_name,
      "; give this server another checkpoint.dir, or remove that folder to start over"));
}

// Returns OK if the folder's record belongs to this run, and NOT_FOUND if there is no record.
absl::Status FindRecord(const std::string& folder, uint64_t job_uid) {
  const absl::StatusOr<protocol::RunRecord> record = protocol::ReadRunRecord(folder);
  if (record.ok() && record->job_uid != job_uid) return OfAnotherRun(folder, *record);
  return record.status();
}

}  // namespace

absl::Status PartsClaim::Claim(uint64_t job_uid, uint32_t term) {
  MutexLock lock(&mutex_);
  if (taken_ && job_uid_ == job_uid) return absl::OkStatus();
  taken_ = false;
  job_uid_ = job_uid;
  term_ = term;
  return TryToClaim();
}

absl::Status PartsClaim::ClaimAgain() {
  MutexLock lock(&mutex_);
  if (taken_) return absl::OkStatus();
  if (job_uid_ == 0) return absl::FailedPreconditionError("no job has started here yet");
  return TryToClaim();
}

absl::Status PartsClaim::BeginTerm(uint64_t job_uid, uint32_t term, const Logger& logger) {
  const absl::Status claimed = Claim(job_uid, term);
  if (absl::IsFailedPrecondition(claimed)) return claimed;
  // DATA_LOSS would mean a damaged checkpoint, which the job would replace with an earlier one.
  if (absl::IsDataLoss(claimed)) return absl::FailedPreconditionError(claimed.message());
  // If the disk is full, the run continues without checkpoints.
  if (!claimed.ok()) {
    logger.Warning(claimed.message(), "; no part is written to ", folder_, " until that succeeds");
  }
  return absl::OkStatus();
}

void PartsClaim::KeepOnly(const std::vector<uint64_t>& steps, uint64_t before,
                          const Logger& logger) const {
  if (!taken()) {
    logger.Warning("nothing is removed from ", folder_, ": the run of its parts is unknown");
    return;
  }
  const absl::Status removed = protocol::RemoveOthers(folder_, steps, before);
  if (!removed.ok()) logger.Warning(removed.message());  // The rest only wastes disk space.
}

bool PartsClaim::taken() const {
  MutexLock lock(&mutex_);
  return taken_;
}

absl::Status PartsClaim::TryToClaim() {
  const uint64_t job_uid = job_uid_;
  absl::Status status = FindRecord(folder_, job_uid);
  taken_ = status.ok();
  if (!absl::IsNotFound(status)) return status;
  const absl::StatusOr<std::vector<uint64_t>> steps = protocol::ListCheckpoints(folder_);
  if (!steps.ok()) return steps.status();
  if (!steps->empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        folder_,
        " holds parts of checkpoints, but no run.json that names their run; restore run.json, ",
        "or give this server another checkpoint.dir"));
  }
  // Another server may have claimed the same folder a moment ago.
  status = protocol::WriteRunRecord(
      folder_, {.job_name = job_name_, .job_uid = job_uid_, .term = term_}, [&]() -> absl::Status {
        const absl::Status found = FindRecord(folder_, job_uid);
        return absl::IsNotFound(found) ? absl::OkStatus() : found;
      });
  taken_ = status.ok();
  return status;
}

}  // namespace sluice::server
