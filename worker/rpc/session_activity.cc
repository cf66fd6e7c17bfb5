// SPDX-License-Identifier: Apache-2.0
#include "worker/rpc/session_activity.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice::worker {

SessionActivity::SessionActivity(absl::Time now, uint64_t restoring_step)
    : last_progress_(now), restoring_step_(restoring_step), restoring_since_(now) {}

void SessionActivity::Moved(absl::Time now) {
  MutexLock lock(&mutex_);
  last_progress_ = now;
}

void SessionActivity::WaitBegan(absl::Time now) {
  MutexLock lock(&mutex_);
  if (!waiting_since_.has_value()) waiting_since_ = now;
}

absl::Time SessionActivity::WaitEnded(absl::Time now) {
  MutexLock lock(&mutex_);
  last_progress_ = now;
  return std::exchange(waiting_since_, std::nullopt).value_or(now);
}

void SessionActivity::RestoreFailed(absl::string_view why) {
  MutexLock lock(&mutex_);
  restore_trouble_ = std::string(why);
}

void SessionActivity::RestoreEnded(absl::Time now) {
  MutexLock lock(&mutex_);
  restoring_step_ = 0;
  last_progress_ = now;
}

void SessionActivity::Reported(const Progress& progress, absl::Time now) {
  MutexLock lock(&mutex_);
  progress_ = progress;
  reported_ = last_progress_ = now;
}

void SessionActivity::Skipped(uint32_t bundles) {
  MutexLock lock(&mutex_);
  skipped_bundles_ += bundles;
}

void SessionActivity::Measured(const CodingQuality& quality) {
  MutexLock lock(&mutex_);
  quality_ = quality;
}

void SessionActivity::ParametersHashed(uint64_t step, absl::string_view sha256) {
  MutexLock lock(&mutex_);
  hash_step_ = step;
  parameters_sha256_ = std::string(sha256);
}

void SessionActivity::FillHeartbeat(absl::Time now, protocol::WorkerHeartbeat* heartbeat) const {
  MutexLock lock(&mutex_);
  const bool waits = waiting_since_.has_value() || restoring_step_ > 0;
  // The thread may move between the caller's look at the clock and this call.
  heartbeat->since_progress =
      waits ? absl::ZeroDuration() : std::max(absl::ZeroDuration(), now - last_progress_);
  heartbeat->restoring_step = restoring_step_;
  if (restoring_step_ > 0) {
    heartbeat->disk_wait = {.what = absl::StrCat("its part of the checkpoint after step ",
                                                 restoring_step_, " to be read"),
                            .lasts = now - restoring_since_,
                            .trouble = restore_trouble_};
  }
  protocol::MemberProgress& progress = heartbeat->progress;
  progress.step = progress_.step;
  progress.total_steps = progress_.total_steps;
  progress.epoch = progress_.epoch;
  progress.loss = progress_.loss;
  progress.samples_per_second = progress_.samples_per_second;
  progress.step_ms_p50 = progress_.step_ms_p50;
  progress.validation_metric = progress_.validation_metric;
  progress.skipped_bundles = skipped_bundles_;
  progress.residual_energy = quality_.has_value() ? quality_->owed : 0;
  if (progress_.seconds_left.has_value()) {
    // During a long step or test no report arrives, so subtract the time since the last report.
    const double since = absl::ToDoubleSeconds(now - reported_);
    progress.seconds_left = std::max(0.0, *progress_.seconds_left - since);
  }
}

void SessionActivity::FillHash(protocol::WorkerHeartbeat* heartbeat) const {
  MutexLock lock(&mutex_);
  heartbeat->parameters_hash_step = hash_step_;
  heartbeat->parameters_sha256 = parameters_sha256_;
}

void SessionActivity::FillFigures(SessionFigures* figures) const {
  MutexLock lock(&mutex_);
  figures->progress = progress_;
  figures->skipped_bundles = skipped_bundles_;
  figures->quality = quality_;
}

}  // namespace sluice::worker
