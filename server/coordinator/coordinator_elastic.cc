// Workers that come and go while a job runs: who is removed, who is let in, and what the job begins
// with. docs/protocol.md, "Elastic membership".
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/coordinator/coordinator.h"

namespace sluice::server {
namespace {

// After a rollback the members of before are waited for so long; then fewer do.
constexpr int kGatheringLeases = 2;
// Newcomers wait a lease for another checkpoint where one was given up, then twice as long, up to
// 16 leases.
constexpr uint32_t kPauseDoublingsMax = 4;

}  // namespace

bool Coordinator::IsEnough(absl::Time now) const {
  const uint32_t present = Present();
  if (present >= begin_with_) return true;
  return options_.elastic.has_value() && phase_ == JobPhase::kRecovering &&
         present >= options_.elastic->least &&
         now - waiting_since_ >= kGatheringLeases * options_.lease;
}

// As long as enough are left the others go on without those who were not heard of for a lease.
void Coordinator::RemoveTheLost(absl::Time now, Effects* out) {
  std::vector<Member*> lost;
  std::vector<std::string> silent;
  std::vector<std::string> stalled;
  for (Member& member : members_) {
    if (member.token != 0) member.heard = now;  // Its call waits for our answer.
    if (!LeaseIsOver(member, now)) continue;
    lost.push_back(&member);
    AddLost(member, &silent, &stalled);
  }
  if (lost.empty() || Present() - lost.size() < options_.elastic->least) return;
  Remove(lost, HowLost(silent, stalled), now, out);
}

// The others go on without it; where that would be too few, it is awaited as one that is lost,
// though only a newcomer can come.
void Coordinator::GaveUp(Member* member, absl::string_view why, absl::Time now, Effects* out) {
  if (Present() > options_.elastic->least) {
    Remove({member}, absl::StrCat(Describe(*member), " left: ", why), now, out);
  } else {
    member->gave_up = std::string(why);  // The next Tick sees it.
  }
}

void Coordinator::Remove(const std::vector<Member*>& members, absl::string_view how, absl::Time now,
                         Effects* out) {
  // The others may be waiting for what only the lowest of those who began could give them.
  const bool gives_parameters =
      !parameters_agree_ && book_.newest() == 0 &&
      std::any_of(members.begin(), members.end(), [this](const Member* member) {
        return began_with_.empty() || member->join.rank == began_with_.front();
      });
  if (gives_parameters) {
    (void)Vacate(members);
    RollBack(absl::StrCat(how, ", and ", WhyNoFirstStep()), now, out);
    return;
  }
  (void)Vacate(members);
  out->push_back(Notice{.text = absl::StrCat(how, "; the job goes on with ", Present(),
                                             " workers, without what was still owed"),
                        .warning = true,
                        .fields = {.event = "members_removed"}});
  AnnounceMembers(out);
}

// Their names. A newcomer that waits for one of the ranks goes on waiting.
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

// On disk first.
void Coordinator::AnnounceMembers(Effects* out) {
  generation_ += 1;
  members_sequence_ = ++sequence_;
  out->push_back(PersistRun{Record(/*finished=*/false)});
  for (const ShardSeat& seat : seats_) TellMembers(seat, out);
  // What was under way may be complete without those who are gone.
  std::vector<uint32_t> ranks = book_.expected();
  std::erase_if(ranks, [this](uint32_t rank) { return !members_[rank].present; });
  // Somebody must have written what newcomers begin with; learners come past its step.
  if (ranks.empty()) ranks = PresentRanks();
  if (book_.Expect(std::move(ranks))) WriteManifest(book_.under_way(), out);
}

// Newcomers: of ranks that nobody holds, or whose holders are silent. They take the parameters of
// the newest checkpoint, go through what came after it by its results, and are members of a step
// once they are in time for it.
void Coordinator::AdmitLearners(absl::Time now, Effects* out) {
  if (phase_ != JobPhase::kRunning || book_.being_written()) return;
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
        Notice{.text = absl::StrCat(Vacate(silent), " is replaced; what it still owed is lost"),
               .warning = true,
               .fields = {.event = "members_replaced"}});
  }
  std::vector<std::string> names;
  for (Member* const member : due) {
    // It comes past the step of the checkpoint under way and writes its own part.
    book_.WithdrawRank(member->successor.rank, now);
    SeatSuccessor(member, now);
    member->learner = true;
    names.push_back(Describe(*member));
  }
  out->push_back(Notice{
      .text = absl::StrCat(absl::StrJoin(names, " and "), " joins with the checkpoint after step ",
                           book_.newest(), "; the job goes on with ", Present(), " workers"),
      .fields = {.event = "members_added", .step = book_.newest()}});
  AnnounceMembers(out);
}

// The next checkpoint is what they can begin with. While the job waits for the lost there is none.
void Coordinator::AskForNewcomers(absl::Time now, Effects* out) {
  if (std::any_of(members_.begin(), members_.end(), [](const Member& m) { return m.lost; })) {
    const std::string why = WhyNoReexecution();
    RollBack(absl::StrCat(WhoIsLost(), " is lost, fewer than min_workers are left, and ",
                          why.empty() ? "there is no checkpoint yet" : why),
             now, out);
    return;
  }
  if (book_.under_way() != 0 || book_.asked_minimum() == kAtOnce) return;
  // Each one costs all of them time, and the disk that was full may be full still.
  const uint32_t doublings = std::min(std::max(given_up_in_a_row_, 1u) - 1, kPauseDoublingsMax);
  const absl::Duration pause = options_.lease * (1 << doublings);
  if (given_up_in_a_row_ > 0 && now - given_up_at_ < pause) return;
  AskForCheckpoint(kAtOnce, out);
}

// Somebody can begin with the newest checkpoint and go through what came after it.
bool Coordinator::CanTakeLearners() const {
  return book_.newest() > 0 && WhyNoReexecution().empty();
}

std::vector<uint32_t> Coordinator::PresentRanks() const {
  std::vector<uint32_t> ranks;
  for (uint32_t rank = 0; rank < members_.size(); ++rank) {
    if (members_[rank].present) ranks.push_back(rank);
  }
  return ranks;
}

// Learners that are here when a checkpoint is named come past its step, too.
void Coordinator::ExpectPresentRanks() {
  if (!options_.elastic.has_value()) return;
  (void)book_.Expect(PresentRanks());  // No part of it is there yet, or it waits for a shard's.
}

}  // namespace sluice::server
