// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/part_examiner.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "protocol/checkpoint/checkpoint_folder.h"

namespace sluice::server {
namespace {

constexpr absl::Duration kPause = absl::Milliseconds(300);  // Between attempts to read a part.

}  // namespace

PartExaminer::PartExaminer(protocol::CheckpointSpec checkpoint, absl::Duration patience,
                           Listener listener, const Clock* clock, Logger logger)
    : checkpoint_(std::move(checkpoint)),
      patience_(patience),
      listener_(std::move(listener)),
      clock_(clock),
      logger_(std::move(logger)) {}

PartExaminer::~PartExaminer() {
  std::thread last;
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.SignalAll();
    last = std::move(thread_);
  }
  if (last.joinable()) last.join();
}

void PartExaminer::Examine(const protocol::CheckpointPart& part) {
  MutexLock lock(&mutex_);
  waiting_ = part;
  if (running_) return;
  if (thread_.joinable()) thread_.join();  // It has ended, so it does not wait for the lock.
  running_ = true;
  thread_ = std::thread([this] { Run(); });
}

void PartExaminer::Run() {
  while (std::optional<protocol::CheckpointPart> part = TakeNext()) {
    const absl::Status status = ReadUntilKnown(*part);
    if (absl::IsCancelled(status)) continue;
    logger_.Write(LogLevel::kInfo, {.event = "part_examined", .step = part->step},
                  absl::StrCat("examined ", part->name, " of the checkpoint after step ",
                               part->step, ": ", status.ok() ? "intact" : status.message()));
    part->error = std::string(status.message());
    part->unreadable = !status.ok();
    listener_({*std::move(part)});
  }
}

std::optional<protocol::CheckpointPart> PartExaminer::TakeNext() {
  MutexLock lock(&mutex_);
  if (stopping_) waiting_.reset();
  running_ = waiting_.has_value();
  return std::exchange(waiting_, std::nullopt);
}

// An error of the disk or its network may be temporary, so damage must show twice. Fails with
// CANCELLED if the examiner ends first.
absl::Status PartExaminer::ReadUntilKnown(const protocol::CheckpointPart& part) {
  const absl::Time until = clock_->Now() + patience_;
  int damaged = 0;
  for (bool retries = false;; retries = true) {
    absl::Status status = Read(part);
    const bool may_pass = absl::IsUnavailable(status) || absl::IsNotFound(status);
    const bool known = may_pass ? clock_->Now() >= until : status.ok() || ++damaged > 1;
    if (known) return status;
    if (!retries)
      logger_.Warning("cannot read ", part.name, " now: ", status.message(), "; retrying");
    if (!PauseBeforeRetry()) return absl::CancelledError("the examiner ends");
  }
}

// Reads what a worker that restores the part reads.
absl::Status PartExaminer::Read(const protocol::CheckpointPart& part) const {
  const std::string folder = protocol::PartsFolder(checkpoint_, part.server);
  if (!checkpoint_.at_shards()) {  // The folder also has the manifests, and workers read them.
    const absl::Status manifest = protocol::ReadManifest(folder, part.step).status();
    if (!manifest.ok() || part.name == protocol::kManifestName) return manifest;
  }
  const absl::Status valid = protocol::CheckPartNames(part);
  return valid.ok() ? protocol::VerifyPart(folder, part) : valid;
}

bool PartExaminer::PauseBeforeRetry() {
  MutexLock lock(&mutex_);
  if (!stopping_) changed_.WaitFor(&mutex_, kPause);
  return !stopping_;
}

}  // namespace sluice::server
