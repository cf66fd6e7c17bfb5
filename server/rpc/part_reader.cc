#include "server/rpc/part_reader.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "protocol/checkpoint/checkpoint_folder.h"
#include "protocol/checkpoint/snapshot_format.h"

namespace sluice::server {
namespace {

// Pause before a damaged part is read a second time, because an error of the disk or its network
// may be temporary.
constexpr absl::Duration kReadAgain = absl::Milliseconds(300);

}  // namespace

PartReader::PartReader(protocol::CheckpointSpec checkpoint, uint32_t shard, absl::Duration patience,
                       const Clock* clock)
    : checkpoint_(std::move(checkpoint)),
      shard_(shard),
      folder_(protocol::PartsFolder(checkpoint_, shard)),
      patience_(patience),
      clock_(clock) {}

absl::StatusOr<std::shared_ptr<const protocol::ShardSnapshot>> PartReader::Read(
    const protocol::StartShard& start) {
  {
    MutexLock lock(&mutex_);
    if (attempts_.step != start.restore_step || attempts_.term != start.term) {
      attempts_ = {.step = start.restore_step, .term = start.term, .since = clock_->Now()};
    }
  }
  absl::StatusOr<std::shared_ptr<const protocol::ShardSnapshot>> read = TryToRead(start);
  if (absl::IsDataLoss(read.status())) {
    absl::SleepFor(kReadAgain);
    read = TryToRead(start);
  }
  const bool may_pass = absl::IsUnavailable(read.status()) || absl::IsNotFound(read.status());
  MutexLock lock(&mutex_);
  if (may_pass && clock_->Now() - attempts_.since < patience_) {
    attempts_.trouble = std::string(read.status().message());
    return absl::UnavailableError(absl::StrCat("the checkpoint after step ", start.restore_step,
                                               " cannot be read now: ", read.status().message()));
  }
  attempts_ = Attempts();
  if (read.ok() || absl::IsFailedPrecondition(read.status())) return read;
  return absl::DataLossError(read.status().message());
}

protocol::DiskWait PartReader::NowAtDisk() const {
  MutexLock lock(&mutex_);
  if (attempts_.step == 0) return {};
  return {
      .what = absl::StrCat("its part of the checkpoint after step ", attempts_.step, " to be read"),
      .lasts = clock_->Now() - attempts_.since,
      .trouble = attempts_.trouble};
}

// A part belongs to the term in which it was written, and only the manifest contains that term.
absl::StatusOr<protocol::CheckpointPart> PartReader::FindOwnPart(
    const protocol::StartShard& start) const {
  if (checkpoint_.at_shards()) {
    if (start.restore_part.step == start.restore_step && start.restore_part.error.empty()) {
      return start.restore_part;
    }
    return absl::DataLossError(absl::StrCat("the manifest of the checkpoint after step ",
                                            start.restore_step, " has no state of shard ", shard_));
  }
  const absl::StatusOr<protocol::CheckpointManifest> manifest =
      protocol::ReadManifest(folder_, start.restore_step);
  if (!manifest.ok()) return manifest.status();
  return protocol::FindPart(*manifest, protocol::ShardPartName(shard_, manifest->term));
}

absl::StatusOr<std::shared_ptr<const protocol::ShardSnapshot>> PartReader::TryToRead(
    const protocol::StartShard& start) const {
  if (!checkpoint_.enabled()) {
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
