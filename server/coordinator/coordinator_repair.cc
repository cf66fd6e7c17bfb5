// Implements repair: the coordinator restores a lost process within the current term from the data
// that other processes keep since the newest checkpoint. If that is impossible, the job rolls back.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/processes.h"

namespace sluice::server {
namespace {

std::string AfterCheckpoint(uint64_t step) {
  return step == 0 ? "all steps" : absl::StrCat("the steps after ", step);
}

}  // namespace

// Handles a shard that attaches while the term runs. There are three cases: the same process, which
// needs the commands that it missed; a process that already ran the term under an earlier
// coordinator; and a process that must replay the term.
void Coordinator::ReattachShard(const ShardSeat& seat, bool is_new, absl::Time now, Effects* out) {
  const protocol::ShardArrival& arrival = seat.arrival;
  const bool runs =
      arrival.running && arrival.job_uid == options_.job_uid && arrival.term == term_.number;
  // The shard will report its part again. Until then no checkpoint may become complete, because the
  // shard may have to replay. A running shard may be replaying for an earlier coordinator.
  if (is_new && phase_ == protocol::JobPhase::kRunning) {
    checkpoints_.Withdraw(protocol::ShardPartName(arrival.shard, term_.number), now);
  }
  if (runs) {
    fleet_.RunsAlready(arrival.shard, is_new);
  } else if (is_new && phase_ == protocol::JobPhase::kRunning) {
    fleet_.AwaitReplay(arrival.shard);
  }
  if (seat.state == ShardState::kAwaitsReplay) {
    StartReplays(now, out);
    return;
  }
  CommandAttached(seat, now, out);
  // The shard may have started without our knowledge. In that case, no acknowledgement follows.
  GrantWhenAcknowledged(now, out);
  AnswerWhenMembersAreKnown(now, out);
}

void Coordinator::StartReplays(absl::Time now, Effects* out) {
  // While a checkpoint is being written, replays wait in order to start from that checkpoint.
  if (!repairs_losses() || phase_ != protocol::JobPhase::kRunning || book().being_written()) return;
  // After a restart of the coordinator, it is not known yet whether any member of the term is left.
  if (!options_.elastic.has_value() && !roster_.AnyAlive(now, absl::InfiniteDuration())) return;
  for (const ShardSeat& seat : fleet_) {
    if (seat.state != ShardState::kAwaitsReplay || !seat.is_attached()) continue;
    const std::string why_not = WhyNoRepair(/*shard_lost=*/true, /*worker_lost=*/false);
    if (!why_not.empty()) {
      RollBack(absl::StrCat(Describe(seat), " was restarted, and ", why_not), now, out);
      return;
    }
    fleet_.BeginReplay(seat.arrival.shard, book().newest());
    roster_.NeedAll();
    recoveries_.Repaired(absl::StrCat(Describe(seat), " was restarted; it replays from step ",
                                      book().newest() + 1, " with the data that the workers kept"),
                         out);
    fleet_.Start(seat.arrival.shard, messages_.Start(seat), out);
  }
}

void Coordinator::CompareParameters(const protocol::WorkerHeartbeat& heartbeat, absl::Time now,
                                    Effects* out) {
  const uint64_t step = heartbeat.parameters_hash_step;
  const protocol::Sender& sender = heartbeat.sender;
  // A replaying rank reports the later hashes again, so they are kept for comparison.
  const bool keep = repairs_losses() && step > book().newest();
  const std::optional<protocol::Sender> first =
      audit_.Report(step, sender, heartbeat.parameters_sha256,
                    keep ? std::nullopt : std::optional<uint32_t>(roster_.Present()));
  if (!first.has_value()) return;
  const bool is_there = roster_[first->rank].incarnation == first->incarnation;
  const std::string differ = absl::StrCat(
      "after step ", step, " the parameters of ", roster_.Describe(sender.rank),
      " differ from those of ",
      is_there ? roster_.Describe(first->rank)
               : absl::StrCat("an earlier process of rank ", first->rank),
      "; workers must compute the same from the same results (same build, same optimizer, no "
      "change to parameters outside it)");
  if (!ComesOfARepair(*first, sender, step)) return Fail(differ, out);
  RollBack(
      absl::StrCat(differ, ": training is not deterministic, so this cannot be repaired in place"),
      now, out);
}

// True if a replay may have caused the difference: a sender replayed the step, or the first sender
// is gone and others may have replayed. If no checkpoint includes the step, a rollback removes the
// difference. Any other difference would recur.
bool Coordinator::ComesOfARepair(const protocol::Sender& first, const protocol::Sender& sender,
                                 uint64_t step) const {
  if (!repairs_losses() || options_.elastic.has_value() || step <= book().newest()) return false;
  return roster_[first.rank].incarnation != first.incarnation || first.generation > 1 ||
         sender.generation > 1;
}

// Ends the replay of shards that have caught up. Shard 0 names no checkpoint before that.
void Coordinator::WatchReplays(absl::Time now, Effects* out) {
  for (const ShardSeat& seat : fleet_) {
    if (seat.state != ShardState::kReplays || seat.health.highest_closed_step < furthest_step_) {
      continue;
    }
    // Workers stop while they wait for the shard, so one report from each worker is enough.
    if (!roster_.AllHeardAfter(seat.started, now)) continue;
    fleet_.CaughtUp(seat.arrival.shard);
    if (seat.arrival.shard == 0) checkpoints_.AskAgain(out);
  }
}

// Gives ranks of lost workers to waiting newcomers. All replacements share a generation.
void Coordinator::ReplaceWorkers(absl::Time now, Effects* out) {
  const Roster::Ranks due = roster_.Replaceable(now);
  // If all processes were restarted, there is nothing to wait for.
  const bool all_new =
      std::all_of(roster_.begin(), roster_.end(),
                  [](const Member& member) { return member.successor.has_value(); }) &&
      (due.size() == roster_.size() || !roster_.AnyAlive(now, absl::InfiniteDuration()));
  if ((due.empty() && !all_new) || book().being_written()) return;
  // If no member reported recently, this process may have been cut off and will soon hear them.
  const bool only_just = std::none_of(due.begin(), due.end(), [&](uint32_t rank) {
    return now - roster_[rank].successor->since >= options_.lease;
  });
  if (!all_new && only_just && !roster_.AnyAlive(now, options_.lease)) return;
  const std::string why_not = all_new ? absl::StrCat("no worker of term ", term_.number, " is left")
                                      : WhyNotReplaced(due, now);
  if (!why_not.empty()) {
    RollBack(absl::StrCat(ReplacedBy(due.empty() ? 0 : due[0]), ", and ", why_not), now, out);
    return;
  }
  term_.generation += 1;
  const size_t persist_first = out->size();
  for (const uint32_t rank : due) {
    const std::string who = ReplacedBy(rank);
    checkpoints_.WithdrawRank(rank, now);
    roster_.Replace(rank, book().newest() + 1, now);
    recoveries_.Repaired(absl::StrCat(who, ", which replays ", AfterCheckpoint(book().newest())),
                         out);
  }
  out->insert(out->begin() + static_cast<ptrdiff_t>(persist_first),
              PersistRun{messages_.Record(/*finished=*/false)});
  fleet_.AnnounceMembers(messages_.Members(), out);
}

std::string Coordinator::ReplacedBy(uint32_t rank) const {
  const protocol::WorkerJoin& newcomer = roster_[rank].successor->join;
  return absl::StrCat(roster_.Describe(rank), " was replaced by ", newcomer.host, " pid ",
                      newcomer.pid);
}

// Returns why the newcomers cannot continue in this term. Empty if they can.
std::string Coordinator::WhyNotReplaced(const Roster::Ranks& ranks, absl::Time now) const {
  if (!roster_.AnyAlive(now, options_.lease)) {
    return absl::StrCat("no worker of term ", term_.number, " is left");
  }
  std::string why = WhyNoRepair(/*shard_lost=*/false, /*worker_lost=*/true);
  if (!why.empty() || book().newest() > 0) return why;
  for (const uint32_t rank : ranks) {
    const Member& member = roster_[rank];
    if (member.successor->join.parameters_sha256 == member.join.parameters_sha256) continue;
    return "there is no checkpoint yet, and it begins with other parameters than its predecessor";
  }
  return "";
}

// Answers newcomers and repeated Join calls once every shard knows the members.
void Coordinator::AnswerWhenMembersAreKnown(absl::Time now, Effects* out) {
  if (!repairs_losses() || phase_ != protocol::JobPhase::kRunning) return;
  if (!fleet_.AllKnowMembers()) return;
  GrantWaiting(now, out);
}

// An expired lease causes no rollback while the other processes can restore the lost process.
void Coordinator::CheckLostMembers(absl::Time now, Effects* out) {
  roster_.RenewWaiting(now);
  if (options_.elastic.has_value()) EvictLost(now, out);
  LossReport loss(options_.lease);
  bool shard_lost = false;
  bool too_long = roster_.AnyLostFor(options_.rejoin_timeout, now);
  for (const ShardSeat& seat : fleet_) {
    too_long = too_long || (seat.lost && now - seat.heard >= options_.rejoin_timeout);
  }
  for (const uint32_t shard : fleet_.Silent(now, options_.lease)) {
    loss.AddSilent(Describe(fleet_[shard]));
    fleet_.MarkLost(shard);
    fleet_.Disconnect(shard, out);
    shard_lost = true;
  }
  const bool worker_lost = roster_.MarkLost(now, &loss);
  if (too_long) {
    End(protocol::JobPhase::kFailed,
        absl::StrCat("waited ", absl::FormatDuration(options_.rejoin_timeout), ": ",
                     LostProcesses(roster_, fleet_),
                     " did not come back; restart the job with --resume, or raise "
                     "server.rejoin_timeout"),
        absl::StatusCode::kDeadlineExceeded, out);
    return;
  }
  if (loss.empty()) return;
  const std::string why_not = WhyNoRepair(shard_lost, worker_lost);
  const std::string text = loss.Text();
  if (why_not.empty()) {
    out->push_back(Notice{.text = absl::StrCat(text, "; the others wait up to ",
                                               absl::FormatDuration(options_.rejoin_timeout),
                                               " (server.rejoin_timeout) for it to return"),
                          .warning = true,
                          .fields = {.event = "lost"}});
  } else {
    RollBack(absl::StrCat(text, ", and ", why_not), now, out);
  }
}

RecoveryPolicy Coordinator::Policy() const {
  RecoveryFacts facts{.has_checkpoints = has_checkpoints(),
                      .replay_limit = options_.replay_limit,
                      .why_no_replay = options_.why_no_replay,
                      .is_elastic = options_.elastic.has_value(),
                      .shards_update = options_.shards_update,
                      .phase = phase_,
                      .parameters_agree = term_.parameters_agree,
                      .checkpoint_step = book().newest()};
  for (const Member& member : roster_) facts.contributions_from.push_back(member.replay_from);
  for (const ShardSeat& seat : fleet_) {
    facts.results_from.push_back(seat.state == ShardState::kAwaitsReplay
                                     ? std::nullopt
                                     : std::optional(seat.health.results_from));
  }
  return RecoveryPolicy(std::move(facts));
}

std::string Coordinator::Explain(const RecoveryPolicy& policy,
                                 const RepairObstacle& obstacle) const {
  return policy.Explain(obstacle, obstacle.is_at_shard() ? Describe(fleet_[obstacle.holder])
                                                         : roster_.Describe(obstacle.holder));
}

std::string Coordinator::WhyNoRepair(bool shard_lost, bool worker_lost) const {
  const RecoveryPolicy policy = Policy();
  const std::optional<RepairObstacle> obstacle = policy.ToRepair(shard_lost, worker_lost);
  return obstacle.has_value() ? Explain(policy, *obstacle) : "";
}

RecoveryClass Coordinator::Recovery(std::string* reason) const {
  const RecoveryPolicy policy = Policy();
  const RecoveryClass recovery = policy.Class();
  *reason = recovery == RecoveryClass::kRollback ? Explain(policy, *policy.ToNextRepair())
                                                 : std::string();
  return recovery;
}

void Coordinator::WatchRecovery(Effects* out) {
  std::string reason;
  const RecoveryClass next = Recovery(&reason);
  recoveries_.Watch(next, reason, book().newest(), out);
}

}  // namespace sluice::server
