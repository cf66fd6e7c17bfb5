// SPDX-License-Identifier: Apache-2.0
#include "worker/rpc/heartbeat.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "protocol/wire/membership_messages.h"
#include "worker/core/session.h"
#include "worker/rpc/connection.h"

namespace sluice::worker {
namespace {

constexpr size_t kReportsMax = 64;

}  // namespace

Heartbeat::Heartbeat(Options options)
    : options_(std::move(options)),
      stub_(v1::Coordinator::NewStub(options_.transport->Dial(options_.address))),
      last_answer_(options_.clock->Now()),
      server_incarnation_(options_.server_incarnation),
      thread_([this] { Run(); }) {}

Heartbeat::~Heartbeat() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    if (context_ != nullptr) context_->TryCancel();
    wake_.SignalAll();
  }
  thread_.join();
}

void Heartbeat::ReportParameters(uint64_t step, std::string sha256) {
  MutexLock lock(&mutex_);
  reports_.push_back({step, std::move(sha256)});
  if (reports_.size() > kReportsMax) reports_.pop_front();
  report_is_new_ = true;
  wake_.SignalAll();
}

void Heartbeat::Run() {
  do {
    const absl::Status status = Beat();
    if (status.ok()) continue;
    {
      MutexLock lock(&mutex_);
      if (stopping_) return;
    }
    return options_.on_failure(status);
  } while (WaitForNext());
}

bool Heartbeat::WaitForNext() {
  const absl::Time next = options_.clock->Now() + options_.interval;
  MutexLock lock(&mutex_);
  while (!stopping_ && !report_is_new_) {
    const absl::Duration left = next - options_.clock->Now();
    if (left <= absl::ZeroDuration()) break;
    wake_.WaitFor(&mutex_, left);
  }
  return !stopping_;
}

absl::Status Heartbeat::Beat() {
  protocol::WorkerHeartbeat heartbeat = options_.compose();
  grpc::ClientContext context;
  // The deadline leaves time for another try within the lease.
  SetDeadline(std::max(options_.interval, options_.lease / 3), &context);
  {
    MutexLock lock(&mutex_);
    if (stopping_) return absl::OkStatus();
    context_ = &context;
    report_is_new_ = false;
    if (!reports_.empty()) {
      heartbeat.parameters_hash_step = reports_.front().step;
      heartbeat.parameters_sha256 = reports_.front().sha256;
    }
  }
  v1::HeartbeatRequest request;
  protocol::HeartbeatToProto(heartbeat, &request);
  v1::HeartbeatReply reply;
  const grpc::Status status = stub_->Heartbeat(&context, request, &reply);
  {
    MutexLock lock(&mutex_);
    context_ = nullptr;
    if (status.ok() && heartbeat.parameters_hash_step > 0 && !reports_.empty() &&
        reports_.front().step == heartbeat.parameters_hash_step) {
      reports_.pop_front();
      report_is_new_ = !reports_.empty();
    }
  }
  if (!status.ok()) {
    if (MayPassOnceLetIn(status) || status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
      const absl::Status missed = Missed(Reason(status, *options_.transport));
      const bool refused = status.error_code() == grpc::StatusCode::UNAUTHENTICATED;
      if (missed.ok() || !refused) return missed;
      return ToStatus(
          status,
          absl::StrCat("the coordinator at ", options_.address, " has refused this worker for ",
                       absl::FormatDuration(options_.patience)),
          *options_.transport);
    }
    return ToStatus(
        status,
        absl::StrCat("the coordinator at ", options_.address, " no longer knows this worker"),
        *options_.transport);
  }
  return HandleReply(protocol::HeartbeatReplyFromProto(reply));
}

absl::Status Heartbeat::HandleReply(const protocol::HeartbeatReply& answer) {
  const protocol::JobState& job = answer.job;
  if (job.phase == protocol::JobPhase::kFailed) {
    return absl::AbortedError(job.failure.empty() ? "the job has failed" : job.failure);
  }
  if (job.term > options_.term) {
    return RollbackError(
        absl::StrCat("the coordinator reports that the job rolled back (term ", job.term, ")"));
  }
  if (answer.server_incarnation < server_incarnation_) {
    return Missed(absl::StrCat("an earlier process, incarnation ", answer.server_incarnation,
                               " before ", server_incarnation_, ", answers in its place"));
  }
  server_incarnation_ = answer.server_incarnation;
  Answered();
  options_.on_reply(answer);
  return absl::OkStatus();
}

void Heartbeat::Answered() {
  last_answer_ = options_.clock->Now();
  if (!told_) return;
  told_ = false;
  options_.logger.Info("the coordinator at ", options_.address, " answers again");
}

absl::Status Heartbeat::Missed(const std::string& reason) {
  const absl::Duration away = options_.clock->Now() - last_answer_;
  options_.logger.Debug("a heartbeat to ", options_.address, " failed: ", reason);
  if (away < options_.patience) {
    if (away >= options_.lease && !told_) {
      told_ = true;
      options_.logger.Warning("the coordinator at ", options_.address, " does not answer (", reason,
                              "); waiting for it for ", absl::FormatDuration(options_.patience));
    }
    return absl::OkStatus();
  }
  return absl::UnavailableError(
      absl::StrCat("the coordinator at ", options_.address, " has not answered for ",
                   absl::FormatDuration(options_.patience), " (", reason,
                   "): the sluice-server of shard 0 has probably ended; its own log says why"));
}

}  // namespace sluice::worker
