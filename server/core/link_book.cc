#include "server/core/link_book.h"

#include <algorithm>
#include <utility>

#include "server/core/shard_stats.h"

namespace sluice {
namespace {

// A probe with what gRPC and TCP add: what a transfer of no size would be.
constexpr uint64_t kProbeBytes = 64;

std::vector<Transfer> TransfersOf(absl::Span<const LinkPeriod> periods, double round_trip_s) {
  std::vector<Transfer> transfers;
  if (round_trip_s <= 0) return transfers;
  for (const LinkPeriod& period : periods) {
    transfers.push_back({.bytes = period.bytes, .seconds = period.seconds + round_trip_s / 2});
  }
  if (!transfers.empty()) transfers.push_back({.bytes = kProbeBytes, .seconds = round_trip_s / 2});
  return transfers;
}

void NoteTest(const LinkReport& report, std::optional<CurvePoint>* tested) {
  if (report.tested.has_value()) *tested = {.step = report.step, .metric = 100 * *report.tested};
}

}  // namespace

void LinkBook::Arrived(uint32_t rank, uint64_t step, absl::Time came, absl::Duration queued) {
  const double seconds = std::max(absl::ToDoubleSeconds(queued), 0.0);
  ++stats_.queue_counts[BucketOf(kQueueBoundsSeconds, seconds)];
  stats_.queue_seconds += seconds;
  if (rank >= ranks_.size() || step == 0) return;
  std::map<uint64_t, absl::Time>& last = ranks_[rank].last_came;
  const auto [at, added] = last.try_emplace(step, came);
  if (!added) at->second = std::max(at->second, came);
  if (last.size() > 2) last.erase(last.begin());
}

void LinkBook::Report(uint32_t rank, absl::Span<const LinkPeriod> up, const LinkReport& report) {
  if (rank >= ranks_.size() || report.step <= ranks_[rank].reported) return;
  ranks_[rank].reported = report.step;
  std::vector<Transfer> sent = TransfersOf(up, report.round_trip_s);
  std::vector<Transfer> got = TransfersOf(report.down, report.round_trip_s);
  ranks_[rank].up.AddStep(sent);
  ranks_[rank].down.AddStep(got);
  RankMeasurements measured = {.up = std::move(sent),
                               .down = std::move(got),
                               .compute_s = report.compute_s,
                               .encode_s = report.encode_s,
                               .apply_s = report.apply_s,
                               .exposed_s = report.exposed_s};
  if (lockstep_) {
    NoteStep(rank, std::move(measured), report);
  } else {
    NoteOwnStep(rank, std::move(measured), report);
  }
}

void LinkBook::NoteStep(uint32_t rank, RankMeasurements measured, const LinkReport& report) {
  const auto came = ranks_[rank].last_came.find(report.step);
  if (came == ranks_[rank].last_came.end()) return;
  Step& step = steps_[report.step];
  if (step.reports == 0) {
    step.first = came->second;
    step.ranks.resize(ranks_.size());
  }
  ++step.reports;
  measured.arrival_s = absl::ToDoubleSeconds(came->second - step.first);
  step.ranks[rank] = std::move(measured);
  if (rank == 0) NoteTest(report, &step.tested);
  if (step.reports == ranks_.size()) {
    const std::vector<Lateness> lateness = SplitLateness(step.ranks);
    for (size_t i = 0; i < ranks_.size(); ++i) {
      ranks_[i].compute_late_s += lateness[i].compute_s;
      ranks_[i].network_late_s += lateness[i].network_s;
    }
    Measured(report.step, std::move(step.ranks), step.tested);
    steps_.erase(report.step);
  }
  if (steps_.size() > kStepsOpen) steps_.erase(steps_.begin());
}

void LinkBook::NoteOwnStep(uint32_t rank, RankMeasurements measured, const LinkReport& report) {
  round_[rank] = std::move(measured);
  if (rank == 0) NoteTest(report, &tested_);
  if (round_.size() < ranks_.size()) return;
  std::vector<RankMeasurements> ranks;
  for (auto& [_, of_rank] : round_) ranks.push_back(std::move(of_rank));
  round_.clear();
  Measured(report.step, std::move(ranks), std::exchange(tested_, std::nullopt));
}

void LinkBook::Measured(uint64_t step, std::vector<RankMeasurements> ranks,
                        std::optional<CurvePoint> tested) {
  // A test that nobody has taken yet counts with the step after it.
  if (!tested.has_value() && measured_.has_value()) tested = measured_->validation;
  measured_ = {.step = step, .ranks = std::move(ranks), .validation = tested};
}

std::optional<StepMeasurements> LinkBook::TakeStep() {
  return std::exchange(measured_, std::nullopt);
}

void LinkBook::Rewind() {
  measured_.reset();
  steps_.clear();
  round_.clear();
  tested_.reset();
  for (Rank& rank : ranks_) {
    rank.reported = 0;
    rank.last_came.clear();
  }
}

LinkStats LinkBook::Stats() const {
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

}  // namespace sluice
