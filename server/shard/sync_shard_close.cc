// SPDX-License-Identifier: Apache-2.0
// Implements the close of bundles and steps: when a bundle closes, and how its result is published.
#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/shard/sync_shard.h"

namespace sluice::server {
namespace {

Notice BundleWaits(uint64_t step, uint32_t bundle, absl::Duration waited,
                   const std::vector<uint32_t>& missing) {
  return {.text = absl::StrCat("step ", step, ", bundle ", bundle, " has waited ",
                               absl::FormatDuration(absl::Floor(waited, absl::Seconds(1))),
                               missing.empty()
                                   ? " for newcomers: no member of the previous step is left"
                                   : absl::StrCat(" for rank ", absl::StrJoin(missing, ", "))),
          .fields = {.event = "bundle_waits", .step = step}};
}

void CountClosed(const BundleWork& work, const BundleResult& result, ShardStats* stats) {
  const OpenBundle& open = *work.open;
  ++stats->bundles_closed;
  if (result.left_out) ++stats->overflowed_bundles;
  for (const protocol::Included& included : result.included) {
    stats->late_exchanges += (work.step - included.origin_step) / work.layout->fragments;
  }
  if (!open.complete()) ++stats->quorum_bundles;
  if (result.n == 0 && work.layout->Exchanges(work.step)) ++stats->empty_bundles;
  const double waited = absl::ToDoubleSeconds(open.last_arrival() - open.first_arrival());
  stats->wait_seconds += waited;
  ++stats->wait_counts[BucketOf(kWaitBoundsSeconds, waited)];
}

}  // namespace

// The log must not evict results that a late rank still needs.
ClosingRule::Step SyncShard::OpenStepFacts() const {
  return {.step = steps_.step(), .may_leave_out = !sink_.log().full() && !gate_.ended()};
}

// True if an open bundle of the open step must close now.
bool SyncShard::IsDue(uint32_t bundle) const {
  return !steps_.IsHandedOver(bundle) &&
         closing_.IsDue(OpenStepFacts(), bundle, *steps_.Find(steps_.step(), bundle));
}

absl::Time SyncShard::tick_due() const {
  if (members_changed_ && !gate_.ended()) return absl::InfinitePast();
  return closing_.DueAt(OpenStepFacts());
}

void SyncShard::CloseDue(Effects* out) {
  for (const uint32_t bundle : closing_.WithQuorum()) {
    if (IsDue(bundle)) Close(bundle, out);
  }
  AdvanceSteps(out);
}

// Closes the bundles of the open step that are due. Also closes those of the next step if it opens.
void SyncShard::CloseComplete(Effects* out) {
  members_changed_ = false;
  for (uint32_t bundle = 0; bundle < bundles_.size(); ++bundle) {
    if (steps_.Find(steps_.step(), bundle) != nullptr && IsDue(bundle)) Close(bundle, out);
  }
  AdvanceSteps(out);
}

std::unique_ptr<OpenBundle> SyncShard::RemoveOpen(uint32_t bundle) {
  std::unique_ptr<OpenBundle> open = steps_.Close(bundle);
  closing_.Forget(bundle, *open);
  stats_.held_bytes -= open->held_bytes();
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    ranks_.RemoveUnanswered(rank, open->unanswered(rank));
  }
  return open;
}

BundleWork SyncShard::WorkOn(uint32_t bundle, OpenBundle* open) const {
  return {.step = steps_.step(), .bundle = bundle, .layout = &bundles_[bundle], .open = open};
}

void SyncShard::Close(uint32_t bundle, Effects* out) {
  if (sink_.forwards()) return Forward(bundle, out);
  AnnounceCheckpoint(out);
  if (bundle == 0) plans_.Make(steps_.step(), out);
  Conclude(bundle, nullptr, out);
}

void SyncShard::Forward(uint32_t bundle, Effects* out) {
  OpenBundle& open = *steps_.Find(steps_.step(), bundle);
  steps_.HandOver(bundle);
  stats_.held_bytes -= open.held_bytes();
  sink_.Forward(coder_.SumUp(WorkOn(bundle, &open)), out);
  stats_.held_bytes += open.held_bytes();
}

void SyncShard::Conclude(uint32_t bundle, const Publication* given, Effects* out) {
  const std::unique_ptr<OpenBundle> open = RemoveOpen(bundle);
  BundleWork work = WorkOn(bundle, open.get());
  work.given = given;
  BundleResult result = coder_.Run(work);
  std::move(result.effects.begin(), result.effects.end(), std::back_inserter(*out));
  CountClosed(work, result, &stats_);
  // A rank may still ask for the results of the last step that it requested, and of later ones.
  // A rank that is no member is too far behind; it must join again.
  const auto is_member = [&](uint32_t rank) {
    return closing_.IsMember(bundle, rank, steps_.step());
  };
  const std::shared_ptr<const protocol::ExchangeReply> answer =
      sink_.Publish(work, std::move(result),
                    {.generation = gate_.generation(),
                     .plan_id = plans_.coded_by(),
                     .checkpoint_step = checkpoints_.AnnouncedIn(steps_.step()),
                     .plan = plans_.AnnouncedIn(steps_.step(), bundle, plans_.coded_by()),
                     .needed_from = ranks_.LowestReached(steps_.step(), is_member),
                     .members = closing_.ListedMembers(bundle, steps_.step())});
  // Other ranks get the result when they contribute, because a contribution in flight may be lost.
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    if (gate_.stream(rank) == 0 || !open->arrived(rank)) continue;
    // The predecessor of a rank that is no member contributed.
    if (!is_member(rank)) continue;
    answers_.Result(gate_.stream(rank), answer, out);
  }
}

std::vector<ShardEffect> SyncShard::Publish(const Publication& publication) {
  Effects out;
  const uint32_t bundle = publication.bundle;
  const bool awaited = !gate_.ended() && publication.step == steps_.step() &&
                       bundle < bundles_.size() && steps_.IsHandedOver(bundle) &&
                       !steps_.IsClosed(steps_.step(), bundle);
  if (!awaited) return out;
  checkpoints_.Learn(publication.checkpoint_step, steps_.step(), &out);
  plans_.Follow(publication.plan, &out);
  Conclude(bundle, &publication, &out);
  AdvanceSteps(&out);
  return out;
}

void SyncShard::AdvanceSteps(Effects* out) {
  while (steps_.AllClosed()) {
    if (steps_.step() > 0) coder_.EndStep(steps_.step(), out);
    stats_.highest_closed_step = steps_.step();
    if (checkpoints_.TakeUpTo(steps_.step())) out->push_back(WriteSnapshot{Snapshot()});
    steps_.Advance(closing_);
    plans_.Begin(steps_.step());
    noticed_ = false;
    for (uint32_t bundle = 0; bundle < bundles_.size(); ++bundle) {
      OpenBundle* const open = steps_.Find(steps_.step(), bundle);
      if (open == nullptr) continue;
      stats_.held_bytes -= open->held_bytes();
      open->SumPrefix();
      stats_.held_bytes += open->held_bytes();
      closing_.NoteQuorum(bundle, *open);
      if (IsDue(bundle)) Close(bundle, out);
    }
  }
}

// Called before a bundle of the open step closes. Every worker needs the result of that bundle to
// finish the step. Therefore all workers know of the checkpoint before the next step, and all
// shards learn of it from the workers' requests of the next step. If this shard replays steps,
// workers may have finished the step with results of its predecessor. In that case the announcement
// waits until workers need this shard's own results.
void SyncShard::AnnounceCheckpoint(Effects* out) {
  const auto is_member = [this](uint32_t rank) { return gate_.present(rank); };
  const bool is_ready = !options_.replay || ranks_.FurthestStep(is_member) <= steps_.step();
  checkpoints_.Announce(checkpoints_.EarliestAfter(steps_.step()), is_ready, out);
}

std::shared_ptr<const protocol::ShardSnapshot> SyncShard::Snapshot() const {
  std::shared_ptr<protocol::ShardSnapshot> snapshot = coder_.Save();
  snapshot->step = steps_.step();
  snapshot->versions = sink_.versions();
  snapshot->plans = plans_.Copies();
  return snapshot;
}

std::vector<ShardEffect> SyncShard::Tick(absl::Time now) {
  Effects out;
  closing_.Advance(now);
  if (gate_.ended()) return out;
  if (members_changed_) CloseComplete(&out);
  if (tick_due() <= closing_.now()) CloseDue(&out);
  if (noticed_) return out;
  for (uint32_t bundle = 0; bundle < bundles_.size(); ++bundle) {
    const OpenBundle* const open = steps_.Find(steps_.step(), bundle);
    if (open == nullptr) continue;
    const absl::Duration waited = now - open->first_arrival();
    if (waited < options_.straggler_notice) continue;
    noticed_ = true;
    out.push_back(BundleWaits(steps_.step(), bundle, waited, open->MissingRanks()));
    break;
  }
  return out;
}

}  // namespace sluice::server
