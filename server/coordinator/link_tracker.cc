// SPDX-License-Identifier: Apache-2.0
#include "server/coordinator/link_tracker.h"

#include <algorithm>
#include <utility>

#include "server/shard/shard_stats.h"

namespace sluice::server {
namespace {

// Size of a probe, including the overhead of gRPC and TCP. Nearly all of its transfer time is
// latency.
constexpr uint64_t kProbeBytes = 64;
// The step number that is used if ranks do not take steps together.
constexpr uint64_t kRound = 0;

std::vector<Transfer> TransfersOf(absl::Span<const protocol::LinkPeriod> periods,
                                  double round_trip_s) {
  std::vector<Transfer> transfers;
  if (round_trip_s <= 0) return transfers;
  for (const protocol::LinkPeriod& period : periods) {
    transfers.push_back({.bytes = period.bytes, .seconds = period.seconds + round_trip_s / 2});
  }
  if (!transfers.empty()) transfers.push_back({.bytes = kProbeBytes, .seconds = round_trip_s / 2});
  return transfers;
}

}  // namespace

void LinkTracker::Arrived(uint32_t rank, uint64_t step, absl::Time came, absl::Duration queued) {
  const double seconds = std::max(absl::ToDoubleSeconds(queued), 0.0);
  ++stats_.queue_counts[BucketOf(kQueueBoundsSeconds, seconds)];
  stats_.queue_seconds += seconds;
  if (rank >= ranks_.size() || step == 0) return;
  std::map<uint64_t, absl::Time>& last = ranks_[rank].last_came;
  const auto [at, added] = last.try_emplace(step, came);
  if (!added) at->second = std::max(at->second, came);
  if (last.size() > 2) last.erase(last.begin());
}

void LinkTracker::Report(uint32_t rank, absl::Span<const protocol::LinkPeriod> up,
                         const protocol::LinkReport& report) {
  if (rank >= ranks_.size() || report.step <= ranks_[rank].reported) return;
  ranks_[rank].reported = report.step;
  std::vector<Transfer> sent = TransfersOf(up, report.round_trip_s);
  std::vector<Transfer> got = TransfersOf(report.down, report.round_trip_s);
  ranks_[rank].up.AddStep(sent);
  ranks_[rank].down.AddStep(got);
  NoteStep(rank,
           {.up = std::move(sent),
            .down = std::move(got),
            .compute_s = report.compute_s,
            .encode_s = report.encode_s,
            .apply_s = report.apply_s,
            .exposed_s = report.exposed_s},
           report);
}

void LinkTracker::NoteStep(uint32_t rank, RankMeasurements measured,
                           const protocol::LinkReport& report) {
  Step* step = nullptr;
  if (lockstep_) {
    const auto came = ranks_[rank].last_came.find(report.step);
    if (came == ranks_[rank].last_came.end()) return;
    step = &steps_[report.step];
    if (step->ranks.empty()) step->first = came->second;
    measured.arrival_s = absl::ToDoubleSeconds(came->second - step->first);
  } else {
    step = &steps_[kRound];
  }
  step->ranks[rank] = std::move(measured);
  if (rank == 0 && report.tested.has_value()) {
    step->tested = {.step = report.step, .metric = 100 * *report.tested};
  }
  if (AllReported(*step)) {
    EndStep(report.step, std::move(*step));
    steps_.erase(lockstep_ ? report.step : kRound);
  }
  if (steps_.size() > kStepsOpen) steps_.erase(steps_.begin());
}

bool LinkTracker::AllReported(const Step& step) const {
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    if (ranks_[rank].present && !step.ranks.contains(rank)) return false;
  }
  return true;
}

void LinkTracker::EndStep(uint64_t number, Step step) {
  std::vector<RankMeasurements> ranks(ranks_.size(), step.ranks.begin()->second);
  for (const auto& [rank, measured] : step.ranks) ranks[rank] = measured;
  const std::vector<Lateness> lateness = SplitLateness(ranks);
  for (const auto& [rank, _] : step.ranks) {
    ranks_[rank].compute_late_s += lateness[rank].compute_s;
    ranks_[rank].network_late_s += lateness[rank].network_s;
  }
  // If the previous measurement was never taken, its validation metric moves to this one.
  if (!step.tested.has_value() && measured_.has_value()) step.tested = measured_->validation;
  measured_ = {.step = number, .ranks = std::move(ranks), .validation = step.tested};
}

void LinkTracker::SetPresent(absl::Span<const uint64_t> incarnations) {
  for (size_t rank = 0; rank < std::min(ranks_.size(), incarnations.size()); ++rank) {
    ranks_[rank].present = incarnations[rank] != 0;
  }
}

std::optional<StepMeasurements> LinkTracker::TakeStep(double whole) {
  std::optional<StepMeasurements> taken = std::exchange(measured_, std::nullopt);
  if (taken.has_value()) ScaleTransfers(whole, whole, &*taken);
  return taken;
}

void LinkTracker::Rewind() {
  measured_.reset();
  steps_.clear();
  for (Rank& rank : ranks_) {
    rank.reported = 0;
    rank.last_came.clear();
  }
}

LinkStats LinkTracker::Stats() const {
  LinkStats stats = stats_;
  for (const Rank& rank : ranks_) {
    stats.ranks.push_back({.up_rate = rank.up.rate(),
                           .up_latency_s = rank.up.latency_s(),
                           .down_rate = rank.down.rate(),
                           .down_latency_s = rank.down.latency_s(),
                           .compute_late_s = rank.compute_late_s,
                           .network_late_s = rank.network_late_s});
  }
  return stats;
}

}  // namespace sluice::server
