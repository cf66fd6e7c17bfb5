// SPDX-License-Identifier: Apache-2.0
#include "server/coordinator/loss_repair.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/coordinator/recovery_outlook.h"

namespace sluice::server {
namespace {

std::string AfterCheckpoint(uint64_t step) {
  return step == 0 ? "all steps" : absl::StrCat("the steps after ", step);
}

}  // namespace

// There are three cases: the same process; a process that already ran the term under an earlier
// coordinator; and a process that must replay the term.
void LossRepair::ShardAttached(const ShardSeat& seat, bool is_new, absl::Time now) {
  const protocol::ShardArrival& arrival = seat.arrival;
  const bool runs = arrival.running && arrival.job_uid == run_.options().job_uid &&
                    arrival.term == run_.term().number;
  // The shard will report its part again. Until then no checkpoint may become complete, because the
  // shard may have to replay. A running shard may be replaying for an earlier coordinator.
  if (is_new && run_.is_running()) {
    run_.checkpoints().Withdraw(protocol::ShardPartName(arrival.shard, run_.term().number), now);
  }
  if (runs) {
    run_.fleet().RunsAlready(arrival.shard, is_new);
  } else if (is_new && run_.is_running()) {
    run_.fleet().AwaitReplay(arrival.shard);
  }
}

void LossRepair::StartReplays(absl::Time now, Effects* out) {
  // While a checkpoint is being written, replays wait in order to start from that checkpoint.
  if (!run_.repairs_losses() || !run_.is_running() || run_.book().being_written()) return;
  // After a restart of the coordinator, it is not known yet whether any member of the term is left.
  if (!run_.is_elastic() && !run_.roster().AnyAlive(now, absl::InfiniteDuration())) return;
  const uint64_t newest = run_.book().newest();
  for (const ShardSeat& seat : run_.fleet()) {
    if (seat.state != ShardState::kAwaitsReplay || !seat.is_attached()) continue;
    const std::string why_not =
        RecoveryOutlook(run_).WhyNoRepair(/*shard_lost=*/true, /*worker_lost=*/false);
    if (!why_not.empty()) {
      run_.RollBack(absl::StrCat(Describe(seat), " was restarted, and ", why_not), now, out);
      return;
    }
    run_.fleet().BeginReplay(seat.arrival.shard, newest);
    run_.roster().NeedAll();
    run_.recoveries().Repaired(absl::StrCat(Describe(seat), " was restarted; it replays from step ",
                                            newest + 1, " with the data that the workers kept"),
                               out);
    run_.fleet().Start(seat.arrival.shard, run_.messages().Start(seat), out);
  }
}

void LossRepair::EndReplays(absl::Time now, Effects* out) {
  const uint64_t present_step = run_.PresentStep();
  for (const ShardSeat& seat : run_.fleet()) {
    if (seat.state != ShardState::kReplays || seat.health.highest_closed_step < present_step) {
      continue;
    }
    // Workers stop while they wait for the shard, so one report from each worker is enough.
    if (!run_.roster().AllHeardAfter(seat.started, now)) continue;
    run_.fleet().CaughtUp(seat.arrival.shard);
    if (seat.arrival.shard == 0) run_.checkpoints().AskAgain(out);
  }
}

void LossRepair::ReplaceWorkers(absl::Time now, Effects* out) {
  const Roster& roster = run_.roster();
  const Roster::Ranks due = roster.Replaceable(now);
  if (!run_.repairs_losses()) {
    if (!due.empty()) run_.RollBack(roster.ReplacedBy(due[0]), now, out);
    return;
  }
  // If all processes were restarted, there is nothing to wait for.
  const bool all_new =
      std::all_of(roster.begin(), roster.end(),
                  [](const Member& member) { return member.successor.has_value(); }) &&
      (due.size() == roster.size() || !roster.AnyAlive(now, absl::InfiniteDuration()));
  if ((due.empty() && !all_new) || run_.book().being_written()) return;
  // If no member reported recently, this process may have been cut off and will soon hear them.
  const absl::Duration lease = run_.options().server.lease_timeout;
  const bool only_just = std::none_of(due.begin(), due.end(), [&](uint32_t rank) {
    return now - roster[rank].successor->since >= lease;
  });
  if (!all_new && only_just && !roster.AnyAlive(now, lease)) return;
  const std::string why_not =
      all_new ? absl::StrCat("no worker of term ", run_.term().number, " is left")
              : WhyNotReplaced(due, now);
  if (why_not.empty()) {
    Replace(due, now, out);
  } else {
    run_.RollBack(absl::StrCat(roster.ReplacedBy(due.empty() ? 0 : due[0]), ", and ", why_not), now,
                  out);
  }
}

// Returns why the newcomers cannot continue in this term. Empty if they can.
std::string LossRepair::WhyNotReplaced(const Roster::Ranks& ranks, absl::Time now) const {
  const Roster& roster = run_.roster();
  if (!roster.AnyAlive(now, run_.options().server.lease_timeout)) {
    return absl::StrCat("no worker of term ", run_.term().number, " is left");
  }
  std::string why = RecoveryOutlook(run_).WhyNoRepair(/*shard_lost=*/false, /*worker_lost=*/true);
  if (!why.empty() || run_.book().newest() > 0) return why;
  for (const uint32_t rank : ranks) {
    const Member& member = roster[rank];
    if (member.successor->join.parameters_sha256 == member.join.parameters_sha256) continue;
    return "there is no checkpoint yet, and it begins with other parameters than its predecessor";
  }
  return "";
}

// All replacements share a generation, whose record precedes the messages about them.
void LossRepair::Replace(const Roster::Ranks& ranks, absl::Time now, Effects* out) {
  const uint64_t newest = run_.book().newest();
  std::vector<std::string> repairs;
  for (const uint32_t rank : ranks) {
    repairs.push_back(
        absl::StrCat(run_.roster().ReplacedBy(rank), ", which replays ", AfterCheckpoint(newest)));
    run_.checkpoints().WithdrawRank(rank, now);
    run_.roster().Replace(rank, newest + 1, now);
  }
  run_.BeginGeneration(out);
  for (const std::string& repair : repairs) run_.recoveries().Repaired(repair, out);
  run_.fleet().AnnounceMembers(run_.messages().Members(), out);
}

void LossRepair::WatchOutlook(Effects* out) {
  const RecoveryOutlook outlook(run_);
  run_.recoveries().Watch(outlook.Class(), outlook.WhyRollback(), run_.book().newest(), out);
}

}  // namespace sluice::server
