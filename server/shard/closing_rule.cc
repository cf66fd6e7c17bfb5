// SPDX-License-Identifier: Apache-2.0
#include "server/shard/closing_rule.h"

#include <limits>

#include "server/shard/shard_layout.h"

namespace sluice::server {
namespace {

constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

}  // namespace

ClosingRule::ClosingRule(const ShardOptions* options, std::vector<bool> buffers)
    : options_(*options), buffers_(std::move(buffers)) {
  if (!options_.exchange.elastic()) return;
  std::vector<uint64_t> since;
  for (const uint64_t incarnation : options_.incarnations) {
    since.push_back(incarnation == 0 ? kNever : 0);
  }
  member_since_.assign(buffers_.size(), since);
}

// Parameters and, from time to time, buffers need all ranks.
bool ClosingRule::MayLeaveOut(const Step& step, uint32_t bundle) const {
  if (options_.exchange.quorum == 0 || step.step == 0 || !step.may_leave_out) return false;
  return !buffers_[bundle] || step.step % options_.exchange.buffer_sync_interval != 0;
}

bool ClosingRule::IsDue(const Step& step, uint32_t bundle, const OpenBundle& open) const {
  if (step.step == 0 && !open.arrived(ParameterRank(options_))) return false;
  if (open.complete()) return true;
  return QuorumDueAt(open) <= now_ && MayLeaveOut(step, bundle);
}

absl::Time ClosingRule::QuorumDueAt(const OpenBundle& open) const {
  const absl::Time latest = open.quorum_at() + options_.exchange.straggler_timeout;
  return std::max(open.quorum_at(), std::min(latest, open.needed_at()));
}

void ClosingRule::NoteQuorum(uint32_t bundle, const OpenBundle& open) {
  if (open.quorum_at() == absl::InfiniteFuture()) return;
  quorums_[{open.quorum_at(), bundle}] = QuorumDueAt(open);
}

void ClosingRule::Forget(uint32_t bundle, const OpenBundle& open) {
  quorums_.erase({open.quorum_at(), bundle});
}

std::vector<uint32_t> ClosingRule::WithQuorum() const {
  std::vector<uint32_t> bundles;
  for (const auto& [place, due] : quorums_) bundles.push_back(place.second);
  return bundles;
}

absl::Time ClosingRule::DueAt(const Step& step) const {
  absl::Time earliest = absl::InfiniteFuture();
  for (const auto& [place, due] : quorums_) {
    if (MayLeaveOut(step, place.second)) earliest = std::min(earliest, due);
  }
  return earliest;
}

// The record of a bundle that closed by a quorum does not name the members that were late.
std::vector<uint32_t> ClosingRule::ListedMembers(uint32_t bundle, uint64_t step) const {
  std::vector<uint32_t> members;
  if (!options_.exchange.lists_members() || options_.shard != 0 || bundle != 0) return members;
  for (uint32_t rank = 0; rank < member_since_[bundle].size(); ++rank) {
    if (IsMember(bundle, rank, step)) members.push_back(rank);
  }
  return members;
}

bool ClosingRule::Leave(uint32_t rank) {
  for (std::vector<uint64_t>& since : member_since_) since[rank] = kNever;
  return options_.exchange.elastic();
}

void ClosingRule::AwaitMembers(uint32_t bundle, uint64_t step, OpenBundle* open) const {
  if (!options_.exchange.elastic() || open == nullptr) return;
  for (uint32_t rank = 0; rank < member_since_[bundle].size(); ++rank) {
    open->Expect(rank, IsMember(bundle, rank, step));
  }
}

}  // namespace sluice::server
