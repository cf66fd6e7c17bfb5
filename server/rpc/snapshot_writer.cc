// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/snapshot_writer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "protocol/checkpoint/checkpoint_folder.h"
#include "protocol/checkpoint/snapshot_format.h"

namespace sluice::server {

SnapshotWriter::SnapshotWriter(std::string dir, MayWrite may_write, Listener listener,
                               const Clock* clock, Logger logger)
    : dir_(std::move(dir)),
      may_write_(std::move(may_write)),
      listener_(std::move(listener)),
      clock_(clock),
      logger_(std::move(logger)),
      thread_([this] { Run(); }) {}

SnapshotWriter::~SnapshotWriter() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

void SnapshotWriter::Write(std::shared_ptr<const protocol::ShardSnapshot> snapshot) {
  {
    MutexLock lock(&mutex_);
    if (!busy_) {
      busy_ = true;
      step_ = snapshot->step;
      since_ = clock_->Now();
      waiting_ = std::move(snapshot);
      changed_.SignalAll();
      return;
    }
  }
  listener_(Failed(*snapshot,
                   "the previous one is still being written; raise checkpoint.interval, or use a "
                   "faster disk"));
}

SnapshotStats SnapshotWriter::stats() const {
  MutexLock lock(&mutex_);
  return stats_;
}

protocol::DiskWait SnapshotWriter::NowAtDisk() const {
  MutexLock lock(&mutex_);
  if (!busy_) return {};
  return {.what = absl::StrCat("its part of the checkpoint after step ", step_, " to be written"),
          .lasts = clock_->Now() - since_};
}

void SnapshotWriter::Run() {
  for (;;) {
    std::shared_ptr<const protocol::ShardSnapshot> snapshot;
    {
      MutexLock lock(&mutex_);
      while (!stopping_ && waiting_ == nullptr) changed_.Wait(&mutex_);
      if (stopping_) return;
      snapshot = std::move(waiting_);
      waiting_ = nullptr;
    }
    listener_(WriteOne(std::move(snapshot)));
    MutexLock lock(&mutex_);
    busy_ = false;
  }
}

protocol::CheckpointPart SnapshotWriter::WriteOne(
    std::shared_ptr<const protocol::ShardSnapshot> snapshot) {
  const absl::Time begin = clock_->Now();
  const protocol::ShardSnapshot identity{.job_uid = snapshot->job_uid,
                                         .term = snapshot->term,
                                         .step = snapshot->step,
                                         .shard = snapshot->shard,
                                         .versions = {},
                                         .downlink = {},
                                         .aggregators = {}};
  const absl::Status may_write = may_write_();
  if (!may_write.ok()) return Failed(identity, may_write.message());
  const std::string bytes = protocol::FormatShardSnapshot(*snapshot);
  snapshot.reset();  // Frees the memory early.
  absl::StatusOr<protocol::CheckpointPart> part =
      protocol::WritePart(dir_, identity.term, identity.step,
                          protocol::ShardPartName(identity.shard, identity.term), bytes);
  if (!part.ok()) return Failed(identity, part.status().message());
  const absl::Duration took = clock_->Now() - begin;
  logger_.Write(LogLevel::kInfo,
                {.event = "snapshot_written", .shard = identity.shard, .step = part->step},
                absl::StrCat("wrote ", part->name, " of the checkpoint after step ", part->step,
                             ": ", part->bytes, " bytes in ",
                             absl::FormatDuration(absl::Trunc(took, absl::Milliseconds(1)))));
  MutexLock lock(&mutex_);
  ++stats_.written;
  stats_.last_bytes = part->bytes;
  stats_.last_seconds = absl::ToDoubleSeconds(took);
  return *std::move(part);
}

protocol::CheckpointPart SnapshotWriter::Failed(const protocol::ShardSnapshot& snapshot,
                                                absl::string_view why) {
  {
    MutexLock lock(&mutex_);
    ++stats_.failed;
  }
  logger_.Write(LogLevel::kWarning,
                {.event = "snapshot_failed", .shard = snapshot.shard, .step = snapshot.step},
                absl::StrCat("no part of the checkpoint after step ", snapshot.step, ": ", why));
  return {.term = snapshot.term,
          .step = snapshot.step,
          .name = protocol::ShardPartName(snapshot.shard, snapshot.term),
          .error = std::string(why)};
}

}  // namespace sluice::server
