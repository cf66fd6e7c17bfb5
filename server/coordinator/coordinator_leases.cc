// Implements the coordinator's leases and timeouts.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/coordinator/coordinator.h"

namespace sluice::server {

void Coordinator::ShardHealth(ControlStreamId stream, const protocol::ShardHealthReport& health,
                              absl::Time now) {
  if (!fleet_.Health(stream, health, now)) return;
  knows_position_ = knows_position_ || health.highest_closed_step > 0;
  furthest_step_ = std::max(furthest_step_, health.highest_closed_step);
}

void Coordinator::ShardFailed(ControlStreamId stream, absl::string_view reason, Effects* out) {
  const std::optional<uint32_t> shard = fleet_.Find(stream);
  if (shard.has_value()) Fail(absl::StrCat(Describe(fleet_[*shard]), ": ", reason), out);
}

void Coordinator::Tick(absl::Time now, Effects* out) {
  const absl::Duration gap = now - last_tick_;
  last_tick_ = now;
  if (gap > options_.lease / 4) {
    waiting_since_ += gap;
    checkpoints_.ShiftTimes(gap);
    for (Member& member : members_) member.heard = std::min(now, member.heard + gap);
    fleet_.ShiftLeases(gap, now);
    out->push_back(
        Notice{.text = absl::StrCat("this process was suspended for ", absl::FormatDuration(gap),
                                    "; leases are extended by that time"),
               .fields = {.event = "stood_still"}});
  }
  if (ended()) return;
  if (gathering()) {
    StartWhenComplete(now, out);  // In an elastic job, fewer workers suffice after a while.
    if (gathering()) CheckWaiting(now, out);
  } else {
    CheckLeases(now, out);
  }
  if (!has_checkpoints() || ended()) return;
  AdmitSuccessors(now, out);
  if (book().Overdue(now)) {
    AbandonCheckpoint(absl::StrCat(book().MissingParts(), " did not arrive within ",
                                   absl::FormatDuration(options_.rejoin_timeout)),
                      now, out);
  }
  if (!repairs_losses() || phase_ != protocol::JobPhase::kRunning) return;
  StartReplays(now, out);
  WatchReplays(now, out);
  GiveUpForgotten(now, out);
  WatchRecovery(out);
}

void Coordinator::CheckWaiting(absl::Time now, Effects* out) {
  if (parent_.awaits_start()) return;  // The parent job applies its own limit.
  const bool recovering = phase_ == protocol::JobPhase::kRecovering;
  const absl::Duration limit = recovering ? options_.rejoin_timeout : options_.join_timeout;
  if (now - waiting_since_ < limit) return;
  const std::string reason =
      recovering ? absl::StrCat("waited ", absl::FormatDuration(limit), ": ", WhoIsMissing(),
                                " did not come back; restart the job with --resume, or "
                                "raise server.rejoin_timeout")
                 : absl::StrCat("waited ", absl::FormatDuration(limit), ": ", WhoIsMissing(),
                                " did not join; start them, or raise "
                                "server.join_timeout");
  End(protocol::JobPhase::kFailed, reason, absl::StatusCode::kDeadlineExceeded, out);
}

void Coordinator::CheckLeases(absl::Time now, Effects* out) {
  if (repairs_losses() && phase_ == protocol::JobPhase::kRunning) {
    CheckLostMembers(now, out);
    return;
  }
  std::vector<std::string> lost;
  std::vector<std::string> stalled;
  for (const uint32_t shard : fleet_.Silent(now, options_.lease)) {
    lost.push_back(Describe(fleet_[shard]));
    if (has_checkpoints()) fleet_.Disconnect(shard, out);
  }
  for (const Member& member : members_) {
    // Workers send heartbeats only after they have joined.
    if (phase_ != protocol::JobPhase::kRunning) break;
    if (!LeaseIsOver(member, now)) continue;
    AddLost(member, &lost, &stalled);
  }
  if (lost.empty() && stalled.empty()) return;
  // Without checkpoints, only the first loss is named, because it may have caused the others.
  if (!has_checkpoints() && !lost.empty()) {
    lost.resize(1);
    stalled.clear();
  }
  const std::string text = DescribeLoss(lost, stalled);
  if (has_checkpoints()) {
    RollBack(text, now, out);
  } else {
    Fail(absl::StrCat(text, "; the job cannot continue without it"), out);
  }
}

std::string Coordinator::Stalled(const Member& member) const {
  return absl::StrCat(Describe(member), " is alive, but has made no progress for ",
                      absl::FormatDuration(absl::Floor(member.stalled, absl::Milliseconds(100))),
                      " (server.stall_timeout)");
}

// Adds the member's name to `silent` if it was only silent, otherwise a description to `others`.
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

std::string Coordinator::DescribeLoss(const std::vector<std::string>& silent,
                                      const std::vector<std::string>& stalled) const {
  std::vector<std::string> parts = stalled;
  if (!silent.empty()) {
    parts.insert(parts.begin(),
                 absl::StrCat(absl::StrJoin(silent, " and "), " did not report for ",
                              absl::FormatDuration(options_.lease), " (server.lease_timeout)"));
  }
  return absl::StrJoin(parts, ", and ");
}

bool Coordinator::LeaseIsOver(const Member& member, absl::Time now) const {
  if (!member.present || member.left) return false;
  return !member.gave_up.empty() || now - member.heard >= options_.lease;
}

// True if another worker that wants the rank may replace this member.
bool Coordinator::IsSilent(const Member& member, absl::Time now) const {
  if (!member.gave_up.empty()) return true;
  // A worker that has not found this coordinator yet gets a whole lease to do so.
  const absl::Duration silence =
      member.beaten ? kSilentHeartbeats * options_.heartbeat : options_.lease;
  return member.token == 0 && now - member.heard >= silence;
}

// Admits newcomers whose predecessors are lost.
void Coordinator::AdmitSuccessors(absl::Time now, Effects* out) {
  if (phase_ == protocol::JobPhase::kRunning && options_.elastic.has_value()) {
    AdmitLearners(now, out);
  } else if (phase_ == protocol::JobPhase::kRunning && repairs_losses()) {
    ReplaceWorkers(now, out);
  } else if (phase_ == protocol::JobPhase::kRunning) {
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
    Join(token, std::exchange(member.successor, protocol::WorkerJoin()), now, out);
  }
}

}  // namespace sluice::server
