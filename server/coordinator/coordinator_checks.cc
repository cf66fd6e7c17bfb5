// Implements the coordinator's checks and its status report.
#include "absl/strings/str_cat.h"
#include "server/coordinator/admission.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/processes.h"

namespace sluice::server {

absl::Status Coordinator::CheckJoin(const protocol::WorkerJoin& join) const {
  const std::string who = absl::StrCat("rank ", join.rank);
  const absl::Status same = CheckSameJob(
      options_, phase_, failure_, {who, join.job_name, join.job_hash, join.software_version});
  if (!same.ok()) return same;
  if (join.rank >= roster_.size()) {
    return absl::InvalidArgumentError(absl::StrCat(who, " is out of range: the job has ",
                                                   roster_.size(), " workers, ranks 0 to ",
                                                   roster_.size() - 1));
  }
  const Member& member = roster_[join.rank];
  const bool held = member.is_present() && member.join.nonce != join.nonce;
  const bool may_wait =
      has_checkpoints() && (term_.announced || phase_ == protocol::JobPhase::kRecovering);
  if (held && !may_wait) {
    return roster_.HeldBy(
        member.join, term_.announced && !has_checkpoints()
                         ? " (a restarted worker cannot rejoin a running job without checkpoints)"
                         : "");
  }
  return roster_.CheckTable(join, term_.restore_step);
}

absl::Status Coordinator::CheckArrival(const protocol::ShardArrival& arrival) const {
  const std::string who = absl::StrCat("shard ", arrival.shard, " (", arrival.address, ")");
  if (arrival.shard >= fleet_.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        who, " is out of range: the job has ", fleet_.size(), " shards, 0 to ", fleet_.size() - 1));
  }
  const ShardSeat& seat = fleet_[arrival.shard];
  if (seat.is_known() && seat.IsHeldBy(arrival)) return absl::OkStatus();  // The same process.
  // After the end, other processes may attach too, because they must learn of the end.
  if (phase_ == protocol::JobPhase::kFinished && has_checkpoints()) return absl::OkStatus();
  const absl::Status same =
      CheckSameJob(options_, phase_, failure_,
                   {who, arrival.job_name, arrival.job_hash, arrival.software_version});
  if (!same.ok()) return same;
  return fleet_.CheckSeatIsFree(arrival, has_checkpoints());
}

std::string Coordinator::WhoIsMissing() const {
  const std::string missing = MissingProcesses(roster_, fleet_);
  return missing.empty() && parent_.awaits_start() ? "the parent job" : missing;
}

JobStatus Coordinator::Status(absl::Time now) const {
  JobStatus status{.job_name = options_.job_name,
                   .job_uid = options_.job_uid,
                   .phase = phase_,
                   .failure = failure_,
                   .generation = term_.generation,
                   .term = term_.number,
                   .world_size = options_.world_size,
                   .uptime = now - created_,
                   .software_version = options_.software_version,
                   .has_checkpoints = has_checkpoints(),
                   .checkpoint_step = book().newest(),
                   .checkpoint_trouble = checkpoints_.trouble(),
                   .relays = options_.relays};
  recoveries_.AddTo(&status);
  status.recovery_class = Recovery(&status.recovery_reason);
  if (checkpoints_.newest_since() > absl::InfinitePast()) {
    status.checkpoint_age = now - checkpoints_.newest_since();
  }
  AddProcesses(roster_, fleet_, now, &status);
  if (!ended()) AddWaits(roster_, fleet_, now, &status);
  return status;
}

}  // namespace sluice::server
