// SPDX-License-Identifier: Apache-2.0
#include "worker/rpc/coordinator_client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "protocol/wire/common_messages.h"
#include "worker/rpc/connection.h"

namespace sluice::worker {
namespace {

// A server accepts at most 128 KiB from a connection before its first authorized call, including
// handshake and headers.
constexpr size_t kBytesOfStrangers = 64 << 10;

absl::Status Cancelled(absl::string_view what) {
  return absl::CancelledError(absl::StrCat("this worker gave up while it tried to ", what));
}

}  // namespace

CoordinatorClient::CoordinatorClient(Options options)
    : options_(std::move(options)),
      gate_(options_.clock),
      channel_(options_.transport->Dial(options_.address)),
      stub_(v1::Coordinator::NewStub(channel_)),
      let_in_(options_.let_in) {}

absl::StatusOr<v1::JoinReply> CoordinatorClient::Join(const v1::JoinRequest& request,
                                                      absl::Duration timeout,
                                                      absl::Duration answer_timeout) {
  const absl::Duration patience = answer_timeout + options_.answer_grace;
  for (;;) {
    const absl::Time asked = options_.clock->Now();
    absl::StatusOr<v1::JoinReply> reply =
        Call(request, timeout, patience, "join", &v1::Coordinator::Stub::Join);
    // A DEADLINE_EXCEEDED from the coordinator itself arrives sooner.
    const bool silent =
        absl::IsDeadlineExceeded(reply.status()) && options_.clock->Now() - asked >= patience;
    if (!silent) return reply;
    // The coordinator may be waiting for a disk, which can take arbitrarily long.
    const absl::StatusOr<std::string> waits = WhatItWaitsFor(timeout);
    if (absl::IsCancelled(waits.status())) return waits.status();
    if (!waits.ok()) return reply;
    options_.logger.Warning("rank ", options_.rank, " has been waiting to join for ",
                            absl::FormatDuration(patience), "; the coordinator says: ", *waits);
  }
}

absl::StatusOr<std::string> CoordinatorClient::WhatItWaitsFor(absl::Duration timeout) {
  const absl::StatusOr<v1::GetStatusReply> status =
      Call(v1::GetStatusRequest(), timeout, options_.answer_grace, "ask for the state of the job",
           &v1::Coordinator::Stub::GetStatus);
  if (!status.ok()) return status.status();
  return absl::StrJoin(status->warnings(), "; ",
                       [](std::string* out, const v1::StatusWarning& warning) {
                         absl::StrAppend(out, warning.text());
                       });
}

absl::StatusOr<v1::LeaveReply> CoordinatorClient::Leave(const v1::LeaveRequest& request,
                                                        absl::Duration timeout) {
  return Call(request, timeout, timeout, "leave", &v1::Coordinator::Stub::Leave);
}

absl::Status CoordinatorClient::ReportCheckpoint(const protocol::Sender& sender,
                                                 const protocol::CheckpointPart& part,
                                                 absl::Duration timeout) {
  v1::ReportCheckpointRequest request;
  protocol::SenderToProto(sender, request.mutable_sender());
  protocol::PartToProto(part, request.mutable_part());
  return Call(request, timeout, timeout, "report its part of a checkpoint",
              &v1::Coordinator::Stub::ReportCheckpoint)
      .status();
}

// Ignores errors: the large call that follows runs into the same error and reports it.
void CoordinatorClient::Introduce() {
  grpc::ClientContext context;
  SetDeadline(options_.answer_grace, &context);
  v1::GetStatusReply reply;
  if (!gate_.Begin(&context)) return;
  (void)stub_->GetStatus(&context, v1::GetStatusRequest(), &reply);
  (void)gate_.End(&context);
}

template <typename Request, typename Reply>
absl::StatusOr<Reply> CoordinatorClient::Call(
    const Request& request, absl::Duration timeout, absl::Duration answer_timeout,
    absl::string_view what,
    grpc::Status (v1::Coordinator::Stub::*method)(grpc::ClientContext*, const Request&, Reply*)) {
  const absl::Time until = options_.clock->Now() + timeout;
  for (absl::Duration backoff = options_.backoff_min;;
       backoff = std::min(2 * backoff, options_.backoff_max)) {
    if (request.ByteSizeLong() > kBytesOfStrangers) Introduce();
    grpc::ClientContext context;
    SetDeadline(answer_timeout, &context);
    Reply reply;
    if (!gate_.Begin(&context)) return Cancelled(what);
    const grpc::Status status = (stub_.get()->*method)(&context, request, &reply);
    const bool cancelled = !gate_.End(&context);
    if (status.ok()) {
      let_in_ = true;
      return reply;
    }
    if (cancelled) return Cancelled(what);
    const bool refused = status.error_code() == grpc::StatusCode::UNAUTHENTICATED;
    const absl::Duration left = until - options_.clock->Now();
    const bool final = refused && left <= absl::ZeroDuration();
    if (final || !(let_in_ ? MayPassOnceLetIn(status) : MayPass(status))) {
      return ToStatus(status,
                      absl::StrCat("the coordinator at ", options_.address, " did not let rank ",
                                   options_.rank, " ", what),
                      *options_.transport);
    }
    if (left <= absl::ZeroDuration()) {
      return absl::UnavailableError(absl::StrCat(
          "the coordinator at ", options_.address, " cannot be reached for ",
          absl::FormatDuration(timeout), " (", Reason(status, *options_.transport),
          "): is the sluice-server of shard 0 running there, and is the address right?"));
    }
    if (!gate_.ConnectFor(std::min(backoff, left), channel_.get())) return Cancelled(what);
  }
}

}  // namespace sluice::worker
