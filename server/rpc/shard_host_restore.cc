// Restores a shard's initial state from a disk that may be slow or temporarily unavailable.
#include <utility>

#include "absl/strings/str_cat.h"
#include "protocol/checkpoint/checkpoint_folder.h"
#include "protocol/checkpoint/snapshot_format.h"
#include "server/rpc/shard_host.h"

namespace sluice::server {
namespace {

// Pause before a damaged part is read a second time, because an error of the disk or its network
// may be temporary.
constexpr absl::Duration kReadAgain = absl::Milliseconds(300);

}  // namespace

absl::StatusOr<std::shared_ptr<const protocol::ShardSnapshot>> ShardHost::RestoreOwnSnapshot(
    const protocol::StartShard& start) {
  {
    MutexLock lock(&mutex_);
    if (restore_.step != start.restore_step || restore_.term != start.term) {
      restore_ = {.step = start.restore_step, .term = start.term, .since = clock_->Now()};
    }
  }
  absl::StatusOr<std::shared_ptr<const protocol::ShardSnapshot>> read = ReadOwnSnapshot(start);
  if (absl::IsDataLoss(read.status())) {
    absl::SleepFor(kReadAgain);
    read = ReadOwnSnapshot(start);
  }
  const bool may_pass = absl::IsUnavailable(read.status()) || absl::IsNotFound(read.status());
  {
    MutexLock lock(&mutex_);
    if (may_pass && clock_->Now() - restore_.since < options_.job.server.rejoin_timeout) {
      restore_.trouble = std::string(read.status().message());
      return absl::UnavailableError(absl::StrCat("the checkpoint after step ", start.restore_step,
                                                 " cannot be read now: ", read.status().message()));
    }
    restore_ = Restore();
  }
  if (!read.ok()) return ReportUnusable(start, read.status());
  return read;
}

protocol::DiskWait ShardHost::NowAtDisk() const {
  if (restore_.step > 0) {
    return {.what = absl::StrCat("its part of the checkpoint after step ", restore_.step,
                                 " to be read"),
            .lasts = clock_->Now() - restore_.since,
            .trouble = restore_.trouble};
  }
  return writer_ == nullptr ? protocol::DiskWait() : writer_->NowAtDisk();
}

absl::Status ShardHost::ReportUnusable(const protocol::StartShard& start, const absl::Status& why) {
  // If the file is of a newer version or the folder is missing, earlier checkpoints would fail too.
  if (absl::IsFailedPrecondition(why)) return why;
  Report(protocol::CheckpointPart{.term = start.term,
                                  .step = start.restore_step,
                                  .name = protocol::ShardPartName(options_.shard, start.term),
                                  .error = std::string(why.message()),
                                  .unreadable = true});
  return absl::DataLossError(why.message());
}

// A part belongs to the term in which it was written, and only the manifest contains that term.
absl::StatusOr<protocol::CheckpointPart> ShardHost::FindOwnPart(
    const protocol::StartShard& start) const {
  if (options_.job.checkpoint.at_shards()) {
    if (start.restore_part.step == start.restore_step && start.restore_part.error.empty()) {
      return start.restore_part;
    }
    return absl::DataLossError(absl::StrCat("the manifest of the checkpoint after step ",
                                            start.restore_step, " has no state of shard ",
                                            options_.shard));
  }
  const absl::StatusOr<protocol::CheckpointManifest> manifest =
      protocol::ReadManifest(folder_, start.restore_step);
  if (!manifest.ok()) return manifest.status();
  return protocol::FindPart(*manifest, protocol::ShardPartName(options_.shard, manifest->term));
}

absl::StatusOr<std::shared_ptr<const protocol::ShardSnapshot>> ShardHost::ReadOwnSnapshot(
    const protocol::StartShard& start) const {
  if (!options_.job.checkpoint.enabled()) {
    return absl::FailedPreconditionError(
        "the coordinator begins with a checkpoint, but this server's job file has no "
        "checkpoint.dir");
  }
  const absl::StatusOr<protocol::CheckpointPart> part = FindOwnPart(start);
  if (!part.ok()) return part.status();
  const absl::StatusOr<std::string> bytes = protocol::ReadPart(folder_, *part);
  if (!bytes.ok()) return bytes.status();
  absl::StatusOr<protocol::ShardSnapshot> snapshot = protocol::ParseShardSnapshot(*bytes);
  if (!snapshot.ok()) {
    return absl::Status(snapshot.status().code(), absl::StrCat(protocol::PartPath(folder_, *part),
                                                               ": ", snapshot.status().message()));
  }
  return std::make_shared<const protocol::ShardSnapshot>(*std::move(snapshot));
}

}  // namespace sluice::server
