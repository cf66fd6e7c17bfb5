// SPDX-License-Identifier: Apache-2.0
#include "worker/rpc/session_checkpoints.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice::worker {
namespace {

std::unique_ptr<StoreClient> MakeStore(const RemoteSessionOptions& options,
                                       const Membership& membership) {
  if (!options.checkpoint.enabled() || !options.checkpoint.at_shards()) return nullptr;
  return std::make_unique<StoreClient>(StoreClient::Options{.sender = membership.sender,
                                                            .shards = membership.shards,
                                                            .transport = options.transport,
                                                            .backoff_min = options.backoff_min,
                                                            .backoff_max = options.backoff_max,
                                                            .clock = options.clock});
}

std::unique_ptr<CheckpointWriter> MakeWriter(const RemoteSessionOptions& options,
                                             const Membership& membership, StoreClient* store) {
  if (!options.checkpoint.enabled()) return nullptr;
  return std::make_unique<CheckpointWriter>(
      CheckpointWriter::Options{.coordinator = options.coordinator,
                                .transport = options.transport,
                                .dir = options.checkpoint.dir,
                                .store = store,
                                .sender = membership.sender,
                                .report_timeout = options.server.connect_timeout,
                                .rest_of_checkpoint = options.rest_of_checkpoint,
                                .backoff_min = options.backoff_min,
                                .backoff_max = options.backoff_max,
                                .clock = options.clock,
                                .logger = options.logger});
}

}  // namespace

SessionCheckpoints::SessionCheckpoints(const RemoteSessionOptions& options,
                                       const Membership& membership)
    : store_(MakeStore(options, membership)),
      writer_(MakeWriter(options, membership, store_.get())) {}

absl::Status SessionCheckpoints::StepEnded(const StepResult& result) {
  if (result.checkpoint_due && writer_ == nullptr) {
    return absl::FailedPreconditionError(
        "the servers take checkpoints, but this worker's job file has no checkpoint.dir: give all "
        "servers and workers of a job the same one");
  }
  MutexLock lock(&mutex_);
  due_ = result.checkpoint_due;
  return absl::OkStatus();
}

void SessionCheckpoints::StepBegins(uint64_t last_step) {
  if (EndDue()) {
    writer_->ReportFailure(last_step, "the program continued without SaveCheckpoint");
  }
}

absl::Status SessionCheckpoints::TakeDue(uint64_t step) {
  if (EndDue()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("SaveCheckpoint was called after step ", step,
                   ", but no checkpoint is due: call it once, after the step whose result says "
                   "checkpoint_due, before the next"));
}

bool SessionCheckpoints::EndDue() {
  MutexLock lock(&mutex_);
  return std::exchange(due_, false);
}

void SessionCheckpoints::Write(protocol::WorkerSnapshot snapshot,
                               std::vector<CheckpointFile> files) {
  writer_->Write(std::move(snapshot), std::move(files));
}

void SessionCheckpoints::FillHeartbeat(absl::Time now, protocol::WorkerHeartbeat* heartbeat) const {
  if (writer_ == nullptr) return;
  heartbeat->parts = writer_->newest_parts();
  const std::optional<CheckpointWriter::Writing> writing = writer_->writing();
  if (writing.has_value()) {
    heartbeat->disk_wait = {.what = writing->what, .lasts = now - writing->since};
  }
}

void SessionCheckpoints::Follow(const protocol::ShardPlace& place) {
  if (store_ != nullptr) store_->GoTo(place.shard, place.address, place.server_incarnation);
}

void SessionCheckpoints::CancelStore() {
  if (store_ != nullptr) store_->Cancel();
}

}  // namespace sluice::worker
