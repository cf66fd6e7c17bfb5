// SPDX-License-Identifier: Apache-2.0
// CheckpointDriver: makes the checkpoints of a job, and finds the parts that a process restores. It
// asks shard 0 to name a checkpoint, collects the parts, lets the caller write the manifest, and
// removes checkpoints that are no longer needed. Pure; not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "protocol/job_phase.h"
#include "protocol/membership.h"
#include "protocol/shard_control.h"
#include "protocol/snapshot.h"
#include "server/coordinator/checkpoint_tracker.h"
#include "server/coordinator/coordinator_effects.h"
#include "server/coordinator/coordinator_options.h"
#include "server/coordinator/held_parts.h"
#include "server/coordinator/shard_fleet.h"

namespace sluice::server {

class CheckpointDriver {
 public:
  using Effects = CoordinatorEffects;

  // Both arguments must outlive it.
  CheckpointDriver(const CoordinatorOptions& options, ShardFleet* fleet);

  const CheckpointTracker& tracker() const { return tracker_; }
  // The text for JobStatus::checkpoint_trouble.
  const std::string& trouble() const { return trouble_; }
  // When the newest checkpoint became complete; InfinitePast if this coordinator saw none.
  absl::Time newest_since() const { return newest_since_; }

  // Terms.
  void BeginTerm(uint32_t term) { tracker_.ResetForTerm(term); }
  // Abandons the checkpoint in progress and answers all requests with `cause`.
  void RollBack(uint32_t term, absl::string_view cause, Effects* out);
  void Discard(uint64_t damaged_step) { tracker_.Discard(damaged_step); }
  // For a rack: the parent job continues from this step.
  void ContinueFrom(uint64_t step);
  void Release(uint64_t step) { tracker_.Release(step); }
  void ShiftTimes(absl::Duration gap);

  // Requests.
  // Asks shard 0 to name a checkpoint after `minimum_step` or later. If shard 0 cannot name one
  // now, AskAgain repeats the request later.
  void AskFor(uint64_t minimum_step, Effects* out);
  void AskForNext(Effects* out);
  // Asks again after shard 0 has caught up.
  void AskAgain(Effects* out);
  // Asks for a checkpoint from which newcomers can start, but less often while checkpoints fail.
  void AskForNewcomers(absl::Time now, Effects* out);
  // As Coordinator::RequestCheckpoint.
  void Request(CheckpointToken token, protocol::JobPhase phase, Effects* out);
  void CancelRequest(CheckpointToken token) { requests_.erase(token); }
  void AnswerRequests(const absl::StatusOr<uint64_t>& step, Effects* out);

  // Progress.
  // Records that shard 0 has named a checkpoint.
  void Named(uint64_t step);
  // Returns true if this completes the parts; call WriteManifest.
  bool Expect(std::vector<uint32_t> ranks) { return tracker_.Expect(std::move(ranks)); }
  void Withdraw(const std::string& name, absl::Time now);
  void WithdrawRank(uint32_t rank, absl::Time now);
  // Returns true if a worker's part of this step can count now. Otherwise call Hold.
  bool MayCount(uint64_t step) const {
    return step == tracker_.under_way() || tracker_.IsOver(step);
  }
  void Hold(const protocol::CheckpointPart& part) { held_.Keep(part); }
  // Returns the held parts of the checkpoint in progress. Pass them to Add.
  std::vector<protocol::CheckpointPart> TakeHeld(uint32_t term) {
    return held_.Take(tracker_.under_way(), term);
  }
  bool Replaces(const protocol::CheckpointPart& part) const { return tracker_.Replaces(part); }
  CheckpointTracker::Progress Add(const protocol::CheckpointPart& part, absl::Time now) {
    return tracker_.Add(part, now);
  }
  std::vector<protocol::CheckpointPart> TakeEarly() { return tracker_.TakeEarly(); }
  // `manifest` lacks its parts.
  void WriteManifest(protocol::CheckpointManifest manifest, Effects* out);
  // Records that the manifest is durable. Checkpoints after the steps `in_use` must stay.
  void Complete(std::vector<uint64_t> in_use, absl::Time now, Effects* out);
  // Lets the shard forget the results that the newest checkpoint contains.
  void ReleaseResults(uint32_t shard, Effects* out);
  void Abandon(absl::string_view why, absl::Time now, Effects* out);
  // Returns why the checkpoint in progress must be abandoned. Empty if it need not be.
  // `all_passed`: all workers have passed its step.
  std::string WhyAbandon(bool all_passed, absl::Time now);
  // Warns once if two intervals have passed since the newest checkpoint.
  void WarnOfMissing(Effects* out);
  // Lets the shards remove the parts of all checkpoints that need not stay.
  void DropAllAtShards(Effects* out);

  // Restoring.
  // Returns null if there is no such checkpoint.
  const protocol::CheckpointManifest* ManifestOf(uint64_t step) const;
  void AddRestoreParts(protocol::JoinGrant* grant) const;
  void AddRestorePart(uint32_t shard, protocol::StartShard* start) const;

 private:
  bool MayNameCheckpoints() const;
  void DropAtShards(uint64_t before, Effects* out, uint64_t given_up = 0);
  void ForgetManifests();

  const CoordinatorOptions& options_;
  ShardFleet& fleet_;
  CheckpointTracker tracker_;
  // Manifests of the complete checkpoints, by step.
  std::map<uint64_t, protocol::CheckpointManifest> manifests_;
  HeldParts held_;
  std::string trouble_;
  absl::Time newest_since_ = absl::InfinitePast();
  uint32_t given_up_in_a_row_ = 0;  // Checkpoints abandoned since the last complete one.
  absl::Time given_up_at_ = absl::InfinitePast();  // When the last of these was abandoned.
  uint64_t named_step_ = 0;  // Step of the last checkpoint that shard 0 named.
  // When all members had passed the step of a checkpoint that an earlier coordinator requested.
  absl::Time passed_since_ = absl::InfiniteFuture();
  std::set<CheckpointToken> requests_;
  std::optional<uint64_t> missing_since_;  // The newest checkpoint when WarnOfMissing last warned.
};

}  // namespace sluice::server
