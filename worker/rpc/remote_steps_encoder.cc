// SPDX-License-Identifier: Apache-2.0
// The parts of RemoteSteps that run on other threads than the caller's: the encoder thread and the
// streams' events.
#include <utility>

#include "absl/strings/str_cat.h"
#include "protocol/wire/exchange_messages.h"
#include "worker/rpc/remote_steps.h"

namespace sluice::worker {

void RemoteSteps::OnStreamUp(uint32_t shard) {
  MutexLock lock(&mutex_);
  if (!Over()) links_.StreamUp(shard);
}

void RemoteSteps::OnReply(uint32_t shard, v1::ExchangeReply* reply) {
  const uint64_t incarnation = reply->server_incarnation();
  absl::StatusOr<protocol::ExchangeReply> answer = protocol::ExchangeReplyFromProto(reply);
  Pipeline::Effects effects;
  {
    MutexLock lock(&mutex_);
    if (Over()) return;
    const ShardLinks::Answerer answerer = links_.Answered(shard, incarnation);
    if (answerer == ShardLinks::Answerer::kOutdated) return;
    if (!answer.ok()) {
      (void)FailLocked(absl::Status(
          answer.status().code(), absl::StrCat("shard ", shard, " at ", streams_[shard]->address(),
                                               ": ", answer.status().message())));
      return;
    }
    if (answerer == ShardLinks::Answerer::kNewProcess) pipeline_.ShardReplaced(shard, &effects);
    pipeline_.Answer(shard, *std::move(answer), &effects);
    CarryOut(effects);
    if (awaits_tensors_) step_changed_.SignalAll();
  }
  Flush(effects);
}

void RemoteSteps::OnStreamDown(uint32_t shard, const grpc::Status& status) {
  MutexLock lock(&mutex_);
  if (Over()) return;
  absl::Status lost = links_.StreamDown(shard, status, leaving_);
  if (!lost.ok()) (void)FailLocked(std::move(lost));
  strand_.Wake();
}

void RemoteSteps::Follow(const protocol::JobState& job) {
  MutexLock lock(&mutex_);
  pipeline_.Release(job.durable_step);
  for (const protocol::ShardPlace& place : job.shards) {
    if (!Over() && links_.Follow(place)) checkpoints_.Follow(place);
  }
}

bool RemoteSteps::Over() const {
  return !status_.ok() || stopping_ || (leaving_ && pipeline_.replay_from() == 0);
}

absl::Time RemoteSteps::RunEncoder() {
  if (EncodeNext() || ServeLinks()) return absl::InfinitePast();
  MutexLock lock(&mutex_);
  return NextLinkDue();
}

bool RemoteSteps::EncodeNext() {
  std::optional<EncodeTask> task;
  {
    MutexLock lock(&mutex_);
    if (Over()) return false;
    task = pipeline_.NextEncoding();
    if (!task.has_value()) return false;
    encoding_ = true;
  }
  const absl::Time started = clock_.Now();
  EncodedBundle encoded = encoder_.Encode(*task);
  const absl::Time ended = clock_.Now();
  if (options_.trace != nullptr) {
    options_.trace->Span("encode", started, ended, {.step = task->step, .bundle = task->bundle});
  }
  std::optional<CodingQuality> quality;
  if (task->last_of_step && options_.quality_interval > 0) quality = encoder_.quality();
  if (quality.has_value() && quality->chunks > 0) activity_.Measured(*quality);
  Pipeline::Effects effects;
  {
    MutexLock lock(&mutex_);
    encoding_ = false;
    step_changed_.SignalAll();
    if (task->step > 0) times_.Encoded(started, ended);
    pipeline_.Encoded(std::move(encoded), &effects);
    CarryOut(effects);
  }
  Flush(effects);
  return true;
}

bool RemoteSteps::ServeLinks() {
  Pipeline::Effects effects;
  {
    MutexLock lock(&mutex_);
    const absl::Time now = clock_.Now();
    if (now < NextLinkDue()) return false;
    for (uint32_t shard = 0; shard < links_.size(); ++shard) {
      ShardLinks::Served served = links_.Serve(shard, leaving_, now);
      if (served.reopened) pipeline_.StreamReset(shard, &effects);
      if (served.retry) pipeline_.RetryDue(shard, &effects);
      if (!served.status.ok()) (void)FailLocked(std::move(served.status));
    }
    CarryOut(effects);
  }
  Flush(effects);
  return true;
}

absl::Time RemoteSteps::NextLinkDue() const {
  return Over() ? absl::InfiniteFuture() : links_.NextDue();
}

}  // namespace sluice::worker
