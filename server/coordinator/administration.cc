// SPDX-License-Identifier: Apache-2.0
#include "server/coordinator/administration.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/coordinator/recovery_outlook.h"

namespace sluice::server {
namespace {

// The limits of server.lease_timeout in a job file (job.proto).
constexpr absl::Duration kLeaseMin = absl::Milliseconds(100);
constexpr absl::Duration kLeaseMax = absl::Hours(24);

}  // namespace

absl::Status Administration::CheckEviction(const Eviction& eviction) const {
  const Roster& roster = run_.roster();
  const uint32_t rank = eviction.rank;
  if (rank >= roster.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", rank, " does not exist: the job has ranks 0 to ", roster.size() - 1));
  }
  if (!run_.is_running()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "rank ", rank, " cannot be evicted while the job is ", protocol::ToString(run_.phase())));
  }
  const Member& member = roster[rank];
  if (!member.is_present() || member.gave_up()) {
    return absl::FailedPreconditionError(absl::StrCat("no worker holds rank ", rank));
  }
  if (member.has_left()) {
    return absl::FailedPreconditionError(absl::StrCat(roster.Describe(rank), " has finished"));
  }
  if (member.token != 0) {  // Its Join would never be answered.
    return absl::UnavailableError(
        absl::StrCat(roster.Describe(rank), " is joining the job; ask again"));
  }
  if (!run_.has_checkpoints()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the job has no checkpoints and would end without ", roster.Describe(rank),
                     "; set checkpoint.dir in the next run, or stop the job"));
  }
  const std::string why_rollback = WhyRollback(eviction);
  if (why_rollback.empty() || eviction.allow_rollback) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "without ", roster.Describe(rank), " the job rolls back to the checkpoint after ", "step ",
      run_.book().newest(), ": ", why_rollback,
      "; ask for a checkpoint first, and then allow the rollback"));
}

// Returns why the eviction causes a rollback. Empty if it does not.
std::string Administration::WhyRollback(const Eviction& eviction) const {
  const Roster& roster = run_.roster();
  const bool gives_parameters = !run_.term().parameters_agree && run_.book().newest() == 0 &&
                                run_.is_elastic() && roster.GivesParameters({eviction.rank});
  if (run_.is_elastic() && roster.CanSpare(1) && !gives_parameters) return "";
  if (!run_.repairs_losses()) return "the job has no replay of lost processes";
  return RecoveryOutlook(run_).WhyNoRepair(/*shard_lost=*/false, /*worker_lost=*/true);
}

absl::StatusOr<std::string> Administration::Evict(const Eviction& eviction, absl::Time now,
                                                  Effects* out) {
  const absl::Status valid = CheckEviction(eviction);
  if (!valid.ok()) return valid;
  Roster& roster = run_.roster();
  const uint32_t rank = eviction.rank;
  const std::string who = roster.Describe(rank);
  const std::string why = absl::StrCat("an administrator evicted it",
                                       eviction.reason.empty() ? "" : ": ", eviction.reason);
  const bool rolls_back = !WhyRollback(eviction).empty();
  evicted_.push_back(roster[rank].join.nonce);
  if (evicted_.size() > kEvictedMax) evicted_.pop_front();
  if (run_.is_elastic() && roster.CanSpare(1) && !rolls_back) {
    elastic_.GiveUp(rank, why, now, out);
    return absl::StrCat(who, " is evicted; the job continues with ", roster.Present(), " workers");
  }
  roster.GiveUp(rank, why);  // The next check of the leases handles this.
  return absl::StrCat(who, " is evicted; the job ",
                      rolls_back ? absl::StrCat("rolls back to the checkpoint after step ",
                                                run_.book().newest(), " and waits")
                                 : "waits",
                      " up to ", absl::FormatDuration(run_.options().server.rejoin_timeout),
                      " (server.rejoin_timeout) for another process with that rank");
}

absl::Status Administration::CheckNotEvicted(const protocol::WorkerJoin& join) const {
  if (std::find(evicted_.begin(), evicted_.end(), join.nonce) == evicted_.end()) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "an administrator evicted this process from rank ", join.rank, "; start another one"));
}

absl::StatusOr<RunningSettings> Administration::Change(const RunningSettings& change,
                                                       Effects* out) {
  if (change.lease_timeout.has_value()) {
    const absl::Duration least = std::max(kLeaseMin, 2 * run_.options().server.heartbeat_interval);
    if (*change.lease_timeout < least || *change.lease_timeout > kLeaseMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("a lease of ", absl::FormatDuration(*change.lease_timeout),
                       " is out of range: it must be between ", absl::FormatDuration(least),
                       ", twice server.heartbeat_interval, and ", absl::FormatDuration(kLeaseMax)));
    }
    run_.SetLease(*change.lease_timeout);
  }
  if (change.log_level.has_value()) run_.fleet().SetLogLevel(*change.log_level, out);
  return RunningSettings{.lease_timeout = run_.options().server.lease_timeout,
                         .log_level = run_.fleet().log_level()};
}

}  // namespace sluice::server
