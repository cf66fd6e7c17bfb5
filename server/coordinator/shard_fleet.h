// SPDX-License-Identifier: Apache-2.0
// ShardFleet: the shards of a job as its coordinator sees them. It knows the process that serves
// each shard, the state of that process in the current term, and the commands that it has
// acknowledged. It numbers all commands and decides which shards may get a command. Pure; not
// thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/log_level.h"
#include "protocol/membership.h"
#include "protocol/shard_control.h"
#include "server/coordinator/coordinator_effects.h"

namespace sluice::server {

// State of a shard in the current term.
enum class ShardState {
  kAbsent,        // No process has attached to this coordinator.
  kWaits,         // The process has not acknowledged the start command.
  kAwaitsReplay,  // The process attached in the middle of the term and must not start yet.
  kStartsReplay,  // The process has not acknowledged the command to start with a replay.
  kReplays,       // The process replays steps and has not caught up yet.
  kRuns,          // The process takes part in every step.
};

enum class ShardEvent {
  kNewProcess,   // A process attached that this coordinator did not know.
  kStarted,      // The process acknowledged the command, or attached while it runs the term.
  kNeedsReplay,  // The term runs without the process.
  kReplayBegan,  // The command to start with a replay is sent.
  kCaughtUp,     // The process has replayed all steps.
  kTermBegan,    // All shards must start again.
};

absl::string_view ToString(ShardState state);
absl::string_view ToString(ShardEvent event);
// Returns the next state. Unset if the event cannot happen in the state.
std::optional<ShardState> NextState(ShardState state, ShardEvent event);

// One shard. Its number is arrival.shard.
struct ShardSeat {
  // True if the process has the state of the current term, maybe of an earlier step.
  bool has_started() const { return state == ShardState::kReplays || state == ShardState::kRuns; }
  // True if the process restores the newest checkpoint and replays the later steps.
  bool replays() const {
    return state == ShardState::kStartsReplay || state == ShardState::kReplays;
  }
  bool is_known() const { return state != ShardState::kAbsent; }
  bool is_attached() const { return stream != 0; }
  // True if the arrival is a new connection of the process that holds the seat.
  bool IsHeldBy(const protocol::ShardArrival& arriving) const {
    return arrival.server_incarnation == arriving.server_incarnation &&
           arrival.nonce == arriving.nonce;
  }

  ShardState state = ShardState::kAbsent;
  bool lost = false;  // The shard's lease has expired, and the job waits for the shard.
  protocol::ShardArrival arrival;
  ControlStreamId stream = 0;  // 0 while not attached.
  uint64_t acknowledged = 0;   // Highest acknowledged sequence number.
  absl::Time heard;
  absl::Time started;  // When the shard acknowledged StartShard.
  protocol::ShardHealthReport health;
  // Generation in the first StartShard of the term; 0 if only SetMembers was sent.
  uint32_t told_generation = 0;
};

std::string Describe(const ShardSeat& seat);

class ShardFleet {
 public:
  using Effects = CoordinatorEffects;

  ShardFleet(uint32_t shards, uint64_t coordinator_incarnation);

  uint32_t size() const { return static_cast<uint32_t>(seats_.size()); }
  const ShardSeat& operator[](uint32_t shard) const { return seats_[shard]; }
  auto begin() const { return seats_.begin(); }
  auto end() const { return seats_.end(); }
  // Returns the shard that is attached by this stream.
  std::optional<uint32_t> Find(ControlStreamId stream) const;

  // Returns a number for a process that will attach. It is higher than all earlier numbers,
  // including those from earlier coordinators: docs/protocol.md, "Which process is newer".
  uint64_t NumberProcess() { return first_number_ + ++processes_; }
  // The next two prepare the fleet of a coordinator that replaces an earlier one. Its commands get
  // higher numbers than those of the earlier coordinator, so that an acknowledgement that was meant
  // for the earlier coordinator does not count for this one.
  void ContinueRun() { sequence_ = first_number_; }
  void ContinueTerm(protocol::SetMembers members, absl::Time now);
  // Begins a term. If there were earlier terms, Suspend ends them.
  void BeginTerm(bool is_first);
  // Numbers EndShard. Commands from now on have higher numbers.
  void NumberEnd() { end_sequence_ = ++sequence_; }

  // Returns why this process cannot serve its shard instead of another process that serves it.
  absl::Status CheckSeatIsFree(const protocol::ShardArrival& arrival, bool has_checkpoints) const;
  // Records that a process attached. Refuses the shard's previous stream. Returns true if this
  // coordinator did not know the process.
  bool Attach(ControlStreamId stream, const protocol::ShardArrival& arrival, absl::Time now,
              Effects* out);
  // Records that the stream has closed. The shard may attach again; its lease continues.
  void Detach(ControlStreamId stream);
  // Records that a process attached that already runs the term. `is_new`: as returned by Attach.
  void RunsAlready(uint32_t shard, bool is_new);
  // Returns false if the stream is unknown.
  bool Health(ControlStreamId stream, const protocol::ShardHealthReport& health, absl::Time now);
  // Sends the current members to a shard that has started with this acknowledgement. Returns false
  // if the stream or the command is unknown.
  bool Acknowledge(ControlStreamId stream, uint64_t sequence, absl::Time now, Effects* out);

  // Leases.
  void RenewLeases(absl::Time now);
  void ShiftLeases(absl::Duration gap, absl::Time now);
  // Returns the shards whose lease has expired and which are not lost yet.
  std::vector<uint32_t> Silent(absl::Time now, absl::Duration lease) const;
  // Closes the shard's stream, if there is one. If the shard is alive, it attaches again.
  void Disconnect(uint32_t shard, Effects* out);
  void MarkLost(uint32_t shard) { seats_[shard].lost = true; }

  // Commands. A shard gets a command only while it is attached.
  void Start(uint32_t shard, protocol::StartShard start, Effects* out);
  // Sent if the shard has not acknowledged it.
  void Suspend(uint32_t shard, const protocol::SuspendShard& suspend, Effects* out);
  // Call NumberEnd before.
  void End(uint32_t shard, const protocol::EndShard& end, Effects* out);
  // Sends new members to all shards that have started. The others get them when they have started.
  void AnnounceMembers(protocol::SetMembers members, Effects* out);
  // Sends the members to the shard if it has started and does not know them.
  void SendMembers(uint32_t shard, Effects* out);
  // Needs no acknowledgement, because it is sent again when the shard attaches.
  void ReleaseResults(uint32_t shard, uint64_t durable_step, Effects* out);
  void KeepCheckpoints(const protocol::KeepCheckpoints& keep, Effects* out);
  void NameCheckpoint(uint64_t minimum_step, Effects* out);
  // Sends the level to all attached processes, and to each process that attaches from now on.
  void SetLogLevel(LogLevel lowest, Effects* out);
  // Unset before the first SetLogLevel.
  std::optional<LogLevel> log_level() const { return log_level_; }
  // Returns false if the shard cannot get the command now.
  bool ExaminePart(uint32_t shard, protocol::CheckpointPart part, Effects* out);

  // Replays.
  void AwaitReplay(uint32_t shard) { Move(&seats_[shard], ShardEvent::kNeedsReplay); }
  // Records that the shard restores the checkpoint and replays the later steps. Call Start next.
  void BeginReplay(uint32_t shard, uint64_t checkpoint_step);
  void CaughtUp(uint32_t shard) { Move(&seats_[shard], ShardEvent::kCaughtUp); }
  // Records that all shards begin after this step. Earlier reports belong to an earlier term.
  void SetPositions(uint64_t step);

  // Questions about all shards.
  bool AllAttached() const;
  bool AllStarted() const;
  bool AllKnowMembers() const;
  bool AllClosed(uint64_t step) const;
  // True if all attached shards have acknowledged EndShard.
  bool AllKnowEnd() const;
  std::vector<protocol::ShardPlace> Places() const;
  // True if one of these numbers, by shard, is not that of the shard's current process.
  bool AnyMoved(const std::vector<uint64_t>& known_incarnations) const;
  // Returns the time that the rank's requests waited, averaged over the shards.
  double WaitedSeconds(uint32_t rank) const;
  // Returns how the rank's contributions differ from the others' on some shard, or no value.
  std::optional<protocol::SuspectRank> Suspect(uint32_t rank) const;
  protocol::LinkFigures SlowestLink(uint32_t rank) const;

 private:
  static void Move(ShardSeat* seat, ShardEvent event);
  void SendLogLevel(const ShardSeat& seat, Effects* out) const;
  bool KnowsMembers(const ShardSeat& seat) const;

  const uint64_t first_number_;  // All numbers of this coordinator are higher.
  uint64_t processes_ = 0;       // The number of processes that this coordinator has numbered.
  std::vector<ShardSeat> seats_;
  // Last sequence number of a command. The numbers of a term are above those of all earlier terms.
  uint64_t sequence_ = 0;
  uint64_t suspend_sequence_ = 0;
  uint64_t start_sequence_ = 0;
  uint64_t end_sequence_ = 0;      // 0 until the job ends.
  uint64_t members_sequence_ = 0;  // 0 if StartShard announced the members.
  protocol::SetMembers members_;   // The command with that number.
  std::optional<LogLevel> log_level_;
};

}  // namespace sluice::server
