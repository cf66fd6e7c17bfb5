// Implements eviction, admission and the start of a term: docs/protocol.md, "Elastic membership".
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/processes.h"

namespace sluice::server {
// Removes members whose lease has expired, if enough others are left to continue.
void Coordinator::EvictLost(absl::Time now, Effects* out) {
  const Roster::Ranks lost = roster_.Expired(now);
  if (lost.empty() || !roster_.CanSpare(lost.size())) return;
  LossReport loss(options_.lease);
  roster_.AddLosses(lost, &loss);
  Remove(lost, loss.Text(), now, out);
}

// If enough other members are left, they continue without this member. Otherwise the job waits as
// it does for a lost member, but only a newcomer can take the rank.
void Coordinator::GaveUp(uint32_t rank, absl::string_view why, absl::Time now, Effects* out) {
  if (roster_.CanSpare(1)) {
    Remove({rank}, absl::StrCat(roster_.Describe(rank), " left: ", why), now, out);
  } else {
    roster_.GiveUp(rank, why);
  }
}

void Coordinator::Remove(const Roster::Ranks& ranks, absl::string_view how, absl::Time now,
                         Effects* out) {
  // The other members may be waiting for parameters that only the lowest initial rank can send.
  const bool gives_parameters =
      !term_.parameters_agree && book().newest() == 0 && roster_.GivesParameters(ranks);
  (void)roster_.Vacate(ranks);
  if (gives_parameters) {
    RollBack(absl::StrCat(how, ", and ",
                          Explain(Policy(), {.kind = RepairObstacle::Kind::kDifferentParameters})),
             now, out);
    return;
  }
  out->push_back(Notice{.text = absl::StrCat(how, "; the job continues with ", roster_.Present(),
                                             " workers, without the residuals of those that left"),
                        .warning = true,
                        .fields = {.event = "members_removed"}});
  // A member that has finished may be gone, so the job cannot wait for another Leave call.
  if (roster_.AllHaveLeft()) return Finish(out);
  AnnounceMembers(out);
}

// Emits the record of the new members before the commands to the shards.
void Coordinator::AnnounceMembers(Effects* out) {
  term_.generation += 1;
  out->push_back(PersistRun{messages_.Record(/*finished=*/false)});
  fleet_.AnnounceMembers(messages_.Members(), out);
  // The checkpoint in progress may be complete without the members that left.
  std::vector<uint32_t> ranks = book().expected();
  std::erase_if(ranks, [this](uint32_t rank) { return !roster_[rank].is_present(); });
  // Newcomers need a worker's part to start from. Learners also pass this step and write a part.
  if (ranks.empty()) ranks = roster_.PresentRanks();
  if (checkpoints_.Expect(std::move(ranks))) {
    checkpoints_.WriteManifest(messages_.ManifestHead(book().under_way()), out);
  }
}

// Admits newcomers to ranks without a holder or with a silent holder. A newcomer restores the
// newest checkpoint and replays the later steps from their results. It becomes a member at the
// first step that it can still contribute to.
void Coordinator::AdmitLearners(absl::Time now, Effects* out) {
  if (phase_ != protocol::JobPhase::kRunning || book().being_written()) return;
  const Roster::Ranks due = roster_.Replaceable(now);
  if (due.empty()) return;
  if (!CanTakeLearners()) {
    AskForNewcomers(now, out);
    return;
  }
  Roster::Ranks silent = due;
  std::erase_if(silent, [this](uint32_t rank) { return !roster_[rank].is_present(); });
  if (!silent.empty()) {
    out->push_back(
        Notice{.text = absl::StrCat(roster_.Vacate(silent), " is replaced; its residual is lost"),
               .warning = true,
               .fields = {.event = "members_replaced"}});
  }
  std::vector<std::string> names;
  for (const uint32_t rank : due) {
    // The newcomer passes the step of the checkpoint in progress, so it writes a part of its own.
    checkpoints_.WithdrawRank(rank, now);
    roster_.SeatLate(rank, now);
    names.push_back(roster_.Describe(rank));
  }
  out->push_back(Notice{
      .text =
          absl::StrCat(absl::StrJoin(names, " and "), " joins with the checkpoint after step ",
                       book().newest(), "; the job continues with ", roster_.Present(), " workers"),
      .fields = {.event = "members_added", .step = book().newest()}});
  AnnounceMembers(out);
}

// Requests a checkpoint for newcomers to start from, or rolls back if members are lost.
void Coordinator::AskForNewcomers(absl::Time now, Effects* out) {
  if (roster_.AnyLost()) {
    const std::string why = WhyNoRepair(/*shard_lost=*/false, /*worker_lost=*/true);
    RollBack(absl::StrCat(LostProcesses(roster_, fleet_),
                          " is lost, fewer than min_workers are left, and ",
                          why.empty() ? "there is no checkpoint yet" : why),
             now, out);
    return;
  }
  checkpoints_.AskForNewcomers(now, out);
}

// True if a newcomer can start from the newest checkpoint and replay the later steps.
bool Coordinator::CanTakeLearners() const {
  return book().newest() > 0 && !Policy().ToReexecution().has_value();
}

// Learners that are present when a checkpoint is named also pass its step and write parts.
void Coordinator::ExpectPresentRanks() {
  if (!options_.elastic.has_value()) return;
  (void)checkpoints_.Expect(roster_.PresentRanks());  // Completes nothing: parts are still missing.
}

}  // namespace sluice::server
