// SPDX-License-Identifier: Apache-2.0
#include "server/coordinator/job_history.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace sluice::server {
namespace {

constexpr absl::Duration kEvery = absl::Seconds(1);

double Since(uint64_t before, uint64_t after) { return static_cast<double>(after - before); }

// Returns a point with the current values only, without rates.
HistoryPoint PointOf(const JobStatus& status) {
  HistoryPoint point{.seconds = absl::ToDoubleSeconds(status.uptime)};
  double sum = 0;
  double count = 0;
  for (const MemberStatus& member : status.members) {
    const protocol::MemberProgress& progress = member.progress;
    point.step = std::max(point.step, progress.step);
    if (!member.joined || progress.step == 0) continue;
    ++count;
    sum += progress.loss;
    point.loss_min = std::min(point.loss_min.value_or(progress.loss), progress.loss);
    point.loss_max = std::max(point.loss_max.value_or(progress.loss), progress.loss);
    if (progress.validation_metric >= 0) {
      point.validation_metric =
          std::max(point.validation_metric.value_or(0), progress.validation_metric);
    }
  }
  if (count > 0) point.loss = sum / count;
  return point;
}

}  // namespace

void JobHistory::Sums::Add(const MemberStatus& member) {
  const protocol::MemberTimings& timings = member.timings;
  steps += timings.steps;
  compute += timings.compute_seconds;
  encode += timings.encode_seconds + timings.decode_seconds;
  exchange += timings.exchange_seconds;
  waited += member.waited_seconds;
  bytes_up += member.progress.bytes_up;
  bytes_down += member.progress.bytes_down;
  dense_up += member.progress.dense_bytes_up;
  dense_down += member.progress.dense_bytes_down;
}

bool JobHistory::Sums::FellSince(const Sums& before) const {
  return steps < before.steps || bytes_up < before.bytes_up || bytes_down < before.bytes_down ||
         dense_up < before.dense_up || dense_down < before.dense_down;
}

StepSplit JobHistory::SplitBetween(const Sums& before, const Sums& after) {
  const double steps = Since(before.steps, after.steps);
  const double exchange = std::max(0.0, after.exchange - before.exchange) / steps;
  // The times come from different reports: shards measure the wait, and workers measure the
  // exchange.
  const double wait = std::clamp((after.waited - before.waited) / steps, 0.0, exchange);
  return {.compute = std::max(0.0, after.compute - before.compute) / steps,
          .encode = std::max(0.0, after.encode - before.encode) / steps,
          .wait = wait,
          .transfer = exchange - wait};
}

void JobHistory::Add(const JobStatus& status, absl::Time now) {
  if (now < next_) return;
  next_ = now + kEvery;
  now_ = now;
  Sample sample{.at = now, .sums = {}, .point = PointOf(status)};
  members_.resize(status.members.size());
  for (const MemberStatus& member : status.members) {
    sample.sums.Add(member);
    AddMember(member, now);
  }
  if (sample.point.step != furthest_step_) {
    furthest_step_ = sample.point.step;
    stepped_ = now;
  }
  if (now < next_kept_) return;
  next_kept_ = now + every_;
  samples_.push_back(sample);
  if (samples_.size() < kPointsMax) return;
  std::deque<Sample> kept;
  for (size_t i = 1; i < samples_.size(); i += 2) kept.push_back(samples_[i]);
  samples_ = std::move(kept);
  every_ *= 2;
  next_kept_ = now + every_;
}

void JobHistory::AddMember(const MemberStatus& member, absl::Time now) {
  std::deque<MemberSample>& samples = members_[member.rank];
  Sums sums;
  sums.Add(member);
  const bool gone = !member.joined || member.left || member.lost;
  if (gone || (!samples.empty() && sums.FellSince(samples.back().sums))) samples.clear();
  if (gone || sums.steps == 0) return;
  if (!samples.empty() && sums.steps == samples.back().sums.steps) return;
  samples.push_back({.at = now, .sums = sums});
  // The oldest sample may lie outside the window, so that the samples cover all of it.
  while (samples.size() > 2 && samples[1].at <= now - kWindow) samples.pop_front();
}

std::optional<MemberPace> JobHistory::Pace(uint32_t rank) const {
  if (rank >= members_.size() || members_[rank].size() < 2) return std::nullopt;
  const Sums& before = members_[rank].front().sums;
  const Sums& after = members_[rank].back().sums;
  const double steps = Since(before.steps, after.steps);
  return MemberPace{.split = SplitBetween(before, after),
                    .bytes_up_per_step = Since(before.bytes_up, after.bytes_up) / steps,
                    .bytes_down_per_step = Since(before.bytes_down, after.bytes_down) / steps};
}

std::optional<absl::Duration> JobHistory::since_step() const {
  if (stepped_ == absl::InfinitePast()) return std::nullopt;
  return now_ - stepped_;
}

void JobHistory::FillRates(size_t i, HistoryPoint* point) const {
  const Sample& after = samples_[i];
  // Rates cover the window, or the time back to the last finished step if that is longer.
  size_t j = i;
  while (j > 0 && !samples_[j].sums.FellSince(samples_[j - 1].sums)) {
    const bool enough =
        after.at - samples_[j].at >= kWindow && after.sums.steps > samples_[j].sums.steps;
    if (enough) break;
    --j;
  }
  const Sums& before = samples_[j].sums;
  if (j == i) return;
  if (after.sums.steps > before.steps) {
    point->split = SplitBetween(before, after.sums);
    const double up = Since(before.bytes_up, after.sums.bytes_up);
    const double down = Since(before.bytes_down, after.sums.bytes_down);
    if (up > 0) point->ratio_up = Since(before.dense_up, after.sums.dense_up) / up;
    if (down > 0) point->ratio_down = Since(before.dense_down, after.sums.dense_down) / down;
  }
  // Bytes cover only the window, so that a standstill is visible.
  while (j + 1 < i && after.at - samples_[j + 1].at >= kWindow) ++j;
  const double seconds = absl::ToDoubleSeconds(after.at - samples_[j].at);
  point->bytes_up_per_second = Since(samples_[j].sums.bytes_up, after.sums.bytes_up) / seconds;
  point->bytes_down_per_second =
      Since(samples_[j].sums.bytes_down, after.sums.bytes_down) / seconds;
}

std::vector<HistoryPoint> JobHistory::Points() const {
  std::vector<HistoryPoint> points;
  points.reserve(samples_.size());
  for (size_t i = 0; i < samples_.size(); ++i) {
    points.push_back(samples_[i].point);
    FillRates(i, &points.back());
  }
  return points;
}

}  // namespace sluice::server
