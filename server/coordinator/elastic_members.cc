// SPDX-License-Identifier: Apache-2.0
#include "server/coordinator/elastic_members.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/coordinator/loss_report.h"
#include "server/coordinator/processes.h"
#include "server/coordinator/recovery_outlook.h"

namespace sluice::server {

void ElasticMembers::EvictLost(absl::Time now, Effects* out) {
  const Roster& roster = run_.roster();
  const Roster::Ranks lost = roster.Expired(now);
  if (lost.empty() || !roster.CanSpare(lost.size())) return;
  LossReport loss(run_.options().server.lease_timeout);
  roster.AddLosses(lost, &loss);
  Remove(lost, loss.Text(), now, out);
}

void ElasticMembers::GiveUp(uint32_t rank, absl::string_view why, absl::Time now, Effects* out) {
  Roster& roster = run_.roster();
  if (roster.CanSpare(1)) {
    Remove({rank}, absl::StrCat(roster.Describe(rank), " left: ", why), now, out);
  } else {
    roster.GiveUp(rank, why);
  }
}

void ElasticMembers::Remove(const Roster::Ranks& ranks, absl::string_view how, absl::Time now,
                            Effects* out) {
  Roster& roster = run_.roster();
  // The other members may be waiting for parameters that only the lowest initial rank can send.
  const bool gives_parameters =
      !run_.term().parameters_agree && run_.book().newest() == 0 && roster.GivesParameters(ranks);
  (void)roster.Vacate(ranks);
  if (gives_parameters) {
    const std::string why =
        RecoveryOutlook(run_).Explain({.kind = RepairObstacle::Kind::kDifferentParameters});
    run_.RollBack(absl::StrCat(how, ", and ", why), now, out);
    return;
  }
  out->push_back(Notice{.text = absl::StrCat(how, "; the job continues with ", roster.Present(),
                                             " workers, without the residuals of those that left"),
                        .warning = true,
                        .fields = {.event = "members_removed"}});
  // A member that has finished may be gone, so the job cannot wait for another Leave call.
  if (roster.AllHaveLeft()) return run_.Finish(out);
  AnnounceMembers(out);
}

// Emits the record of the new members before the commands to the shards.
void ElasticMembers::AnnounceMembers(Effects* out) {
  run_.BeginGeneration(out);
  run_.fleet().AnnounceMembers(run_.messages().Members(), out);
  // The checkpoint in progress may be complete without the members that left.
  const Roster& roster = run_.roster();
  std::vector<uint32_t> ranks = run_.book().expected();
  std::erase_if(ranks, [&roster](uint32_t rank) { return !roster[rank].is_present(); });
  // Newcomers need a worker's part to start from. Learners also pass this step and write a part.
  if (ranks.empty()) ranks = roster.PresentRanks();
  if (run_.checkpoints().Expect(std::move(ranks))) {
    run_.checkpoints().WriteManifest(run_.messages().ManifestHead(run_.book().under_way()), out);
  }
}

void ElasticMembers::AdmitLearners(absl::Time now, Effects* out) {
  if (!run_.is_running() || run_.book().being_written()) return;
  Roster& roster = run_.roster();
  const Roster::Ranks due = roster.Replaceable(now);
  if (due.empty()) return;
  if (!CanTakeLearners()) {
    AskForCheckpoint(now, out);
    return;
  }
  Roster::Ranks silent = due;
  std::erase_if(silent, [&roster](uint32_t rank) { return !roster[rank].is_present(); });
  if (!silent.empty()) {
    out->push_back(
        Notice{.text = absl::StrCat(roster.Vacate(silent), " is replaced; its residual is lost"),
               .warning = true,
               .fields = {.event = "members_replaced"}});
  }
  std::vector<std::string> names;
  for (const uint32_t rank : due) {
    // The newcomer passes the step of the checkpoint in progress, so it writes a part of its own.
    run_.checkpoints().WithdrawRank(rank, now);
    roster.SeatLate(rank, now);
    names.push_back(roster.Describe(rank));
  }
  const uint64_t newest = run_.book().newest();
  out->push_back(Notice{
      .text = absl::StrCat(absl::StrJoin(names, " and "), " joins with the checkpoint after step ",
                           newest, "; the job continues with ", roster.Present(), " workers"),
      .fields = {.event = "members_added", .step = newest}});
  AnnounceMembers(out);
}

// Requests a checkpoint for newcomers to start from, or rolls back if members are lost.
void ElasticMembers::AskForCheckpoint(absl::Time now, Effects* out) {
  if (run_.roster().AnyLost()) {
    const std::string why =
        RecoveryOutlook(run_).WhyNoRepair(/*shard_lost=*/false, /*worker_lost=*/true);
    run_.RollBack(absl::StrCat(LostProcesses(run_.roster(), run_.fleet()),
                               " is lost, fewer than min_workers are left, and ",
                               why.empty() ? "there is no checkpoint yet" : why),
                  now, out);
    return;
  }
  run_.checkpoints().AskForNewcomers(now, out);
}

// True if a newcomer can start from the newest checkpoint and replay the later steps.
bool ElasticMembers::CanTakeLearners() const {
  return run_.book().newest() > 0 && RecoveryOutlook(run_).AllowsReexecution();
}

}  // namespace sluice::server
