// Implements the coordinator's checks, its names for members, and its status report.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/coordinator/coordinator.h"

namespace sluice::server {

absl::string_view ToString(RecoveryClass recovery) {
  switch (recovery) {
    case RecoveryClass::kNone:
      return "none";
    case RecoveryClass::kRollback:
      return "rollback";
    case RecoveryClass::kReplay:
      return "replay";
  }
  return "unknown";
}

absl::Status Coordinator::CheckSameJob(absl::string_view who, absl::string_view job_name,
                                       uint64_t job_hash, absl::string_view version) const {
  if (phase_ == protocol::JobPhase::kFinished) {
    return absl::FailedPreconditionError(absl::StrCat("job ", options_.job_name, " has finished"));
  }
  if (phase_ == protocol::JobPhase::kFailed) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", options_.job_name, " has failed: ", failure_));
  }
  if (job_name != options_.job_name) {
    return absl::InvalidArgumentError(
        absl::StrCat(who, " belongs to job ", job_name, ", but job ", options_.job_name,
                     " runs here; check the address of the coordinator"));
  }
  if (version != options_.software_version) {
    return absl::InvalidArgumentError(absl::StrCat(who, " is version ", version,
                                                   ", the coordinator ", options_.software_version,
                                                   "; use one build everywhere"));
  }
  if (job_hash != options_.job_hash) {
    return absl::InvalidArgumentError(absl::StrCat(
        who,
        " was started with another job file or other --set values than the coordinator "
        "(hash ",
        absl::Hex(job_hash), ", not ", absl::Hex(options_.job_hash),
        "); start all processes of a job with the same ones"));
  }
  return absl::OkStatus();
}

absl::Status Coordinator::CheckJoin(const protocol::WorkerJoin& join) const {
  const std::string who = absl::StrCat("rank ", join.rank);
  const absl::Status same = CheckSameJob(who, join.job_name, join.job_hash, join.software_version);
  if (!same.ok()) return same;
  if (join.rank >= roster_.size()) {
    return absl::InvalidArgumentError(absl::StrCat(who, " is out of range: the job has ",
                                                   roster_.size(), " workers, ranks 0 to ",
                                                   roster_.size() - 1));
  }
  const Member& member = roster_[join.rank];
  const bool held = member.is_present() && member.join.nonce != join.nonce;
  const bool may_wait =
      has_checkpoints() && (announced_ || phase_ == protocol::JobPhase::kRecovering);
  if (held && !may_wait) {
    return roster_.HeldBy(
        member.join, announced_ && !has_checkpoints()
                         ? " (a restarted worker cannot rejoin a running job without checkpoints)"
                         : "");
  }
  return roster_.CheckTable(join, restore_step_);
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
      CheckSameJob(who, arrival.job_name, arrival.job_hash, arrival.software_version);
  if (!same.ok()) return same;
  return CheckSeatIsFree(arrival);
}

absl::Status Coordinator::CheckSeatIsFree(const protocol::ShardArrival& arrival) const {
  const ShardSeat& seat = fleet_[arrival.shard];
  if (!has_checkpoints()) {
    if (!seat.is_attached()) return absl::OkStatus();
    return absl::AlreadyExistsError(absl::StrCat("shard ", arrival.shard, " is served by ",
                                                 seat.arrival.address,
                                                 " already; give this server another --shard"));
  }
  // The process with the highest number serves the shard, even if an older process is still alive.
  if (!seat.is_known() || arrival.server_incarnation > seat.arrival.server_incarnation) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("shard ", arrival.shard, " is served by ", seat.arrival.address,
                   ", which was started later; this server must stop"));
}

std::string Coordinator::WhoIsMissing() const {
  std::vector<uint32_t> shards;
  for (const ShardSeat& seat : fleet_) {
    if (!seat.is_attached()) shards.push_back(seat.arrival.shard);
  }
  std::vector<std::string> missing;
  if (std::string workers = roster_.Missing(); !workers.empty()) {
    missing.push_back(std::move(workers));
  }
  if (!shards.empty()) missing.push_back(absl::StrCat("shard ", absl::StrJoin(shards, ", ")));
  if (missing.empty() && parent_.awaits_start()) return "the parent job";
  return absl::StrJoin(missing, " and ");
}

void Coordinator::AddWaits(absl::Time now, std::vector<LongWait>* out) const {
  const auto add = [out](std::string who, const protocol::DiskWait& wait,
                         absl::Duration since_heard) {
    if (wait.what.empty()) return;
    out->push_back({std::move(who), wait.what, wait.lasts + since_heard, wait.trouble});
  };
  for (const Member& member : roster_) {
    if (!member.is_present()) continue;
    add(roster_.Describe(member.join), member.disk_wait, now - member.heard);
  }
  for (const ShardSeat& seat : fleet_) {
    if (seat.is_known()) add(Describe(seat), seat.health.disk_wait, now - seat.heard);
  }
}

JobStatus Coordinator::Status(absl::Time now) const {
  JobStatus status{.job_name = options_.job_name,
                   .job_uid = options_.job_uid,
                   .phase = phase_,
                   .failure = failure_,
                   .generation = generation_,
                   .term = term_,
                   .world_size = options_.world_size,
                   .uptime = now - created_,
                   .software_version = options_.software_version,
                   .has_checkpoints = has_checkpoints(),
                   .checkpoint_step = book().newest(),
                   .checkpoint_trouble = checkpoints_.trouble(),
                   .rollbacks = rollbacks_,
                   .last_rollback = last_rollback_,
                   .repairs = repairs_,
                   .last_repair = last_repair_,
                   .relays = options_.relays,
                   .lost_workers = roster_.lost_workers(),
                   .lost_residual_energy = roster_.lost_residual_energy()};
  status.recovery_class = Recovery(&status.recovery_reason);
  if (checkpoints_.newest_since() > absl::InfinitePast()) {
    status.checkpoint_age = now - checkpoints_.newest_since();
  }
  for (const Member& member : roster_) {
    const uint32_t rank = member.join.rank;
    status.members.push_back(
        {.rank = rank,
         .host = member.join.host,
         .pid = member.join.pid,
         .joined = member.is_present(),
         .left = member.has_left(),
         .lost = member.is_lost(),
         .since_heartbeat = member.is_present() ? now - member.heard : absl::ZeroDuration(),
         .progress = member.progress,
         .timings = member.timings,
         .waited_seconds = fleet_.WaitedSeconds(rank),
         .link = fleet_.SlowestLink(rank)});
  }
  for (const ShardSeat& seat : fleet_) {
    status.shards.push_back(
        {.shard = seat.arrival.shard,
         .address = seat.arrival.address,
         .attached = seat.is_attached(),
         .lost = seat.lost,
         .since_report = seat.is_known() ? now - seat.heard : absl::ZeroDuration(),
         .elements = seat.health.elements,
         .highest_closed_step = seat.health.highest_closed_step});
  }
  if (!ended()) AddWaits(now, &status.waits);
  return status;
}

}  // namespace sluice::server
