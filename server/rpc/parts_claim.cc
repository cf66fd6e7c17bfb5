#include "server/rpc/parts_claim.h"

#include "absl/strings/str_cat.h"
#include "protocol/checkpoint/checkpoint_folder.h"

namespace sluice::server {
namespace {

absl::Status OfAnotherRun(const std::string& folder, const protocol::RunRecord& record) {
  return absl::FailedPreconditionError(absl::StrCat(
      folder, " holds parts of another run, of job ", record.job_name,
      "; give this server another checkpoint.dir, or remove that folder to begin anew there"));
}

// OK: the folder's record is of this run. NOT_FOUND: there is none.
absl::Status FindRecord(const std::string& folder, uint64_t job_uid) {
  const absl::StatusOr<protocol::RunRecord> record = protocol::ReadRunRecord(folder);
  if (record.ok() && record->job_uid != job_uid) return OfAnotherRun(folder, *record);
  return record.status();
}

}  // namespace

absl::Status PartsClaim::Take(uint64_t job_uid, uint32_t term) {
  MutexLock lock(&mutex_);
  if (taken_ && job_uid_ == job_uid) return absl::OkStatus();
  taken_ = false;
  job_uid_ = job_uid;
  term_ = term;
  return TryToTake();
}

absl::Status PartsClaim::TakeAgain() {
  MutexLock lock(&mutex_);
  if (taken_) return absl::OkStatus();
  if (job_uid_ == 0) return absl::FailedPreconditionError("no job was started here yet");
  return TryToTake();
}

bool PartsClaim::taken() const {
  MutexLock lock(&mutex_);
  return taken_;
}

absl::Status PartsClaim::TryToTake() {
  const uint64_t job_uid = job_uid_;
  absl::Status status = FindRecord(folder_, job_uid);
  taken_ = status.ok();
  if (!absl::IsNotFound(status)) return status;
  const absl::StatusOr<std::vector<uint64_t>> steps = protocol::ListCheckpoints(folder_);
  if (!steps.ok()) return steps.status();
  if (!steps->empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        folder_,
        " holds parts of checkpoints, but no run.json says of which run; bring that back, ",
        "or give this server another checkpoint.dir"));
  }
  // Another server may have been given the same folder a moment ago.
  status = protocol::WriteRunRecord(
      folder_, {.job_name = job_name_, .job_uid = job_uid_, .term = term_}, [&]() -> absl::Status {
        const absl::Status found = FindRecord(folder_, job_uid);
        return absl::IsNotFound(found) ? absl::OkStatus() : found;
      });
  taken_ = status.ok();
  return status;
}

}  // namespace sluice::server
