// What a coordinator makes of silence: leases, and who is waited for.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/coordinator/coordinator.h"

namespace sluice::server {

Coordinator::ShardSeat* Coordinator::FindSeat(ControlStreamId stream) {
  for (ShardSeat& seat : seats_) {
    if (seat.stream == stream) return &seat;
  }
  return nullptr;
}

void Coordinator::ShardHealth(ControlStreamId stream, const ShardHealthReport& health,
                              absl::Time now) {
  ShardSeat* const seat = FindSeat(stream);
  if (seat == nullptr) return;
  seat->heard = now;
  // Before it has begun, it keeps nothing that anybody could want.
  const uint64_t results_from = seat->health.results_from;
  seat->health = health;
  if (!Started(*seat)) seat->health.results_from = results_from;
  knows_position_ = knows_position_ || health.highest_closed_step > 0;
  furthest_step_ = std::max(furthest_step_, health.highest_closed_step);
}

void Coordinator::ShardFailed(ControlStreamId stream, absl::string_view reason, Effects* out) {
  const ShardSeat* const seat = FindSeat(stream);
  if (seat == nullptr) return;
  Fail(absl::StrCat(Describe(*seat), ": ", reason), out);
}

void Coordinator::ShardDetached(ControlStreamId stream) {
  ShardSeat* const seat = FindSeat(stream);
  if (seat != nullptr) seat->stream = 0;
}

void Coordinator::Tick(absl::Time now, Effects* out) {
  const absl::Duration gap = now - last_tick_;
  last_tick_ = now;
  if (gap > options_.lease / 4) {
    waiting_since_ += gap;
    passed_since_ += gap;
    book_.Shift(gap);
    for (Member& member : members_) member.heard = std::min(now, member.heard + gap);
    for (ShardSeat& seat : seats_) seat.heard = std::min(now, seat.heard + gap);
    out->push_back(Notice{.text = absl::StrCat("stood still for ", absl::FormatDuration(gap),
                                               "; leases are extended by that"),
                          .fields = {.event = "stood_still"}});
  }
  if (ended()) return;
  if (gathering()) {
    StartWhenComplete(now, out);  // Elastic: fewer may do after a while.
    if (gathering()) CheckWaiting(now, out);
  } else {
    CheckLeases(now, out);
  }
  if (!has_checkpoints() || ended()) return;
  AdmitSuccessors(now, out);
  if (book_.Overdue(now)) {
    AbandonCheckpoint(absl::StrCat(book_.MissingParts(), " did not come in ",
                                   absl::FormatDuration(options_.wait_limit)),
                      now, out);
  }
  if (!repairs_losses() || phase_ != JobPhase::kRunning) return;
  StartReplays(now, out);
  WatchReplays(now, out);
  GiveUpForgotten(now, out);
  WatchRecovery(out);
}

void Coordinator::CheckWaiting(absl::Time now, Effects* out) {
  if (asked_above_ && !above_began_) return;  // How long the others may take is known there.
  const bool recovering = phase_ == JobPhase::kRecovering;
  const absl::Duration limit = recovering ? options_.wait_limit : options_.join_timeout;
  if (now - waiting_since_ < limit) return;
  const std::string reason =
      recovering ? absl::StrCat("waited ", absl::FormatDuration(limit), ": ", WhoIsMissing(),
                                " did not come back; start the job again with --resume, or wait "
                                "longer with server.wait_limit")
                 : absl::StrCat("waited ", absl::FormatDuration(limit), ": ", WhoIsMissing(),
                                " never came; start them, or give them longer with "
                                "server.join_timeout");
  End(JobPhase::kFailed, reason, absl::StatusCode::kDeadlineExceeded, out);
}

void Coordinator::CheckLeases(absl::Time now, Effects* out) {
  if (repairs_losses() && phase_ == JobPhase::kRunning) {
    AwaitTheLost(now, out);
    return;
  }
  std::vector<std::string> lost;
  std::vector<std::string> stalled;
  for (ShardSeat& seat : seats_) {
    if (now - seat.heard < options_.lease) continue;
    lost.push_back(Describe(seat));
    if (!has_checkpoints() || seat.stream == 0) continue;
    // If it lives after all it attaches again; until then it is not here.
    out->push_back(RefuseShard{seat.stream, absl::AbortedError("nothing was heard of the shard")});
    seat.stream = 0;
  }
  for (const Member& member : members_) {
    if (phase_ != JobPhase::kRunning) break;  // Workers beat only once they are in.
    if (!LeaseIsOver(member, now)) continue;
    AddLost(member, &lost, &stalled);
  }
  if (lost.empty() && stalled.empty()) return;
  // The first is enough; the rest may be its doing.
  if (!has_checkpoints() && !lost.empty()) {
    lost.resize(1);
    stalled.clear();
  }
  const std::string text = HowLost(lost, stalled);
  if (has_checkpoints()) {
    RollBack(text, now, out);
  } else {
    Fail(absl::StrCat(text, "; the job cannot go on without it"), out);
  }
}

std::string Coordinator::Stalled(const Member& member) const {
  return absl::StrCat(Describe(member), " lives, but has done nothing for ",
                      absl::FormatDuration(absl::Floor(member.stalled, absl::Milliseconds(100))),
                      " (server.stall_limit)");
}

// To the names of those who are silent, or to what is to be said of the others.
void Coordinator::AddLost(const Member& member, std::vector<std::string>* silent,
                          std::vector<std::string>* others) const {
  if (!member.gave_up.empty()) {
    others->push_back(absl::StrCat(Describe(member), " left: ", member.gave_up));
  } else if (member.stalled > absl::ZeroDuration()) {
    others->push_back(Stalled(member));
  } else {
    silent->push_back(Describe(member));
  }
}

std::string Coordinator::HowLost(const std::vector<std::string>& silent,
                                 const std::vector<std::string>& stalled) const {
  std::vector<std::string> parts = stalled;
  if (!silent.empty()) {
    parts.insert(parts.begin(),
                 absl::StrCat(absl::StrJoin(silent, " and "), " was not heard of for ",
                              absl::FormatDuration(options_.lease), " (server.lease)"));
  }
  return absl::StrJoin(parts, ", and ");
}

bool Coordinator::LeaseIsOver(const Member& member, absl::Time now) const {
  if (!member.present || member.left) return false;
  return !member.gave_up.empty() || now - member.heard >= options_.lease;
}

// It may be replaced by another that wants its rank.
bool Coordinator::IsSilent(const Member& member, absl::Time now) const {
  if (!member.gave_up.empty()) return true;
  // One that has not found this coordinator yet has the time of a lease for it.
  const absl::Duration silence =
      member.beaten ? kSilentHeartbeats * options_.heartbeat : options_.lease;
  return member.token == 0 && now - member.heard >= silence;
}

// Newcomers whose predecessors are gone.
void Coordinator::AdmitSuccessors(absl::Time now, Effects* out) {
  if (phase_ == JobPhase::kRunning && options_.elastic.has_value()) {
    AdmitLearners(now, out);
  } else if (phase_ == JobPhase::kRunning && repairs_losses()) {
    ReplaceWorkers(now, out);
  } else if (phase_ == JobPhase::kRunning) {
    for (const Member& member : members_) {
      if (member.successor_token == 0 || !IsSilent(member, now)) continue;
      RollBack(absl::StrCat(Describe(member), " was replaced by ", member.successor.host, " pid ",
                            member.successor.pid),
               now, out);
      break;
    }
  }
  if (!gathering()) return;
  for (Member& member : members_) {
    if (member.present || member.successor_token == 0) continue;
    const JoinToken token = std::exchange(member.successor_token, 0);
    Join(token, std::exchange(member.successor, WorkerJoin()), now, out);
  }
}

}  // namespace sluice::server
