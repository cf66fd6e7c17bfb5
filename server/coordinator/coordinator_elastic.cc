// Implements eviction, admission and the start of a term: docs/protocol.md, "Elastic membership".
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/coordinator/coordinator.h"

namespace sluice::server {
namespace {

// After a rollback, the job waits this many leases for former members before it begins with fewer.
constexpr int kGatheringLeases = 2;

}  // namespace

bool Coordinator::IsEnough(absl::Time now) const {
  const uint32_t present = Present();
  if (present >= begin_with_) return true;
  return options_.elastic.has_value() && phase_ == protocol::JobPhase::kRecovering &&
         present >= options_.elastic->least &&
         now - waiting_since_ >= kGatheringLeases * options_.lease;
}

// Removes members whose lease has expired, if enough others are left to continue.
void Coordinator::EvictLost(absl::Time now, Effects* out) {
  std::vector<Member*> lost;
  std::vector<std::string> silent;
  std::vector<std::string> stalled;
  for (Member& member : members_) {
    if (member.token != 0) member.heard = now;  // The member waits for our answer.
    if (!LeaseIsOver(member, now)) continue;
    lost.push_back(&member);
    AddLost(member, &silent, &stalled);
  }
  if (lost.empty() || Present() - lost.size() < options_.elastic->least) return;
  Remove(lost, DescribeLoss(silent, stalled), now, out);
}

// If enough other members are left, they continue without this member. Otherwise the job waits as
// it does for a lost member, but only a newcomer can take the rank.
void Coordinator::GaveUp(Member* member, absl::string_view why, absl::Time now, Effects* out) {
  if (Present() > options_.elastic->least) {
    Remove({member}, absl::StrCat(Describe(*member), " left: ", why), now, out);
  } else {
    member->gave_up = std::string(why);  // The next Tick handles this.
  }
}

void Coordinator::Remove(const std::vector<Member*>& members, absl::string_view how, absl::Time now,
                         Effects* out) {
  // The other members may be waiting for parameters that only the lowest initial rank can send.
  const bool gives_parameters =
      !parameters_agree_ && book().newest() == 0 &&
      std::any_of(members.begin(), members.end(), [this](const Member* member) {
        return began_with_.empty() || member->join.rank == began_with_.front();
      });
  if (gives_parameters) {
    (void)Vacate(members);
    RollBack(absl::StrCat(how, ", and ",
                          Explain(Policy(), {.kind = RepairObstacle::Kind::kDifferentParameters})),
             now, out);
    return;
  }
  (void)Vacate(members);
  out->push_back(Notice{.text = absl::StrCat(how, "; the job continues with ", Present(),
                                             " workers, without the residuals of those that left"),
                        .warning = true,
                        .fields = {.event = "members_removed"}});
  // A member that has finished may be gone, so the job cannot wait for another Leave call.
  if (AllHaveLeft()) return Finish(out);
  AnnounceMembers(out);
}

// Returns the members' names. A newcomer that waits for one of the ranks continues to wait.
std::string Coordinator::Vacate(const std::vector<Member*>& members) {
  std::vector<std::string> names;
  for (Member* const member : members) {
    names.push_back(Describe(*member));
    lost_residual_energy_ += member->progress.residual_energy;
    Member vacant;
    vacant.join.rank = member->join.rank;
    vacant.successor_token = member->successor_token;
    vacant.successor = std::move(member->successor);
    vacant.successor_since = member->successor_since;
    *member = std::move(vacant);
  }
  lost_workers_ += members.size();
  return absl::StrJoin(names, " and ");
}

// Emits the record of the new members before the commands to the shards.
void Coordinator::AnnounceMembers(Effects* out) {
  generation_ += 1;
  out->push_back(PersistRun{Record(/*finished=*/false)});
  fleet_.AnnounceMembers(CurrentMembers(), out);
  // The checkpoint in progress may be complete without the members that left.
  std::vector<uint32_t> ranks = book().expected();
  std::erase_if(ranks, [this](uint32_t rank) { return !members_[rank].present; });
  // Newcomers need a worker's part to start from. Learners also pass this step and write a part.
  if (ranks.empty()) ranks = PresentRanks();
  if (checkpoints_.Expect(std::move(ranks))) {
    checkpoints_.WriteManifest(ManifestHead(book().under_way()), out);
  }
}

// Admits newcomers to ranks without a holder or with a silent holder. A newcomer restores the
// newest checkpoint and replays the later steps from their results. It becomes a member at the
// first step that it can still contribute to.
void Coordinator::AdmitLearners(absl::Time now, Effects* out) {
  if (phase_ != protocol::JobPhase::kRunning || book().being_written()) return;
  std::vector<Member*> due;
  std::vector<Member*> silent;
  for (Member& member : members_) {
    if (member.successor_token == 0 || (member.present && !IsSilent(member, now))) continue;
    due.push_back(&member);
    if (member.present) silent.push_back(&member);
  }
  if (due.empty()) return;
  if (!CanTakeLearners()) {
    AskForNewcomers(now, out);
    return;
  }
  if (!silent.empty()) {
    out->push_back(
        Notice{.text = absl::StrCat(Vacate(silent), " is replaced; its residual is lost"),
               .warning = true,
               .fields = {.event = "members_replaced"}});
  }
  std::vector<std::string> names;
  for (Member* const member : due) {
    // The newcomer passes the step of the checkpoint in progress, so it writes a part of its own.
    checkpoints_.WithdrawRank(member->successor.rank, now);
    SeatSuccessor(member, now);
    member->late_joiner = true;
    names.push_back(Describe(*member));
  }
  out->push_back(Notice{
      .text = absl::StrCat(absl::StrJoin(names, " and "), " joins with the checkpoint after step ",
                           book().newest(), "; the job continues with ", Present(), " workers"),
      .fields = {.event = "members_added", .step = book().newest()}});
  AnnounceMembers(out);
}

// Requests a checkpoint for newcomers to start from, or rolls back if members are lost.
void Coordinator::AskForNewcomers(absl::Time now, Effects* out) {
  if (std::any_of(members_.begin(), members_.end(), [](const Member& m) { return m.lost; })) {
    const std::string why = WhyNoRepair(/*shard_lost=*/false, /*worker_lost=*/true);
    RollBack(absl::StrCat(WhoIsLost(), " is lost, fewer than min_workers are left, and ",
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

std::vector<uint32_t> Coordinator::PresentRanks() const {
  std::vector<uint32_t> ranks;
  for (uint32_t rank = 0; rank < members_.size(); ++rank) {
    if (members_[rank].present) ranks.push_back(rank);
  }
  return ranks;
}

// Learners that are present when a checkpoint is named also pass its step and write parts.
void Coordinator::ExpectPresentRanks() {
  if (!options_.elastic.has_value()) return;
  (void)checkpoints_.Expect(PresentRanks());  // Completes nothing: parts are still missing.
}

}  // namespace sluice::server
