#include "server/coordinator/admission.h"

#include "absl/strings/str_cat.h"

namespace sluice::server {

absl::Status CheckSameJob(const CoordinatorOptions& options, protocol::JobPhase phase,
                          absl::string_view failure, const Applicant& applicant) {
  const auto& [who, job_name, job_hash, version] = applicant;
  if (phase == protocol::JobPhase::kFinished) {
    return absl::FailedPreconditionError(absl::StrCat("job ", options.job_name, " has finished"));
  }
  if (phase == protocol::JobPhase::kFailed) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", options.job_name, " has failed: ", failure));
  }
  if (job_name != options.job_name) {
    return absl::InvalidArgumentError(
        absl::StrCat(who, " belongs to job ", job_name, ", but job ", options.job_name,
                     " runs here; check the address of the coordinator"));
  }
  if (version != options.software_version) {
    return absl::InvalidArgumentError(absl::StrCat(who, " is version ", version,
                                                   ", the coordinator ", options.software_version,
                                                   "; use one build everywhere"));
  }
  if (job_hash != options.job_hash) {
    return absl::InvalidArgumentError(absl::StrCat(
        who,
        " was started with another job file or other --set values than the coordinator "
        "(hash ",
        absl::Hex(job_hash), ", not ", absl::Hex(options.job_hash),
        "); start all processes of a job with the same ones"));
  }
  return absl::OkStatus();
}

}  // namespace sluice::server
