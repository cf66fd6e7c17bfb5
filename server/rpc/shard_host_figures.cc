// SPDX-License-Identifier: Apache-2.0
// Returns the statistics of ShardHost, takes measurements and passes them to the core. None of
// these functions waits for a copy of the core.
#include <utility>

#include "server/rpc/shard_host.h"

namespace sluice::server {
namespace {

// Returns the time of the shard's own work, excluding the time of the connections.
double WorkSeconds(const protocol::StageTimes& stages) {
  return stages.Seconds()[static_cast<size_t>(protocol::Stage::kSum)] +
         stages.Seconds()[static_cast<size_t>(protocol::Stage::kEncode)];
}

}  // namespace

bool ShardHost::started() const {
  MutexLock lock(&mutex_);
  return shard_ != nullptr;
}

absl::Status ShardHost::CheckPartStep(uint64_t step) const {
  MutexLock lock(&mutex_);
  if (shard_ == nullptr) return absl::UnavailableError("no job has started here yet");
  return shard_->CheckPartStep(step);
}

ShardHost::Work ShardHost::work() const {
  MutexLock lock(&mutex_);
  return {.job_uid = term_.job_uid(),
          .term = term_.term(),
          .running = shard_ != nullptr && !term_.ended()};
}

ShardStats ShardHost::Stats() const {
  MutexLock lock(&mutex_);
  return shard_ == nullptr ? ShardStats() : shard_->Stats();
}

double ShardHost::ResidualEnergy() const {
  MutexLock lock(&mutex_);
  return shard_ == nullptr ? 0 : shard_->ResidualEnergy();
}

std::optional<SnapshotStats> ShardHost::Snapshots() const {
  return writer_ == nullptr ? std::nullopt : std::optional(writer_->stats());
}

protocol::ShardHealthReport ShardHost::Health() const {
  const ShardStats stats = Stats();
  MutexLock lock(&mutex_);
  return {.highest_closed_step = stats.highest_closed_step,
          .highest_open_step = stats.open_step,
          .elements = stats.elements,
          .in_flight_bytes = stats.held_bytes,
          .results_from = stats.results_from,
          .waited_seconds = waits_.seconds(),
          .links = links_.Stats().ranks,
          .disk_wait = NowAtDisk(),
          .suspects = SuspectsOf(stats.agreement, options_.job.exchange.guard.policy)};
}

protocol::DiskWait ShardHost::NowAtDisk() const {
  const protocol::DiskWait reading = reader_.NowAtDisk();
  if (!reading.what.empty() || writer_ == nullptr) return reading;
  return writer_->NowAtDisk();
}

void ShardHost::NoteArrival(uint32_t rank, const TraceTags& at, absl::Time came, absl::Time now) {
  waits_.Arrived(rank, *at.step, *at.bundle, now);
  links_.Arrived(rank, *at.step, came, now - came);
}

// Scales this shard's measurements to the job: workers send to all shards at the same time. A rank
// with a slower link to another shard gets the figures of that link.
void ShardHost::ForwardMeasurements() {
  if (options_.shard != 0 || !options_.job.exchange.control.measures()) return;
  std::optional<StepMeasurements> step = links_.TakeStep(1 / ShareOfElements(shard_->options()));
  if (!step.has_value()) return;
  const double before = std::exchange(worked_s_, WorkSeconds(stages_));
  step->server_s = worked_s_ - before;
  if (options_.slowest_streams) ApplySlowestStreams(options_.slowest_streams(), &*step);
  shard_->Measured(*step);
}

LinkStats ShardHost::Links() const {
  MutexLock lock(&mutex_);
  return links_.Stats();
}

}  // namespace sluice::server
