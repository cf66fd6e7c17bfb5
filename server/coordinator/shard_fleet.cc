// SPDX-License-Identifier: Apache-2.0
#include "server/coordinator/shard_fleet.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "server/coordinator/recovery_policy.h"

namespace sluice::server {
namespace {

// The upper half of each number is the coordinator's durable number, so that all numbers are above
// those of earlier coordinators.
constexpr int kIncarnationShift = 32;

struct Transition {
  ShardState from;
  ShardEvent event;
  ShardState to;
};

constexpr Transition kTransitions[] = {
    {ShardState::kAbsent, ShardEvent::kNewProcess, ShardState::kWaits},
    {ShardState::kAbsent, ShardEvent::kTermBegan, ShardState::kAbsent},
    {ShardState::kWaits, ShardEvent::kNewProcess, ShardState::kWaits},
    {ShardState::kWaits, ShardEvent::kStarted, ShardState::kRuns},
    {ShardState::kWaits, ShardEvent::kNeedsReplay, ShardState::kAwaitsReplay},
    {ShardState::kWaits, ShardEvent::kTermBegan, ShardState::kWaits},
    {ShardState::kAwaitsReplay, ShardEvent::kNewProcess, ShardState::kWaits},
    {ShardState::kAwaitsReplay, ShardEvent::kStarted, ShardState::kRuns},
    {ShardState::kAwaitsReplay, ShardEvent::kReplayBegan, ShardState::kStartsReplay},
    {ShardState::kAwaitsReplay, ShardEvent::kTermBegan, ShardState::kWaits},
    {ShardState::kStartsReplay, ShardEvent::kNewProcess, ShardState::kWaits},
    {ShardState::kStartsReplay, ShardEvent::kStarted, ShardState::kReplays},
    {ShardState::kStartsReplay, ShardEvent::kTermBegan, ShardState::kWaits},
    {ShardState::kReplays, ShardEvent::kNewProcess, ShardState::kWaits},
    {ShardState::kReplays, ShardEvent::kStarted, ShardState::kReplays},
    {ShardState::kReplays, ShardEvent::kCaughtUp, ShardState::kRuns},
    {ShardState::kReplays, ShardEvent::kTermBegan, ShardState::kWaits},
    {ShardState::kRuns, ShardEvent::kNewProcess, ShardState::kWaits},
    {ShardState::kRuns, ShardEvent::kStarted, ShardState::kRuns},
    {ShardState::kRuns, ShardEvent::kTermBegan, ShardState::kWaits},
};

}  // namespace

absl::string_view ToString(ShardState state) {
  switch (state) {
    case ShardState::kAbsent:
      return "absent";
    case ShardState::kWaits:
      return "waits";
    case ShardState::kAwaitsReplay:
      return "awaits replay";
    case ShardState::kStartsReplay:
      return "starts replay";
    case ShardState::kReplays:
      return "replays";
    case ShardState::kRuns:
      return "runs";
  }
  return "unknown";
}

absl::string_view ToString(ShardEvent event) {
  switch (event) {
    case ShardEvent::kNewProcess:
      return "new process";
    case ShardEvent::kStarted:
      return "started";
    case ShardEvent::kNeedsReplay:
      return "needs replay";
    case ShardEvent::kReplayBegan:
      return "replay began";
    case ShardEvent::kCaughtUp:
      return "caught up";
    case ShardEvent::kTermBegan:
      return "term began";
  }
  return "unknown";
}

std::optional<ShardState> NextState(ShardState state, ShardEvent event) {
  for (const Transition& transition : kTransitions) {
    if (transition.from == state && transition.event == event) return transition.to;
  }
  return std::nullopt;
}

std::string Describe(const ShardSeat& seat) {
  const std::string& address = seat.arrival.address;
  return absl::StrCat("shard ", seat.arrival.shard, address.empty() ? "" : " (", address,
                      address.empty() ? "" : ")");
}

ShardFleet::ShardFleet(uint32_t shards, uint64_t coordinator_incarnation)
    : first_number_(coordinator_incarnation << kIncarnationShift), seats_(shards) {
  for (uint32_t shard = 0; shard < shards; ++shard) seats_[shard].arrival.shard = shard;
}

std::optional<uint32_t> ShardFleet::Find(ControlStreamId stream) const {
  for (const ShardSeat& seat : seats_) {
    if (seat.stream == stream) return seat.arrival.shard;
  }
  return std::nullopt;
}

void ShardFleet::Move(ShardSeat* seat, ShardEvent event) {
  const std::optional<ShardState> next = NextState(seat->state, event);
  Check(next.has_value(), "the event is possible in the state of the shard");
  seat->state = *next;
}

// Some shards may not know the members yet.
void ShardFleet::ContinueTerm(protocol::SetMembers members, absl::Time now) {
  ContinueRun();
  start_sequence_ = ++sequence_;
  members_sequence_ = ++sequence_;
  members_ = std::move(members);
  for (ShardSeat& seat : seats_) {
    seat.heard = now;
    seat.health.results_from = kEverythingKept;
  }
}

void ShardFleet::BeginTerm(bool is_first) {
  for (ShardSeat& seat : seats_) {
    Move(&seat, ShardEvent::kTermBegan);
    seat.lost = false;
    seat.told_generation = 0;
  }
  members_sequence_ = 0;
  if (!is_first) suspend_sequence_ = ++sequence_;
  start_sequence_ = ++sequence_;
}

absl::Status ShardFleet::CheckSeatIsFree(const protocol::ShardArrival& arrival,
                                         bool has_checkpoints) const {
  const ShardSeat& seat = seats_[arrival.shard];
  if (!has_checkpoints) {
    if (!seat.is_attached()) return absl::OkStatus();
    return absl::AlreadyExistsError(absl::StrCat("shard ", arrival.shard, " is served by ",
                                                 seat.arrival.address,
                                                 " already; give this server another --shard"));
  }
  // The process with the highest number serves the shard, even if an older process is still alive.
  if (!seat.is_known() || arrival.server_incarnation > seat.arrival.server_incarnation) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("shard ", arrival.shard, " is served by ", seat.arrival.address,
                   ", which was started later; this server must stop"));
}

bool ShardFleet::Attach(ControlStreamId stream, const protocol::ShardArrival& arrival,
                        absl::Time now, Effects* out) {
  ShardSeat& seat = seats_[arrival.shard];
  if (seat.is_attached()) {  // The shard has opened a new connection or is a new process.
    out->push_back(RefuseShard{seat.stream, absl::AbortedError("the shard attached again")});
  }
  const bool was_known = seat.is_known();
  const bool is_new = !was_known || !seat.IsHeldBy(arrival);
  if (is_new) Move(&seat, ShardEvent::kNewProcess);
  if (is_new && was_known) {
    const ShardState state = seat.state;
    seat = ShardSeat();
    seat.state = state;
  }
  seat.arrival = arrival;
  seat.stream = stream;
  seat.heard = now;
  if (std::exchange(seat.lost, false)) {
    out->push_back(Notice{.text = absl::StrCat(Describe(seat), " is back"),
                          .fields = {.event = "shard_back", .shard = seat.arrival.shard}});
  }
  SendLogLevel(seat, out);
  return is_new;
}

void ShardFleet::Detach(ControlStreamId stream) {
  const std::optional<uint32_t> shard = Find(stream);
  if (shard.has_value()) seats_[*shard].stream = 0;
}

void ShardFleet::RunsAlready(uint32_t shard, bool is_new) {
  ShardSeat& seat = seats_[shard];
  seat.acknowledged = std::max(seat.acknowledged, start_sequence_);
  if (is_new) seat.health.results_from = kEverythingKept;
  Move(&seat, ShardEvent::kStarted);
}

bool ShardFleet::Health(ControlStreamId stream, const protocol::ShardHealthReport& health,
                        absl::Time now) {
  const std::optional<uint32_t> shard = Find(stream);
  if (!shard.has_value()) return false;
  ShardSeat& seat = seats_[*shard];
  seat.heard = now;
  // Before the shard has started, it keeps no results that a worker could request.
  const uint64_t results_from = seat.health.results_from;
  seat.health = health;
  if (!seat.has_started()) seat.health.results_from = results_from;
  return true;
}

bool ShardFleet::Acknowledge(ControlStreamId stream, uint64_t sequence, absl::Time now,
                             Effects* out) {
  const std::optional<uint32_t> shard = Find(stream);
  if (!shard.has_value() || sequence > sequence_) return false;
  ShardSeat& seat = seats_[*shard];
  seat.acknowledged = std::max(seat.acknowledged, sequence);
  seat.heard = now;
  if (seat.has_started() || sequence < start_sequence_) return true;
  seat.started = now;
  Move(&seat, ShardEvent::kStarted);
  if (end_sequence_ == 0) SendMembers(*shard, out);
  return true;
}

void ShardFleet::RenewLeases(absl::Time now) {
  for (ShardSeat& seat : seats_) seat.heard = now;
}

void ShardFleet::ShiftLeases(absl::Duration gap, absl::Time now) {
  for (ShardSeat& seat : seats_) seat.heard = std::min(now, seat.heard + gap);
}

std::vector<uint32_t> ShardFleet::Silent(absl::Time now, absl::Duration lease) const {
  std::vector<uint32_t> silent;
  for (const ShardSeat& seat : seats_) {
    if (!seat.lost && now - seat.heard >= lease) silent.push_back(seat.arrival.shard);
  }
  return silent;
}

void ShardFleet::Disconnect(uint32_t shard, Effects* out) {
  ShardSeat& seat = seats_[shard];
  if (!seat.is_attached()) return;
  out->push_back(RefuseShard{seat.stream, absl::AbortedError("the shard was silent for a lease")});
  seat.stream = 0;
}

void ShardFleet::Start(uint32_t shard, protocol::StartShard start, Effects* out) {
  ShardSeat& seat = seats_[shard];
  // If the command was sent before, the shard may have started with the generation at that time.
  if (seat.told_generation == 0) seat.told_generation = start.generation;
  out->push_back(CommandShard{seat.stream, start_sequence_, std::move(start)});
}

void ShardFleet::Suspend(uint32_t shard, const protocol::SuspendShard& suspend, Effects* out) {
  const ShardSeat& seat = seats_[shard];
  if (!seat.is_attached() || seat.acknowledged >= suspend_sequence_) return;
  out->push_back(CommandShard{seat.stream, suspend_sequence_, suspend});
}

void ShardFleet::End(uint32_t shard, const protocol::EndShard& end, Effects* out) {
  const ShardSeat& seat = seats_[shard];
  if (seat.is_attached()) out->push_back(CommandShard{seat.stream, end_sequence_, end});
}

void ShardFleet::AnnounceMembers(protocol::SetMembers members, Effects* out) {
  members_sequence_ = ++sequence_;
  members_ = std::move(members);
  for (uint32_t shard = 0; shard < size(); ++shard) SendMembers(shard, out);
}

void ShardFleet::SendMembers(uint32_t shard, Effects* out) {
  const ShardSeat& seat = seats_[shard];
  if (!seat.is_attached() || !seat.has_started() || KnowsMembers(seat)) return;
  out->push_back(CommandShard{seat.stream, members_sequence_, members_});
}

void ShardFleet::ReleaseResults(uint32_t shard, uint64_t durable_step, Effects* out) {
  const ShardSeat& seat = seats_[shard];
  if (!seat.is_attached() || !seat.has_started()) return;
  out->push_back(CommandShard{seat.stream, ++sequence_, protocol::ReleaseResults{durable_step}});
}

void ShardFleet::KeepCheckpoints(const protocol::KeepCheckpoints& keep, Effects* out) {
  for (const ShardSeat& seat : seats_) {
    // If the shard has not started, its acknowledgement would also acknowledge StartShard.
    if (!seat.is_attached() || !seat.has_started()) continue;
    out->push_back(CommandShard{seat.stream, ++sequence_, keep});
  }
}

void ShardFleet::NameCheckpoint(uint64_t minimum_step, Effects* out) {
  const ShardSeat& seat = seats_[0];
  if (!seat.is_attached()) return;
  out->push_back(CommandShard{seat.stream, ++sequence_, protocol::NameCheckpoint{minimum_step}});
}

void ShardFleet::SetLogLevel(LogLevel lowest, Effects* out) {
  log_level_ = lowest;
  for (const ShardSeat& seat : seats_) SendLogLevel(seat, out);
}

// The number 0 acknowledges no other command, so a shard may get this one before it has started.
void ShardFleet::SendLogLevel(const ShardSeat& seat, Effects* out) const {
  if (!log_level_.has_value() || !seat.is_attached()) return;
  out->push_back(CommandShard{seat.stream, 0, protocol::SetLogLevel{*log_level_}});
}

bool ShardFleet::ExaminePart(uint32_t shard, protocol::CheckpointPart part, Effects* out) {
  const ShardSeat& seat = seats_[shard];
  // As for KeepCheckpoints.
  if (!seat.is_attached() || !seat.has_started()) return false;
  out->push_back(CommandShard{seat.stream, ++sequence_, protocol::ExaminePart{std::move(part)}});
  return true;
}

void ShardFleet::BeginReplay(uint32_t shard, uint64_t checkpoint_step) {
  ShardSeat& seat = seats_[shard];
  Move(&seat, ShardEvent::kReplayBegan);
  seat.started = absl::InfiniteFuture();
  seat.health = {.highest_closed_step = checkpoint_step,
                 .highest_open_step = checkpoint_step + 1,
                 .results_from = checkpoint_step + 1};
}

void ShardFleet::SetPositions(uint64_t step) {
  for (ShardSeat& seat : seats_) {
    seat.health.highest_closed_step = step;
    seat.health.highest_open_step = step + 1;
    seat.health.results_from = step + 1;
  }
}

bool ShardFleet::KnowsMembers(const ShardSeat& seat) const {
  return seat.has_started() &&
         (members_sequence_ == 0 || seat.told_generation == members_.generation ||
          seat.acknowledged >= members_sequence_);
}

bool ShardFleet::AllAttached() const {
  return std::all_of(begin(), end(), [](const ShardSeat& seat) { return seat.is_attached(); });
}

bool ShardFleet::AllStarted() const {
  return std::all_of(begin(), end(), [](const ShardSeat& seat) { return seat.has_started(); });
}

bool ShardFleet::AllKnowMembers() const {
  return std::all_of(begin(), end(), [this](const ShardSeat& seat) { return KnowsMembers(seat); });
}

bool ShardFleet::AllClosed(uint64_t step) const {
  return std::all_of(begin(), end(), [step](const ShardSeat& seat) {
    return seat.health.highest_closed_step >= step;
  });
}

bool ShardFleet::AllKnowEnd() const {
  return std::all_of(begin(), end(), [this](const ShardSeat& seat) {
    return !seat.is_attached() || seat.acknowledged >= end_sequence_;
  });
}

std::vector<protocol::ShardPlace> ShardFleet::Places() const {
  std::vector<protocol::ShardPlace> places;
  for (const ShardSeat& seat : seats_) {
    places.push_back({.shard = seat.arrival.shard,
                      .address = seat.arrival.address,
                      .server_incarnation = seat.arrival.server_incarnation});
  }
  return places;
}

bool ShardFleet::AnyMoved(const std::vector<uint64_t>& known_incarnations) const {
  for (size_t shard = 0; shard < seats_.size(); ++shard) {
    const uint64_t newest_known = shard < known_incarnations.size() ? known_incarnations[shard] : 0;
    if (newest_known < seats_[shard].arrival.server_incarnation) return true;
  }
  return false;
}

double ShardFleet::WaitedSeconds(uint32_t rank) const {
  double sum = 0;
  for (const ShardSeat& seat : seats_) {
    const std::vector<double>& seconds = seat.health.waited_seconds;
    if (rank < seconds.size()) sum += seconds[rank];
  }
  return sum / static_cast<double>(seats_.size());
}

std::optional<protocol::SuspectRank> ShardFleet::Suspect(uint32_t rank) const {
  std::optional<protocol::SuspectRank> found;
  for (const ShardSeat& seat : seats_) {
    for (const protocol::SuspectRank& suspect : seat.health.suspects) {
      if (suspect.rank != rank) continue;
      if (!found.has_value() || suspect.opposes) found = suspect;
    }
  }
  return found;
}

protocol::LinkFigures ShardFleet::SlowestLink(uint32_t rank) const {
  protocol::LinkFigures slowest;
  for (const ShardSeat& seat : seats_) {
    if (rank >= seat.health.links.size()) continue;
    const protocol::LinkFigures& link = seat.health.links[rank];
    if (link.up_rate > 0 && (slowest.up_rate == 0 || link.up_rate < slowest.up_rate)) {
      slowest.up_rate = link.up_rate;
      slowest.up_latency_s = link.up_latency_s;
    }
    if (link.down_rate > 0 && (slowest.down_rate == 0 || link.down_rate < slowest.down_rate)) {
      slowest.down_rate = link.down_rate;
      slowest.down_latency_s = link.down_latency_s;
    }
  }
  return slowest;
}

}  // namespace sluice::server
