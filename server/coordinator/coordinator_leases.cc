// Implements the coordinator's leases and timeouts.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
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
    roster_.ShiftLeases(gap, now);
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
  LossReport loss(options_.lease);
  for (const uint32_t shard : fleet_.Silent(now, options_.lease)) {
    loss.AddSilent(Describe(fleet_[shard]));
    if (has_checkpoints()) fleet_.Disconnect(shard, out);
  }
  // Workers send heartbeats only after they have joined.
  if (phase_ == protocol::JobPhase::kRunning) roster_.AddLosses(roster_.Expired(now), &loss);
  if (loss.empty()) return;
  if (has_checkpoints()) {
    RollBack(loss.Text(), now, out);
  } else {
    loss.KeepFirst();
    Fail(absl::StrCat(loss.Text(), "; the job cannot continue without it"), out);
  }
}

// Admits newcomers whose predecessors are lost.
void Coordinator::AdmitSuccessors(absl::Time now, Effects* out) {
  if (phase_ == protocol::JobPhase::kRunning && options_.elastic.has_value()) {
    AdmitLearners(now, out);
  } else if (phase_ == protocol::JobPhase::kRunning && repairs_losses()) {
    ReplaceWorkers(now, out);
  } else if (phase_ == protocol::JobPhase::kRunning) {
    const Roster::Ranks due = roster_.Replaceable(now);
    if (!due.empty()) RollBack(ReplacedBy(due[0]), now, out);
  }
  if (!gathering()) return;
  for (const Member& member : roster_) {
    if (member.is_present() || !member.successor.has_value()) continue;
    Successor successor = roster_.TakeSuccessor(member.join.rank);
    Join(successor.token, std::move(successor.join), now, out);
  }
}

}  // namespace sluice::server
