// SPDX-License-Identifier: Apache-2.0
#include "server/coordinator/roster.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/random.h"

namespace sluice::server {
namespace {

// After a rollback, the job waits this many leases for former members before it begins with fewer.
constexpr int kGatheringLeases = 2;

}  // namespace

Roster::Roster(const CoordinatorOptions& options)
    : options_(options),
      members_(options.world_size),
      begin_with_(options.elastic.has_value() ? options.elastic->start : options.world_size) {
  for (uint32_t rank = 0; rank < size(); ++rank) members_[rank].join.rank = rank;
}

void Roster::Move(Member* member, MemberEvent event) {
  const std::optional<MemberState> next = NextState(member->state, event);
  Check(next.has_value(), "the event is possible in the state of the member");
  member->state = *next;
}

std::string Roster::Describe(const protocol::WorkerJoin& join) const {
  return absl::StrCat(options_.relays ? "relay " : "rank ", join.rank, " (host ", join.host,
                      ", pid ", join.pid, ")");
}

void Roster::ContinueTerm(const protocol::RunRecord& record, absl::Time now) {
  table_ = record.table;
  for (uint32_t rank = 0; rank < size() && rank < record.members.size(); ++rank) {
    const protocol::RunMember& from = record.members[rank];
    if (from.incarnation == 0) continue;  // No worker held the rank.
    Member& member = members_[rank];
    Move(&member, MemberEvent::kContinued);
    member.heard = now;
    member.incarnation = from.incarnation;
    member.join.nonce = from.nonce;
    member.join.host = from.host;
    member.join.pid = from.pid;
    member.join.parameters_sha256 = from.parameters_sha256;
  }
}

bool Roster::IsEnough(std::optional<absl::Duration> waited) const {
  const uint32_t present = Present();
  if (present >= begin_with_) return true;
  return options_.elastic.has_value() && waited.has_value() && present >= options_.elastic->least &&
         *waited >= kGatheringLeases * options_.server.lease_timeout;
}

std::string Roster::Missing() const {
  const uint32_t present = Present();
  if (options_.elastic.has_value()) {
    if (present >= begin_with_) return "";
    return absl::StrCat(begin_with_ - present, " of ", begin_with_, " workers");
  }
  if (present == size()) return "";
  Ranks missing;
  for (uint32_t rank = 0; rank < size(); ++rank) {
    if (!members_[rank].is_present()) missing.push_back(rank);
  }
  return absl::StrCat(options_.relays ? "relay " : "rank ", absl::StrJoin(missing, ", "));
}

void Roster::BeginTerm(uint64_t restore_step, absl::Time now) {
  if (options_.elastic.has_value()) began_with_ = PresentRanks();
  for (Member& member : members_) {
    if (!member.is_present()) continue;
    Move(&member, MemberEvent::kBegan);
    member.heard = now;
    member.has_reported = true;
    member.replay_from = restore_step + 1;
  }
}

void Roster::EndTerm() {
  if (options_.elastic.has_value()) begin_with_ = std::max(Present(), options_.elastic->least);
  for (Member& member : members_) {
    if (!member.is_present()) continue;
    if (member.token == 0) {
      Vacate(&member);
      continue;
    }
    Move(&member, MemberEvent::kTermOver);
    member.late_joiner = false;  // The member begins the next term with all others.
  }
}

absl::Status Roster::CheckTable(const protocol::WorkerJoin& join, uint64_t restore_step) const {
  const std::string who = absl::StrCat("rank ", join.rank);
  const absl::Status valid = protocol::ValidateTensorTable(join.table);
  if (!valid.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(who, ": ", valid.message()));
  }
  const std::string difference =
      table_.empty() ? "" : protocol::DescribeDifference(join.table, table_);
  if (!difference.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(who, " trains a different model than rank ",
                                                   table_rank_, ": ", difference, " (here: rank ",
                                                   join.rank, ", there: rank ", table_rank_, ")"));
  }
  if (table_.empty() && restore_step > 0 && !options_.checkpoints.empty() &&
      options_.checkpoints.back().table_hash != protocol::HashTensorTable(join.table)) {
    return absl::InvalidArgumentError(
        absl::StrCat(who, " trains a different model than the checkpoint after step ", restore_step,
                     "; start it with the program and job file that wrote the checkpoint"));
  }
  return absl::OkStatus();
}

absl::Status Roster::HeldBy(const protocol::WorkerJoin& holder, absl::string_view hint) const {
  return absl::AlreadyExistsError(absl::StrCat(
      Describe(holder), " holds the rank already; give this worker another --rank", hint));
}

void Roster::Seat(JoinToken token, protocol::WorkerJoin join, absl::Time now) {
  if (table_.empty()) {
    table_ = std::move(join.table);
    table_rank_ = join.rank;
  }
  Member* const member = &members_[join.rank];
  Occupy(member, token, std::move(join), now);
}

void Roster::Occupy(Member* member, JoinToken token, protocol::WorkerJoin join, absl::Time now) {
  Move(member, MemberEvent::kSeated);
  join.table.clear();
  member->token = token;
  member->incarnation = CounterRandom(options_.job_uid, join.rank, join.nonce).Next() | 1;
  member->join = std::move(join);
  member->heard = now;
}

// A newcomer that waits for the rank continues to wait.
void Roster::Vacate(Member* member) {
  Move(member, MemberEvent::kVacated);
  Member vacant;
  vacant.join.rank = member->join.rank;
  vacant.successor = std::move(member->successor);
  *member = std::move(vacant);
}

void Roster::Repeat(uint32_t rank, JoinToken token, Effects* out) {
  Member& member = members_[rank];
  if (member.token != 0) {
    out->push_back(AnswerJoin{member.token, absl::AbortedError("this Join was sent again")});
  }
  member.token = token;
}

void Roster::Await(JoinToken token, protocol::WorkerJoin join, absl::Time since, Effects* out) {
  Member& member = members_[join.rank];
  if (member.successor.has_value()) {
    const bool again = member.successor->join.nonce == join.nonce;
    if (again) since = member.successor->since;
    RefuseSuccessor(&member,
                    again ? absl::AbortedError("this Join was sent again")
                          : HeldBy(member.is_present() ? member.join : member.successor->join),
                    out);
  }
  member.successor = {.token = token, .join = std::move(join), .since = since};
}

void Roster::RefuseSuccessor(Member* member, const absl::Status& why, Effects* out) {
  if (!member->successor.has_value()) return;
  out->push_back(AnswerJoin{member->successor->token, why});
  member->successor.reset();
}

bool Roster::Cancel(JoinToken token, bool announced) {
  for (Member& member : members_) {
    if (member.successor.has_value() && member.successor->token == token) {
      member.successor.reset();
      return false;
    }
    if (!member.is_present() || member.token != token) continue;
    member.token = 0;
    if (announced) return false;  // From now on, the member's lease decides.
    Vacate(&member);
    return true;
  }
  return false;
}

void Roster::ForgetUnusedTable() {
  if (Present() == 0) table_.clear();
}

void Roster::Answer(uint32_t rank, protocol::JoinGrant grant, absl::Time now, Effects* out) {
  Member& member = members_[rank];
  Move(&member, MemberEvent::kBegan);
  member.heard = now;
  member.restoring_step = grant.restore_step;
  out->push_back(AnswerJoin{std::exchange(member.token, 0), std::move(grant)});
}

Roster::Ranks Roster::Waiting() const {
  Ranks waiting;
  for (const Member& member : members_) {
    if (member.token != 0) waiting.push_back(member.join.rank);
  }
  return waiting;
}

void Roster::RefuseAll(const absl::Status& why, Effects* out) {
  for (Member& member : members_) {
    RefuseSuccessor(&member, why, out);
    if (member.token == 0) continue;
    out->push_back(AnswerJoin{std::exchange(member.token, 0), why});
    member.told_end = true;
  }
}

Roster::Ranks Roster::Replaceable(absl::Time now) const {
  Ranks ranks;
  for (const Member& member : members_) {
    if (!member.successor.has_value()) continue;
    if (!member.is_present() || IsSilent(member, now)) ranks.push_back(member.join.rank);
  }
  return ranks;
}

std::string Roster::ReplacedBy(uint32_t rank) const {
  const protocol::WorkerJoin& newcomer = members_[rank].successor->join;
  return absl::StrCat(Describe(rank), " was replaced by ", newcomer.host, " pid ", newcomer.pid);
}

Successor Roster::TakeSuccessor(uint32_t rank) {
  Successor successor = *std::move(members_[rank].successor);
  members_[rank].successor.reset();
  return successor;
}

void Roster::SeatSuccessor(Member* member, absl::Time now) {
  Successor successor = TakeSuccessor(member->join.rank);
  if (member->is_present()) Vacate(member);
  Occupy(member, successor.token, std::move(successor.join), now);
}

void Roster::Replace(uint32_t rank, uint64_t first_step, absl::Time now) {
  Member& member = members_[rank];
  SeatSuccessor(&member, now);
  member.has_reported = true;
  member.replay_from = first_step;
}

void Roster::SeatLate(uint32_t rank, absl::Time now) {
  SeatSuccessor(&members_[rank], now);
  members_[rank].late_joiner = true;
}

std::string Roster::Vacate(const Ranks& ranks) {
  std::vector<std::string> names;
  for (const uint32_t rank : ranks) {
    names.push_back(Describe(rank));
    lost_residual_energy_ += members_[rank].progress.residual_energy;
    Vacate(&members_[rank]);
  }
  lost_workers_ += ranks.size();
  return absl::StrJoin(names, " and ");
}

bool Roster::CanSpare(size_t count) const { return Present() >= options_.elastic->least + count; }

bool Roster::GivesParameters(const Ranks& ranks) const {
  return !ranks.empty() && (began_with_.empty() || std::find(ranks.begin(), ranks.end(),
                                                             began_with_.front()) != ranks.end());
}

uint32_t Roster::Present() const {
  return static_cast<uint32_t>(
      std::count_if(begin(), end(), [](const Member& member) { return member.is_present(); }));
}

Roster::Ranks Roster::PresentRanks() const {
  Ranks ranks;
  for (const Member& member : members_) {
    if (member.is_present()) ranks.push_back(member.join.rank);
  }
  return ranks;
}

bool Roster::AllHaveLeft() const {
  return std::all_of(begin(), end(), [](const Member& member) {
    return member.has_left() || !member.is_present();
  });
}

bool Roster::AllPassed(uint64_t step) const {
  return std::all_of(begin(), end(), [this, step](const Member& member) {
    return !member.is_present() || ExchangedStep(member.progress) >= step;
  });
}

bool Roster::ParametersAreEqual() const {
  const Ranks ranks = PresentRanks();
  return std::all_of(ranks.begin(), ranks.end(), [this, &ranks](uint32_t rank) {
    return members_[rank].join.parameters_sha256 == members_[ranks[0]].join.parameters_sha256;
  });
}

bool Roster::AnyToldEnd() const {
  return std::any_of(begin(), end(), [](const Member& member) { return member.told_end; });
}

bool Roster::AllKnowEnd(bool absent_too) const {
  return std::all_of(begin(), end(), [this, absent_too](const Member& member) {
    return member.told_end || (!member.is_present() && !absent_too) ||
           (member.has_left() && !HasCheckpoints(options_));
  });
}

std::vector<uint64_t> Roster::Incarnations() const {
  std::vector<uint64_t> incarnations;
  for (const Member& member : members_) incarnations.push_back(member.incarnation);
  return incarnations;
}

std::vector<protocol::RunMember> Roster::Records() const {
  std::vector<protocol::RunMember> records;
  for (const Member& member : members_) {
    records.push_back({.nonce = member.join.nonce,
                       .incarnation = member.incarnation,
                       .host = member.join.host,
                       .pid = member.join.pid,
                       .parameters_sha256 = member.join.parameters_sha256});
  }
  return records;
}

std::vector<uint64_t> Roster::StepsInUse() const {
  std::vector<uint64_t> steps;
  for (const Member& member : members_) {
    if (member.is_present() && member.restoring_step > 0) steps.push_back(member.restoring_step);
  }
  return steps;
}

}  // namespace sluice::server
