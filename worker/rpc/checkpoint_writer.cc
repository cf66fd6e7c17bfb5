// SPDX-License-Identifier: Apache-2.0
#include "worker/rpc/checkpoint_writer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "protocol/checkpoint/checkpoint_folder.h"
#include "protocol/checkpoint/snapshot_format.h"

namespace sluice::worker {
namespace {

// Interval for polling rest_of_checkpoint.
constexpr absl::Duration kAskAgain = absl::Milliseconds(20);

}  // namespace

CheckpointWriter::CheckpointWriter(Options options)
    : options_(std::move(options)),
      coordinator_({.address = options_.coordinator,
                    .transport = options_.transport,
                    .rank = options_.sender.rank,
                    .backoff_min = options_.backoff_min,
                    .backoff_max = options_.backoff_max,
                    .clock = options_.clock,
                    .let_in = true}),
      thread_([this] { Run(); }) {}

CheckpointWriter::~CheckpointWriter() {
  coordinator_.Cancel();
  if (options_.store != nullptr) options_.store->Cancel();
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.SignalAll();
    if (writing_.has_value()) {
      options_.logger.Warning("this process ends once the disk has answered: it waits for ",
                              writing_->what);
    }
  }
  thread_.join();
}

void CheckpointWriter::Write(protocol::WorkerSnapshot snapshot, std::vector<CheckpointFile> files) {
  Work work{.step = snapshot.step};
  MutexLock lock(&mutex_);
  if (working_ || !waiting_.empty()) {
    work.error =
        "the previous checkpoint is still being written: raise checkpoint.interval, or use a "
        "faster disk";
  } else {
    work.snapshot = std::move(snapshot);
    work.files = std::move(files);
  }
  waiting_.push_back(std::move(work));
  changed_.SignalAll();
}

void CheckpointWriter::ReportFailure(uint64_t step, absl::string_view why) {
  MutexLock lock(&mutex_);
  waiting_.push_back({.step = step, .error = std::string(why)});
  changed_.SignalAll();
}

bool CheckpointWriter::Finish(absl::Duration limit) {
  const absl::Time until = options_.clock->Now() + limit;
  MutexLock lock(&mutex_);
  while (working_ || !waiting_.empty()) {
    const absl::Duration left = until - options_.clock->Now();
    if (left <= absl::ZeroDuration()) return false;
    changed_.WaitFor(&mutex_, left);
  }
  return true;
}

std::optional<CheckpointWriter::Writing> CheckpointWriter::writing() const {
  MutexLock lock(&mutex_);
  return writing_;
}

std::vector<protocol::CheckpointPart> CheckpointWriter::newest_parts() const {
  MutexLock lock(&mutex_);
  return newest_parts_;
}

void CheckpointWriter::Run() {
  for (;;) {
    Work work;
    {
      MutexLock lock(&mutex_);
      working_ = false;
      changed_.SignalAll();
      while (!stopping_ && waiting_.empty() && held_.empty()) changed_.Wait(&mutex_);
      if (!stopping_ && waiting_.empty()) changed_.WaitFor(&mutex_, kAskAgain);
      if (stopping_) return;
      if (!waiting_.empty()) {
        work = std::move(waiting_.front());
        waiting_.pop_front();
        working_ = true;
      }
    }
    if (work.step > 0) Do(std::move(work));
    ReportHeld();
  }
}

void CheckpointWriter::Do(Work work) {
  const std::string name = protocol::WorkerPartName(options_.sender.rank, options_.sender.term);
  if (!work.snapshot.has_value()) return SendPartReport(Failed(work.step, name, work.error));
  // Files go first, because the checkpoint is complete once every rank's state has arrived.
  for (CheckpointFile& file : work.files) {
    if (!WriteOne(work.step, file.name, file.bytes)) return;
    file = CheckpointFile();
  }
  const std::string bytes = protocol::FormatWorkerSnapshot(*work.snapshot);
  work.snapshot.reset();
  (void)WriteOne(work.step, name, bytes);
}

bool CheckpointWriter::WriteOne(uint64_t step, const std::string& name, absl::string_view bytes) {
  {
    MutexLock lock(&mutex_);
    writing_ = {absl::StrCat(name, " of the checkpoint after step ", step, " to be written"),
                options_.clock->Now()};
  }
  absl::StatusOr<protocol::CheckpointPart> part =
      options_.store != nullptr
          ? options_.store->Put(step, name, bytes)
          : protocol::WritePart(options_.dir, options_.sender.term, step, name, bytes);
  {
    MutexLock lock(&mutex_);
    writing_.reset();
  }
  if (absl::IsCancelled(part.status())) return false;  // The session has ended.
  Report(part.ok() ? *part : Failed(step, name, part.status().message()));
  return part.ok();
}

void CheckpointWriter::Report(protocol::CheckpointPart part) {
  if (!options_.rest_of_checkpoint || !part.error.empty()) return ReportNow(part);
  // Earlier checkpoints no longer matter.
  if (!held_.empty() && held_.front().step != part.step) held_.clear();
  held_.push_back(std::move(part));
}

void CheckpointWriter::ReportHeld() {
  if (held_.empty()) return;
  const std::optional<absl::Status> rest = options_.rest_of_checkpoint(held_.front().step);
  if (!rest.has_value()) return;
  for (const protocol::CheckpointPart& part : std::exchange(held_, {})) {
    ReportNow(rest->ok() ? part : Failed(part.step, part.name, rest->message()));
  }
}

void CheckpointWriter::ReportNow(const protocol::CheckpointPart& part) {
  {
    MutexLock lock(&mutex_);
    if (!newest_parts_.empty() && newest_parts_.front().step != part.step) newest_parts_.clear();
    newest_parts_.push_back(part);
  }
  SendPartReport(part);
}

protocol::CheckpointPart CheckpointWriter::Failed(uint64_t step, std::string name,
                                                  absl::string_view why) const {
  options_.logger.Warning("no checkpoint after step ", step, ": ", why);
  return {.term = options_.sender.term,
          .step = step,
          .name = std::move(name),
          .error = std::string(why)};
}

void CheckpointWriter::SendPartReport(const protocol::CheckpointPart& part) {
  const absl::Status status =
      coordinator_.ReportCheckpoint(options_.sender, part, options_.report_timeout);
  if (status.ok() || absl::IsCancelled(status)) return;
  // Heartbeats repeat the report.
  options_.logger.Warning("the coordinator did not get the report of ", part.name,
                          " of the checkpoint after step ", part.step, ": ", status.message());
}

}  // namespace sluice::worker
