// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/run_writer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace sluice::server {
namespace {

// Pause between two attempts. The pause doubles each time.
constexpr absl::Duration kPauseMin = absl::Milliseconds(100);
constexpr absl::Duration kPauseMax = absl::Seconds(2);

// Returns true if a retry may succeed. Returns false if another coordinator owns the folder now.
bool MayBeWrittenLater(const absl::Status& status) {
  return !status.ok() && !absl::IsFailedPrecondition(status) && !absl::IsInvalidArgument(status);
}

std::string Describe(const RunWrite& write) {
  if (const auto* persist = std::get_if<PersistRun>(&write)) {
    return absl::StrCat("the record of term ", persist->record.term,
                        persist->record.generation > 0
                            ? absl::StrCat(", generation ", persist->record.generation)
                            : "",
                        " (run.json)");
  }
  if (const auto* checkpoint = std::get_if<WriteCheckpoint>(&write)) {
    return absl::StrCat("the manifest of the checkpoint after step ", checkpoint->manifest.step);
  }
  return absl::StrCat("the removal of the checkpoint after step ",
                      std::get<DropCheckpoint>(write).step);
}

}  // namespace

absl::Status WriteTo(RunFolder* folder, const RunWrite& write) {
  if (const auto* persist = std::get_if<PersistRun>(&write)) {
    return folder->Persist(persist->record);
  }
  if (const auto* checkpoint = std::get_if<WriteCheckpoint>(&write)) {
    return folder->Write(checkpoint->manifest);
  }
  return folder->Drop(std::get<DropCheckpoint>(write).step);
}

RunWriter::RunWriter(Disk disk, Listener listener, const Clock* clock, Logger logger)
    : disk_(std::move(disk)),
      listener_(std::move(listener)),
      clock_(clock),
      logger_(std::move(logger)),
      thread_([this] { Run(); }) {}

RunWriter::~RunWriter() {
  StopRetrying();
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

void RunWriter::Write(RunWrite write) {
  MutexLock lock(&mutex_);
  Check(attempts_.what.empty(), "the previous write has ended");
  attempts_ = {.what = Describe(write), .since = clock_->Now()};
  waiting_ = std::move(write);
  changed_.SignalAll();
}

void RunWriter::StopRetrying() {
  MutexLock lock(&mutex_);
  may_retry_ = false;
  changed_.SignalAll();
}

protocol::DiskWait RunWriter::NowAtDisk() const {
  MutexLock lock(&mutex_);
  if (attempts_.what.empty()) return {};
  return {.what = attempts_.what,
          .lasts = clock_->Now() - attempts_.since,
          .trouble = attempts_.trouble};
}

void RunWriter::Run() {
  while (const std::optional<RunWrite> write = AwaitWrite()) {
    const absl::Status status = WriteUntilDurable(*write);
    EndAttempts(status);
    listener_.written(*write, status);
  }
}

std::optional<RunWrite> RunWriter::AwaitWrite() {
  MutexLock lock(&mutex_);
  while (!waiting_.has_value() && !stopping_) changed_.Wait(&mutex_);
  return std::exchange(waiting_, std::nullopt);
}

absl::Status RunWriter::WriteUntilDurable(const RunWrite& write) {
  absl::Status status = disk_(write);
  for (absl::Duration pause = kPauseMin; MayBeWrittenLater(status) && MustBeWritten(write);
       pause = std::min(2 * pause, kPauseMax)) {
    ReportUnwritten(status);
    if (!PauseBeforeRetry(pause)) break;
    status = disk_(write);
  }
  return status;
}

// Once the job has finished, all present parties learn that without the record. A failed job
// announces nothing.
bool RunWriter::MustBeWritten(const RunWrite& write) const {
  const auto* persist = std::get_if<PersistRun>(&write);
  MutexLock lock(&mutex_);
  return persist != nullptr && !persist->record.finished && may_retry_;
}

void RunWriter::ReportUnwritten(const absl::Status& status) {
  std::string what;
  {
    MutexLock lock(&mutex_);
    attempts_.trouble = std::string(status.message());
    // The file name in the error differs between attempts, so only the code is compared.
    if (std::exchange(attempts_.code, status.code()) == status.code()) return;
    what = attempts_.what;
  }
  logger_.Write(
      LogLevel::kWarning, {.event = "record_unwritten"},
      absl::StrCat(
          what, " cannot be written: ", status.message(),
          "; the coordinator retries, and until it succeeds the membership cannot change"));
  listener_.retries();
}

bool RunWriter::PauseBeforeRetry(absl::Duration pause) {
  const absl::Time until = clock_->Now() + pause;
  MutexLock lock(&mutex_);
  while (may_retry_) {
    const absl::Duration left = until - clock_->Now();
    if (left <= absl::ZeroDuration()) return true;
    changed_.WaitFor(&mutex_, left);
  }
  return false;
}

void RunWriter::EndAttempts(const absl::Status& status) {
  Attempts ended;
  {
    MutexLock lock(&mutex_);
    ended = std::exchange(attempts_, Attempts());
  }
  if (!status.ok() || ended.trouble.empty()) return;
  logger_.Write(LogLevel::kInfo, {.event = "record_written"},
                absl::StrCat(ended.what, " is written; the job continues"));
}

}  // namespace sluice::server
