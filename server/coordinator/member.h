// SPDX-License-Identifier: Apache-2.0
// Member: one rank of a job as its coordinator sees it: the worker that holds the rank, the state
// of that worker, and a newcomer that wants the rank. A table lists the transitions between states.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "protocol/disk_wait.h"
#include "protocol/membership.h"
#include "server/coordinator/coordinator_effects.h"
#include "server/coordinator/recovery_policy.h"

namespace sluice::server {

// State of a rank in the current term.
enum class MemberState {
  kVacant,   // No worker holds the rank.
  kJoining,  // The holder's Join waits until the term begins or until the shards know the holder.
  kActive,   // The holder takes part in the term.
  kLost,     // The holder's lease has expired, and the job waits for the holder.
  // The holder was evicted; or, in an elastic job, it left before the end, and the job cannot
  // continue with fewer workers. The next check of the leases handles this.
  kLeaving,
  kGone,  // The holder was evicted or left before the end, and the job waits for a newcomer.
  kLeft,  // The holder has finished, or it gave up and the job failed.
};

enum class MemberEvent {
  kSeated,       // A worker got the rank.
  kContinued,    // An earlier coordinator began the term with the holder.
  kBegan,        // The term began, or the holder's Join was answered.
  kReturned,     // The holder sent a report or repeated its Join.
  kExpired,      // The holder's lease has expired, and the job waits.
  kGaveUp,       // The holder left before the end or was evicted.
  kLeft,         // The holder left, and no other worker needs it.
  kNeededAgain,  // A shard replays, and the holder has the data.
  kTermOver,     // The term is over while the holder's Join waits.
  kVacated,      // The holder lost the rank.
};

absl::string_view ToString(MemberState state);
absl::string_view ToString(MemberEvent event);
// Returns the next state. Unset if the event cannot happen in the state.
std::optional<MemberState> NextState(MemberState state, MemberEvent event);

// A call that waits for a rank until the holder is known to be lost or alive.
struct Successor {
  JoinToken token = 0;
  protocol::WorkerJoin join;
  absl::Time since;
};

// The rank is join.rank. If the rank is vacant, the other fields of `join` are empty.
struct Member {
  bool is_present() const { return state != MemberState::kVacant; }
  bool has_left() const { return state == MemberState::kLeft; }
  // True if the job waits for the holder, or for a newcomer in its place.
  bool is_lost() const { return state == MemberState::kLost || state == MemberState::kGone; }
  bool gave_up() const { return state == MemberState::kLeaving || state == MemberState::kGone; }

  MemberState state = MemberState::kVacant;
  protocol::WorkerJoin join;  // Without the table.
  uint64_t incarnation = 0;   // 0 if the rank is vacant.
  JoinToken token = 0;        // 0 if no call waits.
  bool has_reported = false;  // This coordinator has received a report from the holder.
  bool late_joiner = false;   // Elastic: the holder joined in the middle of the term.
  bool told_end = false;      // The worker knows that the job has ended.
  std::string why_gave_up;
  absl::Time heard;
  // Time without progress in the last heartbeat if that exceeds stall_timeout; otherwise 0.
  absl::Duration stalled{};
  protocol::MemberProgress progress;
  protocol::MemberTimings timings;
  uint64_t replay_from = kEverythingKept;  // As in the holder's last report.
  uint64_t restoring_step = 0;  // Step of the checkpoint that the holder is reading; 0 if none.
  protocol::DiskWait disk_wait;
  std::optional<Successor> successor;
};

}  // namespace sluice::server
