// Returns the statistics of ShardHost. None of these functions waits for a copy of the core.
#include "server/rpc/shard_host.h"

namespace sluice::server {

bool ShardHost::started() const {
  MutexLock lock(&mutex_);
  return shard_ != nullptr;
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
  if (writer_ == nullptr) return std::nullopt;
  return writer_->stats();
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
          .disk_wait = NowAtDisk()};
}

protocol::DiskWait ShardHost::NowAtDisk() const {
  const protocol::DiskWait reading = reader_.NowAtDisk();
  if (!reading.what.empty() || writer_ == nullptr) return reading;
  return writer_->NowAtDisk();
}

LinkStats ShardHost::Links() const {
  MutexLock lock(&mutex_);
  return links_.Stats();
}

}  // namespace sluice::server
