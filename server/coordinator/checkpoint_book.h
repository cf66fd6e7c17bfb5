// CheckpointBook: the coordinator's book of a job's checkpoints. One at a time is asked for, named
// by shard 0, gathered part by part, and complete or given up. Pure; not thread-safe.
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

struct CheckpointBookOptions {
  uint64_t every = 0;  // Steps from one checkpoint to the next; 0: the job has none.
  uint32_t keep = 2;   // Complete ones; at least 1.
  uint32_t world_size = 1;
  uint32_t shards = 1;
  absl::Duration patience = absl::Minutes(10);  // From the first part of a checkpoint to the last.
  // False: ranks come to its step at any time apart, and a shard gives its part when the last one
  // has. So the patience begins with the last shard's.
  bool in_lockstep = true;
  // A job above decides which are good enough: what is kept is all from the oldest of the newest
  // `keep` that Release told of on, whatever else is complete here.
  bool in_rack = false;
};

class CheckpointBook {
 public:
  enum class Progress { kIgnored, kTaken, kComplete, kFailed };

  // `complete`: steps of the checkpoints that can be used, ascending. `litter`: of those that
  // cannot; removed after the next complete one.
  CheckpointBook(const CheckpointBookOptions& options, std::vector<uint64_t> complete,
                 std::vector<uint64_t> litter = {});

  bool enabled() const { return options_.every > 0; }
  // The step of the newest complete checkpoint; 0: there is none.
  uint64_t newest() const { return complete_.empty() ? 0 : complete_.back(); }
  // Steps of what is to stay on disk: complete ones, and those that turned out damaged or late,
  // until the next is complete. Not what is under way, nor `given_up`.
  std::vector<uint64_t> ToStay(uint64_t given_up = 0) const;
  bool IsComplete(uint64_t step) const;
  // It is complete, or never will be in this term.
  bool IsOver(uint64_t step) const { return step <= over_; }

  // What is under way is given up; parts are of `term` from here on.
  void BeginTerm(uint32_t term);
  // The complete one after `step`, if there is one, turned out to be damaged.
  void Discard(uint64_t step);
  // The job goes on from `step`: complete ones after it are not of its past.
  void DiscardAfter(uint64_t step);
  // Complete checkpoints that a member reads now. They stay, however many newer ones there are.
  void Hold(std::vector<uint64_t> steps) { held_ = std::move(steps); }
  // Of a rack: that after `step` is complete above. Of some nobody may tell.
  void Release(uint64_t step);

  // The least step for the next regular checkpoint: the first multiple of `every` that no
  // checkpoint was named for and that is not before `open_step`.
  uint64_t NextRegular(uint64_t open_step) const;
  // Shard 0 was asked for one. It may be asked again, for an earlier step, until it has named it.
  void Asked(uint64_t minimum_step) { asked_minimum_ = minimum_step; }
  uint64_t asked_minimum() const { return asked_minimum_; }
  void Named(uint64_t step);
  // The ranks whose parts make a checkpoint complete from now on; at first all of them. True: with
  // that the one under way is, as after an Add that says kComplete.
  bool Expect(std::vector<uint32_t> ranks);
  const std::vector<uint32_t>& expected() const { return ranks_; }
  // Named or known by a part of it; 0: none.
  uint64_t under_way() const { return under_way_; }

  // kComplete: parts() are all there and wait for Written. kFailed: `part` has an error; Abandon.
  // One of a later step than that which is being written is kept for TakeEarly.
  Progress Add(const protocol::CheckpointPart& part, absl::Time now);
  // It is of a later step than the one under way, which waits for parts: shard 0 gave that one
  // up when it named the later one. Abandon, then Add.
  bool Replaces(const protocol::CheckpointPart& part) const;
  // What came early, of one step, once what was being written is Written or Abandoned: to be added.
  std::vector<protocol::CheckpointPart> TakeEarly();
  // Who gave this part was lost, and will give it again: until then the checkpoint is not complete.
  // Not once it is being written.
  void Withdraw(const std::string& name, absl::Time now);
  // What the rank gave; of rank 0, files for people beside its state.
  void WithdrawRank(uint32_t rank, absl::Time now);
  // All parts are there; it waits for Written or Abandon.
  bool being_written() const { return all_there_; }
  std::vector<protocol::CheckpointPart> parts() const;  // By name.
  std::string MissingParts() const;
  // Waits for its last parts for longer than the patience allows.
  bool Overdue(absl::Time now) const;
  // The clock stood still for us.
  void Shift(absl::Duration gap) { waits_since_ += gap; }

  // The one under way is complete on disk. Returns the steps of what is to be removed now.
  std::vector<uint64_t> Written();
  // It never will be. What lies on disk of its step is to be removed; late files of it are removed
  // after the next complete one.
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

  const CheckpointBookOptions options_;
  uint32_t term_ = 0;
  std::vector<uint64_t> complete_;
  // Of which something may lie on disk that belongs to no complete checkpoint.
  std::vector<uint64_t> litter_;
  std::vector<uint64_t> released_;  // The newest `keep` of them, ascending.
  std::vector<uint64_t> held_;
  uint64_t asked_minimum_ = 0;  // 0: shard 0 was asked for nothing.
  uint64_t under_way_ = 0;
  uint64_t over_ = 0;  // Highest step of this term whose checkpoint is complete or given up.
  bool all_there_ = false;
  absl::Time waits_since_ = absl::InfiniteFuture();
  std::map<std::string, protocol::CheckpointPart> parts_;  // Of the one under way.
  std::map<std::string, protocol::CheckpointPart>
      early_;                    // Parts of a later step, kept while the manifest is written.
  std::vector<uint32_t> ranks_;  // Whose parts it takes.
};

}  // namespace sluice::server
