// SPDX-License-Identifier: Apache-2.0
#include "server/coordinator/admission.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace sluice::server {
namespace {

struct Applicant {
  absl::string_view who;  // For messages.
  absl::string_view job_name;
  uint64_t job_hash = 0;
  absl::string_view version;
};

absl::Status CheckSameJob(const JobRun& run, const Applicant& applicant) {
  const CoordinatorOptions& options = run.options();
  const auto& [who, job_name, job_hash, version] = applicant;
  if (run.phase() == protocol::JobPhase::kFinished) {
    return absl::FailedPreconditionError(absl::StrCat("job ", options.job_name, " has finished"));
  }
  if (run.phase() == protocol::JobPhase::kFailed) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", options.job_name, " has failed: ", run.failure()));
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

}  // namespace

absl::Status CheckJoin(const JobRun& run, const protocol::WorkerJoin& join) {
  const std::string who = absl::StrCat("rank ", join.rank);
  const absl::Status same =
      CheckSameJob(run, {who, join.job_name, join.job_hash, join.software_version});
  if (!same.ok()) return same;
  const Roster& roster = run.roster();
  if (join.rank >= roster.size()) {
    return absl::InvalidArgumentError(absl::StrCat(who, " is out of range: the job has ",
                                                   roster.size(), " workers, ranks 0 to ",
                                                   roster.size() - 1));
  }
  const Member& member = roster[join.rank];
  const bool announced = run.term().announced;
  const bool held = member.is_present() && member.join.nonce != join.nonce;
  const bool may_wait = run.has_checkpoints() && (announced || run.is_recovering());
  if (held && !may_wait) {
    return roster.HeldBy(
        member.join, announced && !run.has_checkpoints()
                         ? " (a restarted worker cannot rejoin a running job without checkpoints)"
                         : "");
  }
  return roster.CheckTable(join, run.term().restore_step);
}

absl::Status CheckArrival(const JobRun& run, const protocol::ShardArrival& arrival) {
  const std::string who = absl::StrCat("shard ", arrival.shard, " (", arrival.address, ")");
  const ShardFleet& fleet = run.fleet();
  if (arrival.shard >= fleet.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        who, " is out of range: the job has ", fleet.size(), " shards, 0 to ", fleet.size() - 1));
  }
  const ShardSeat& seat = fleet[arrival.shard];
  if (seat.is_known() && seat.IsHeldBy(arrival)) return absl::OkStatus();  // The same process.
  // After the end, other processes may attach too, because they must learn of the end.
  if (run.phase() == protocol::JobPhase::kFinished && run.has_checkpoints()) {
    return absl::OkStatus();
  }
  const absl::Status same =
      CheckSameJob(run, {who, arrival.job_name, arrival.job_hash, arrival.software_version});
  if (!same.ok()) return same;
  return fleet.CheckSeatIsFree(arrival, run.has_checkpoints());
}

}  // namespace sluice::server
