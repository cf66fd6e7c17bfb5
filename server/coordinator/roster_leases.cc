// SPDX-License-Identifier: Apache-2.0
// Implements the reports of members and their leases.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/coordinator/roster.h"

namespace sluice::server {
namespace {

constexpr int kSilentHeartbeats = 3;  // Silence after which a worker may be replaced.

}  // namespace

absl::Status Roster::CheckSender(const protocol::Sender& sender) const {
  if (sender.job_uid != options_.job_uid) {
    return absl::FailedPreconditionError(
        absl::StrCat("rank ", sender.rank, " belongs to another run of job ", options_.job_name,
                     " than this coordinator; restart the worker"));
  }
  if (sender.rank >= size() || !members_[sender.rank].is_present() ||
      members_[sender.rank].incarnation != sender.incarnation) {
    return absl::FailedPreconditionError(
        absl::StrCat("this worker does not hold rank ", sender.rank));
  }
  if (members_[sender.rank].gave_up()) {
    return absl::FailedPreconditionError(absl::StrCat("this worker has left rank ", sender.rank));
  }
  return absl::OkStatus();
}

bool Roster::Report(const protocol::WorkerHeartbeat& heartbeat, bool is_running, absl::Time now,
                    Effects* out) {
  Member& member = members_[heartbeat.sender.rank];
  const bool stalls = options_.server.stall_timeout > absl::ZeroDuration() && is_running &&
                      !member.has_left() &&
                      heartbeat.since_progress >= options_.server.stall_timeout;
  member.stalled = stalls ? heartbeat.since_progress : absl::ZeroDuration();
  if (stalls) return false;
  member.progress = heartbeat.progress;
  member.timings = heartbeat.timings;
  RefuseSuccessor(&member, HeldBy(member.join), out);
  Return(member.join.rank, now, out);
  return true;
}

void Roster::ReportFiles(const protocol::WorkerHeartbeat& heartbeat) {
  Member& member = members_[heartbeat.sender.rank];
  member.replay_from = heartbeat.replay_from;
  member.restoring_step = heartbeat.restoring_step;
  member.disk_wait = heartbeat.disk_wait;
}

// A member that saves a part of a later step has read the checkpoint that it restored.
void Roster::SavedPart(uint32_t rank, uint64_t step) {
  Member& member = members_[rank];
  if (step > member.restoring_step) member.restoring_step = 0;
}

void Roster::Return(uint32_t rank, absl::Time now, Effects* out) {
  Member& member = members_[rank];
  const bool was_lost = member.is_lost();
  Move(&member, MemberEvent::kReturned);
  member.heard = now;
  member.has_reported = true;
  if (!was_lost) return;
  out->push_back(Notice{.text = absl::StrCat(Describe(rank), " is back"),
                        .fields = {.event = "member_back", .rank = rank}});
}

void Roster::GiveUp(uint32_t rank, absl::string_view why) {
  Move(&members_[rank], MemberEvent::kGaveUp);
  members_[rank].why_gave_up = std::string(why);
}

void Roster::NeedAll() {
  for (Member& member : members_) {
    if (member.has_left()) Move(&member, MemberEvent::kNeededAgain);
  }
}

void Roster::RenewWaiting(absl::Time now) {
  for (Member& member : members_) {
    if (member.token != 0) member.heard = now;
  }
}

void Roster::ShiftLeases(absl::Duration gap, absl::Time now) {
  for (Member& member : members_) member.heard = std::min(now, member.heard + gap);
}

bool Roster::LeaseIsOver(const Member& member, absl::Time now) const {
  if (!member.is_present() || member.has_left()) return false;
  return member.gave_up() || now - member.heard >= options_.server.lease_timeout;
}

// True if another worker that wants the rank may replace this member.
bool Roster::IsSilent(const Member& member, absl::Time now) const {
  if (member.gave_up()) return true;
  // A worker that has not found this coordinator yet gets a whole lease to do so.
  const absl::Duration silence = member.has_reported
                                     ? kSilentHeartbeats * options_.server.heartbeat_interval
                                     : options_.server.lease_timeout;
  return member.token == 0 && now - member.heard >= silence;
}

Roster::Ranks Roster::Expired(absl::Time now) const {
  Ranks expired;
  for (const Member& member : members_) {
    if (LeaseIsOver(member, now)) expired.push_back(member.join.rank);
  }
  return expired;
}

void Roster::AddLosses(const Ranks& ranks, LossReport* report) const {
  for (const uint32_t rank : ranks) {
    const Member& member = members_[rank];
    if (member.gave_up()) {
      report->AddOther(absl::StrCat(Describe(rank), " left: ", member.why_gave_up));
    } else if (member.stalled > absl::ZeroDuration()) {
      report->AddOther(
          absl::StrCat(Describe(rank), " is alive, but has made no progress for ",
                       absl::FormatDuration(absl::Floor(member.stalled, absl::Milliseconds(100))),
                       " (server.stall_timeout)"));
    } else {
      report->AddSilent(Describe(rank));
    }
  }
}

bool Roster::MarkLost(absl::Time now, LossReport* report) {
  Ranks lost = Expired(now);
  std::erase_if(lost, [this](uint32_t rank) { return members_[rank].is_lost(); });
  AddLosses(lost, report);
  for (const uint32_t rank : lost) Move(&members_[rank], MemberEvent::kExpired);
  return !lost.empty();
}

bool Roster::AnyLost() const {
  return std::any_of(begin(), end(), [](const Member& member) { return member.is_lost(); });
}

bool Roster::AnyLostFor(absl::Duration limit, absl::Time now) const {
  return std::any_of(begin(), end(), [limit, now](const Member& member) {
    return member.is_lost() && now - member.heard >= limit;
  });
}

std::vector<std::string> Roster::NamesOfLost() const {
  std::vector<std::string> names;
  for (const Member& member : members_) {
    if (!member.is_lost()) continue;
    const std::string name = Describe(member.join);
    names.push_back(
        member.gave_up() ? absl::StrCat(name, ", which left (", member.why_gave_up, "),") : name);
  }
  return names;
}

bool Roster::AnyAlive(absl::Time now, absl::Duration silence) const {
  return std::any_of(begin(), end(), [now, silence](const Member& member) {
    return member.is_present() && member.has_reported && now - member.heard < silence;
  });
}

bool Roster::AllHeardAfter(absl::Time time, absl::Time now) const {
  return std::all_of(begin(), end(), [this, time, now](const Member& member) {
    return member.heard > time || now - member.heard >= options_.server.lease_timeout;
  });
}

}  // namespace sluice::server
