// SPDX-License-Identifier: Apache-2.0
// CheckpointTracker: the coordinator's record of a job's checkpoints. A checkpoint is requested,
// named by shard 0, collected part by part, and then completed or abandoned; only one is in
// progress at any time. Pure; not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "protocol/snapshot.h"

namespace sluice::server {

struct CheckpointTrackerOptions {
  uint64_t interval = 0;  // Steps from one checkpoint to the next; 0 disables checkpoints.
  uint32_t keep = 2;      // Number of complete checkpoints to keep; at least 1.
  uint32_t world_size = 1;
  uint32_t shards = 1;
  absl::Duration patience = absl::Minutes(10);  // Timeout from the first part to the last.
  // If false, ranks reach the checkpoint's step at different times, and a shard sends its part when
  // the last rank has reached that step. `patience` then counts from the moment when the last shard
  // has sent its part.
  bool in_lockstep = true;
  // True in a rack, where the parent job decides which checkpoints are usable. The tracker then
  // keeps all checkpoints from the oldest of the `keep` newest released steps on, even if the rack
  // has completed newer ones.
  bool in_rack = false;
};

// Returns a sentence if two intervals have passed since the newest checkpoint, whatever the reason;
// otherwise an empty text. `closed` is the highest step that a shard has closed. A worker's step
// does not count, because a worker may report any step.
std::string MissingCheckpoint(uint64_t closed, uint64_t newest, uint64_t interval);

class CheckpointTracker {
 public:
  enum class Progress { kIgnored, kTaken, kComplete, kFailed };

  // `complete` holds the steps of usable checkpoints, ascending. `litter` holds the steps of
  // unusable ones, which are removed after the next complete checkpoint.
  CheckpointTracker(const CheckpointTrackerOptions& options, std::vector<uint64_t> complete,
                    std::vector<uint64_t> litter = {});

  bool enabled() const { return options_.interval > 0; }
  // The step of the newest complete checkpoint; 0 if there is none.
  uint64_t newest() const { return complete_.empty() ? 0 : complete_.back(); }
  // Returns the steps that must stay on disk: the complete checkpoints, the one in progress, and
  // damaged or late ones until the next checkpoint is complete. Excludes `given_up`.
  std::vector<uint64_t> ToStay(uint64_t given_up = 0) const;
  bool IsComplete(uint64_t step) const;
  // True if the checkpoint is complete, or can no longer become complete in this term.
  bool IsOver(uint64_t step) const { return step <= over_; }

  // Abandons the checkpoint in progress. From now on, only parts of `term` count.
  void ResetForTerm(uint32_t term);
  // Marks the complete checkpoint after `step` as damaged, if there is one.
  void Discard(uint64_t step);
  // Discards complete checkpoints after `step`. The job continues from `step`, so they are not part
  // of its history.
  void DiscardAfter(uint64_t step);
  // Sets the complete checkpoints that members are reading now. These stay, however many newer
  // checkpoints exist.
  void Hold(std::vector<uint64_t> steps) { held_ = std::move(steps); }
  // For a rack: records that the parent job's checkpoint after `step` is complete. The parent job
  // may skip some steps.
  void Release(uint64_t step);

  // Returns the lowest step for the next regular checkpoint: the first multiple of `interval` that
  // is at least `open_step` and above all steps whose checkpoints are complete or abandoned.
  uint64_t NextRegular(uint64_t open_step) const;
  // Records a request to shard 0. Until shard 0 has named a checkpoint, a further request may ask
  // for an earlier step.
  void Asked(uint64_t minimum_step) { asked_minimum_ = minimum_step; }
  uint64_t asked_minimum() const { return asked_minimum_; }
  void Named(uint64_t step);
  // Sets the ranks whose parts a complete checkpoint needs; initially all ranks. Returns true if
  // this completes the checkpoint in progress, as when Add returns kComplete.
  bool Expect(std::vector<uint32_t> ranks);
  const std::vector<uint32_t>& expected() const { return ranks_; }
  // The step of the checkpoint that was named or whose first part has arrived; 0 if there is none.
  uint64_t under_way() const { return under_way_; }

  // Adds a part. Returns kComplete if all of parts() have arrived; the next call must be Written or
  // Abandon. Returns kFailed if `part` has an error; call Abandon. While a checkpoint is being
  // written, the tracker keeps parts of a later step for TakeEarly.
  Progress Add(const protocol::CheckpointPart& part, absl::Time now);
  // Returns true if the checkpoint in progress still lacks parts and `part` belongs to a later
  // step. Shard 0 abandoned the checkpoint in progress when it named the later one. Call Abandon,
  // then Add.
  bool Replaces(const protocol::CheckpointPart& part) const;
  // Returns the early parts, which belong to one later step. Call this after Written or Abandon,
  // and pass the parts to Add.
  std::vector<protocol::CheckpointPart> TakeEarly();
  // Removes a part whose sender was lost and will send the part again. Until then the checkpoint is
  // incomplete. Has no effect once the checkpoint is being written.
  void Withdraw(const std::string& name, absl::Time now);
  // Removes the rank's parts: its state and, for rank 0, the files for people.
  void WithdrawRank(uint32_t rank, absl::Time now);
  // True if all parts have arrived. The next call must be Written or Abandon.
  bool being_written() const { return all_there_; }
  std::vector<protocol::CheckpointPart> parts() const;  // By name.
  std::string MissingParts() const;
  // True if parts have been missing for longer than `patience`.
  bool Overdue(absl::Time now) const;
  // Excludes `gap`, during which this process did not run, from the timeout.
  void Shift(absl::Duration gap) { waits_since_ += gap; }

  // Records that the checkpoint in progress is complete on disk. Returns the steps whose files must
  // now be removed.
  std::vector<uint64_t> Written();
  // Abandons the checkpoint in progress. The caller removes its files. Files that are written later
  // are removed after the next complete checkpoint.
  void Abandon();

 private:
  void Forget();
  bool AllShardsGave() const;
  bool IsNeeded(const protocol::CheckpointPart& part) const;
  void KeepEarly(const protocol::CheckpointPart& part);
  void ForgetEarly();
  void AddLitter(uint64_t step);
  uint32_t kept() const { return std::max(options_.keep, 1u); }
  bool IsKept(uint64_t step) const;

  const CheckpointTrackerOptions options_;
  uint32_t term_ = 0;
  std::vector<uint64_t> complete_;
  // Steps that may have files on disk but are not part of a complete checkpoint.
  std::vector<uint64_t> litter_;
  std::vector<uint64_t> released_;  // The newest `keep` released steps, ascending.
  std::vector<uint64_t> held_;
  uint64_t asked_minimum_ = 0;  // 0 if no request to shard 0 is open.
  uint64_t under_way_ = 0;
  uint64_t over_ = 0;  // Highest step of this term whose checkpoint is complete or abandoned.
  bool all_there_ = false;
  absl::Time waits_since_ = absl::InfiniteFuture();
  std::map<std::string, protocol::CheckpointPart> parts_;  // Parts of the checkpoint in progress.
  // Parts of a later step, kept while the manifest is written.
  std::map<std::string, protocol::CheckpointPart> early_;
  std::vector<uint32_t> ranks_;  // Ranks whose parts the checkpoint needs.
};

}  // namespace sluice::server
