#include "server/core/coordinator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/random.h"

namespace sluice {
namespace {

constexpr uint64_t kStartSequence = 1;
constexpr uint64_t kEndSequence = 2;
constexpr uint32_t kGeneration = 1;
constexpr size_t kHashSteps = 64;

}  // namespace

Coordinator::Coordinator(CoordinatorOptions options, absl::Time now)
    : options_(std::move(options)),
      created_(now),
      waiting_since_(now),
      last_tick_(now),
      members_(options_.world_size),
      seats_(options_.shards) {}

void Coordinator::Join(JoinToken token, WorkerJoin join, absl::Time now, Effects* out) {
  const absl::Status valid = CheckJoin(join);
  if (!valid.ok()) {
    out->push_back(AnswerJoin{token, valid});
    return;
  }
  Member& member = members_[join.rank];
  if (member.present) {  // With this nonce: the same worker again.
    if (phase_ == JobPhase::kRunning) {
      member.heard = now;
      out->push_back(AnswerJoin{token, MakeGrant(member)});
      return;
    }
    if (member.token != 0) {
      out->push_back(AnswerJoin{member.token, absl::AbortedError("this Join was sent again")});
    }
    member.token = token;
    return;
  }
  if (table_.empty()) {
    table_ = std::move(join.table);
    table_rank_ = join.rank;
  }
  join.table.clear();
  member.present = true;
  member.token = token;
  member.incarnation = CounterRandom(options_.job_uid, join.rank, join.nonce).Next() | 1;
  member.join = std::move(join);
  member.heard = now;
  StartWhenComplete(now, out);
  if (!announced_) {
    out->push_back(
        Notice{absl::StrCat(Describe(member), " is here; waiting for ", WhoIsMissing())});
  }
}

void Coordinator::JoinCancelled(JoinToken token) {
  for (Member& member : members_) {
    if (!member.present || member.token != token) continue;
    member.token = 0;
    if (announced_) return;  // Its lease decides.
    member = Member();
    const bool nobody = std::none_of(members_.begin(), members_.end(),
                                     [](const Member& other) { return other.present; });
    if (nobody) table_.clear();
    return;
  }
}

void Coordinator::AttachShard(ControlStreamId stream, const ShardArrival& arrival, absl::Time now,
                              Effects* out) {
  const absl::Status valid = CheckArrival(arrival);
  if (!valid.ok()) {
    out->push_back(RefuseShard{stream, valid});
    return;
  }
  ShardSeat& seat = seats_[arrival.shard];
  if (announced_ && arrival.server_incarnation != seat.arrival.server_incarnation) {
    const std::string reason =
        absl::StrCat("shard ", arrival.shard, " (", arrival.address,
                     ") was started again; its part of the job is lost and the job cannot go on");
    out->push_back(RefuseShard{stream, absl::FailedPreconditionError(reason)});
    Fail(reason, out);
    return;
  }
  if (seat.stream != 0) {  // The same process with a new connection.
    out->push_back(RefuseShard{seat.stream, absl::AbortedError("the shard attached again")});
  }
  seat.known = true;
  seat.arrival = arrival;
  seat.stream = stream;
  seat.heard = now;
  if (phase_ == JobPhase::kFinished || phase_ == JobPhase::kFailed) {
    out->push_back(CommandShard{stream, kEndSequence, EndShard{phase_, failure_}});
  } else if (announced_ && seat.acknowledged < kStartSequence) {
    out->push_back(CommandShard{stream, kStartSequence, MakeStart()});
  } else if (!announced_) {
    StartWhenComplete(now, out);
    if (!announced_) {
      out->push_back(Notice{absl::StrCat("shard ", arrival.shard, " (", arrival.address,
                                         ") is here; waiting for ", WhoIsMissing())});
    }
  }
}

void Coordinator::StartWhenComplete(absl::Time now, Effects* out) {
  const bool complete =
      std::all_of(members_.begin(), members_.end(), [](const Member& m) { return m.present; }) &&
      std::all_of(seats_.begin(), seats_.end(), [](const ShardSeat& s) { return s.stream != 0; });
  if (!complete || announced_ || phase_ != JobPhase::kWaiting) return;
  announced_ = true;
  for (const Member& member : members_) {
    parameters_agree_ =
        parameters_agree_ && member.join.parameters_sha256 == members_[0].join.parameters_sha256;
  }
  for (ShardSeat& seat : seats_) {
    seat.heard = now;
    out->push_back(CommandShard{seat.stream, kStartSequence, MakeStart()});
  }
}

void Coordinator::ShardAcknowledged(ControlStreamId stream, uint64_t sequence, absl::Time now,
                                    Effects* out) {
  ShardSeat* const seat = FindSeat(stream);
  if (seat == nullptr) return;
  seat->acknowledged = std::max(seat->acknowledged, sequence);
  seat->heard = now;
  GrantWhenAcknowledged(now, out);
}

void Coordinator::GrantWhenAcknowledged(absl::Time now, Effects* out) {
  if (!announced_ || phase_ != JobPhase::kWaiting) return;
  for (const ShardSeat& seat : seats_) {
    if (seat.acknowledged < kStartSequence) return;
  }
  phase_ = JobPhase::kRunning;
  for (Member& member : members_) {
    member.heard = now;
    if (member.token != 0) out->push_back(AnswerJoin{member.token, MakeGrant(member)});
    member.token = 0;
  }
  out->push_back(Notice{absl::StrCat("all ", members_.size(), " workers and ", seats_.size(),
                                     " shards are here; the job runs")});
}

JoinGrant Coordinator::MakeGrant(const Member& member) const {
  JoinGrant grant{.job_uid = options_.job_uid,
                  .rank = member.join.rank,
                  .incarnation = member.incarnation,
                  .generation = kGeneration,
                  .world_size = options_.world_size,
                  .layout = options_.layout,
                  .window_bytes = options_.window_bytes,
                  .parameters_agree = parameters_agree_,
                  .lease = options_.lease,
                  .heartbeat = options_.heartbeat,
                  .server_incarnation = options_.server_incarnation};
  for (const ShardSeat& seat : seats_) {
    grant.shards.push_back({.shard = seat.arrival.shard,
                            .address = seat.arrival.address,
                            .server_incarnation = seat.arrival.server_incarnation});
  }
  return grant;
}

StartShard Coordinator::MakeStart() const {
  StartShard start{.job_uid = options_.job_uid,
                   .table = table_,
                   .layout = options_.layout,
                   .generation = kGeneration,
                   .window_bytes = options_.window_bytes,
                   .coordinator_incarnation = options_.server_incarnation,
                   .parameters_agree = parameters_agree_};
  for (const Member& member : members_) start.incarnations.push_back(member.incarnation);
  return start;
}

absl::StatusOr<JobState> Coordinator::Heartbeat(const WorkerHeartbeat& heartbeat, absl::Time now,
                                                Effects* out) {
  absl::StatusOr<Member*> member = FindMember(heartbeat.sender);
  if (!member.ok()) return member.status();
  Hear(heartbeat, *member, now, out);
  return StateFor(*member);
}

absl::StatusOr<JobState> Coordinator::Leave(const WorkerLeave& leave, absl::Time now,
                                            Effects* out) {
  absl::StatusOr<Member*> found = FindMember(leave.last.sender);
  if (!found.ok()) return found.status();
  Member& member = **found;
  Hear(leave.last, &member, now, out);
  if (!member.left && !leave.finished) {
    Fail(absl::StrCat(Describe(member),
                      " gave up: ", leave.reason.empty() ? "it gave no reason" : leave.reason),
         out);
  }
  member.left = true;
  const bool all =
      std::all_of(members_.begin(), members_.end(), [](const Member& other) { return other.left; });
  if (all && phase_ == JobPhase::kRunning) {
    End(JobPhase::kFinished, "", absl::StatusCode::kFailedPrecondition, out);
  }
  return StateFor(&member);
}

void Coordinator::Hear(const WorkerHeartbeat& heartbeat, Member* member, absl::Time now,
                       Effects* out) {
  member->heard = now;
  member->progress = heartbeat.progress;
  if (heartbeat.parameters_hash_step > 0) CompareParameters(heartbeat, out);
}

void Coordinator::CompareParameters(const WorkerHeartbeat& heartbeat, Effects* out) {
  const uint64_t step = heartbeat.parameters_hash_step;
  const auto [at, first] = hashes_.try_emplace(
      step, ParameterHash{heartbeat.sender.rank, heartbeat.parameters_sha256, {}});
  ParameterHash& hash = at->second;
  if (hash.sha256 != heartbeat.parameters_sha256) {
    Fail(absl::StrCat("after step ", step, " the parameters of ",
                      Describe(members_[heartbeat.sender.rank]), " differ from those of ",
                      Describe(members_[hash.rank]),
                      "; workers must compute the same from the same results (same build, same "
                      "optimizer, no change to parameters outside it)"),
         out);
    return;
  }
  hash.told.insert(heartbeat.sender.rank);
  if (hash.told.size() == members_.size()) {
    hashes_.erase(at);
  } else if (hashes_.size() > kHashSteps) {
    hashes_.erase(hashes_.begin());
  }
}

JobState Coordinator::StateFor(Member* member) const {
  if (phase_ == JobPhase::kFinished || phase_ == JobPhase::kFailed) member->told_end = true;
  return {.phase = phase_, .failure = failure_, .generation = announced_ ? kGeneration : 0};
}

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
  seat->health = health;
}

void Coordinator::ShardFailed(ControlStreamId stream, absl::string_view reason, Effects* out) {
  const ShardSeat* const seat = FindSeat(stream);
  if (seat == nullptr) return;
  Fail(absl::StrCat("shard ", seat->arrival.shard, " (", seat->arrival.address, "): ", reason),
       out);
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
    for (Member& member : members_) member.heard = std::min(now, member.heard + gap);
    for (ShardSeat& seat : seats_) seat.heard = std::min(now, seat.heard + gap);
    out->push_back(Notice{absl::StrCat("stood still for ", absl::FormatDuration(gap),
                                       "; leases are extended by that")});
  }
  CheckLeases(now, out);
}

void Coordinator::CheckLeases(absl::Time now, Effects* out) {
  if (phase_ == JobPhase::kWaiting && !announced_) {
    if (now - waiting_since_ < options_.join_timeout) return;
    const std::string reason =
        absl::StrCat("waited ", absl::FormatDuration(options_.join_timeout), ": ", WhoIsMissing(),
                     " never came; start them, or give them longer with server.join_timeout");
    End(JobPhase::kFailed, reason, absl::StatusCode::kDeadlineExceeded, out);
    return;
  }
  if (phase_ != JobPhase::kWaiting && phase_ != JobPhase::kRunning) return;
  const std::string lost =
      absl::StrCat(" was not heard of for ", absl::FormatDuration(options_.lease),
                   " (server.lease); the job cannot go on without it");
  for (const ShardSeat& seat : seats_) {
    if (now - seat.heard < options_.lease) continue;
    Fail(absl::StrCat("shard ", seat.arrival.shard, " (", seat.arrival.address, ")", lost), out);
    return;
  }
  if (phase_ != JobPhase::kRunning) return;  // Workers beat only once they are in.
  for (const Member& member : members_) {
    if (member.left || now - member.heard < options_.lease) continue;
    Fail(absl::StrCat(Describe(member), lost), out);
    return;
  }
}

void Coordinator::Fail(absl::string_view reason, Effects* out) {
  End(JobPhase::kFailed, reason, absl::StatusCode::kFailedPrecondition, out);
}

void Coordinator::End(JobPhase phase, absl::string_view reason, absl::StatusCode join_code,
                      Effects* out) {
  if (phase_ == JobPhase::kFinished || phase_ == JobPhase::kFailed) return;
  phase_ = phase;
  failure_ = std::string(reason);
  for (Member& member : members_) {
    if (member.token == 0) continue;
    out->push_back(AnswerJoin{member.token, absl::Status(join_code, reason)});
    member.token = 0;
    member.told_end = true;
  }
  for (const ShardSeat& seat : seats_) {
    if (seat.stream == 0) continue;
    out->push_back(CommandShard{seat.stream, kEndSequence, EndShard{phase, failure_}});
  }
}

bool Coordinator::Drained() const {
  if (phase_ != JobPhase::kFinished && phase_ != JobPhase::kFailed) return false;
  return std::all_of(members_.begin(), members_.end(),
                     [](const Member& m) { return !m.present || m.left || m.told_end; }) &&
         std::all_of(seats_.begin(), seats_.end(), [](const ShardSeat& s) {
           return s.stream == 0 || s.acknowledged >= kEndSequence;
         });
}

}  // namespace sluice
