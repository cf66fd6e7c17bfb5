// SPDX-License-Identifier: Apache-2.0
// ClosingRule: decides when a bundle of a lockstep shard closes. It closes when all ranks have
// arrived (with elastic membership, all members of its step), or when a quorum has arrived and the
// straggler timeout has passed. The timeout ends earlier if a rank that has arrived would otherwise
// begin to wait for the result (protocol::Work::slack_us). Pure; callers pass the time. Not
// thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "server/shard/open_bundle.h"
#include "server/shard/shard.h"

namespace sluice::server {

class ClosingRule {
 public:
  // The facts about the open step that the rule depends on.
  struct Step {
    uint64_t step = 0;
    // False if the step needs all ranks: the log must not evict results that a late rank still
    // needs.
    bool may_leave_out = true;
  };

  // `buffers` says of each bundle whether it holds buffers. `options` must outlive the rule.
  ClosingRule(const ShardOptions* options, std::vector<bool> buffers);

  // Sets the latest time that a caller passed. Time never goes back.
  void Advance(absl::Time now) { now_ = std::max(now_, now); }
  absl::Time now() const { return now_; }

  // True if this bundle of the open step must close now.
  bool IsDue(const Step& step, uint32_t bundle, const OpenBundle& open) const;
  // Records when a bundle of the open step reached its quorum, and when it becomes due. Call this
  // after each contribution. Has no effect before the quorum.
  void NoteQuorum(uint32_t bundle, const OpenBundle& open);
  // Forgets a bundle that closes.
  void Forget(uint32_t bundle, const OpenBundle& open);
  // Returns the bundles of the open step that have a quorum, in the order in which they got it.
  std::vector<uint32_t> WithQuorum() const;
  // Returns the time at which a bundle becomes due without a further contribution.
  absl::Time DueAt(const Step& step) const;

  // True if the step waits for the rank and accepts work from it, not just skips. Without elastic
  // membership, every rank is a member of every step.
  bool IsMember(uint32_t bundle, uint32_t rank, uint64_t step) const {
    return !options_.exchange.elastic() || member_since_[bundle][rank] <= step;
  }
  // Returns the members that a result of the bundle lists (ExchangeReply::members).
  std::vector<uint32_t> ListedMembers(uint32_t bundle, uint64_t step) const;
  // Makes the rank a member of the bundle from this step on, because it is in time for this step.
  void Join(uint32_t bundle, uint32_t rank, uint64_t step) { member_since_[bundle][rank] = step; }
  // Ends the membership of a rank whose holder changed. Returns false without elastic membership,
  // in which case the shard waits for the new holder.
  bool Leave(uint32_t rank);
  // Makes an open bundle of `step` wait for the members of the step.
  void AwaitMembers(uint32_t bundle, uint64_t step, OpenBundle* open) const;

 private:
  bool MayLeaveOut(const Step& step, uint32_t bundle) const;
  // Returns the time from which the bundle need not wait for more than its quorum.
  absl::Time QuorumDueAt(const OpenBundle& open) const;

  const ShardOptions& options_;
  const std::vector<bool> buffers_;  // By bundle.
  absl::Time now_ = absl::InfinitePast();
  // Bundles of the open step that have a quorum, with the time when they got it: when they are due.
  std::map<std::pair<absl::Time, uint32_t>, absl::Time> quorums_;
  // Elastic, by bundle and rank: the first step for which the rank's holder was in time. kNever if
  // there is no such step yet or the rank has no holder.
  std::vector<std::vector<uint64_t>> member_since_;
};

}  // namespace sluice::server
