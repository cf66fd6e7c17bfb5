// SPDX-License-Identifier: Apache-2.0
#include "worker/rpc/connection.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "worker/core/session.h"

namespace sluice::worker {

void SetDeadline(absl::Duration timeout, grpc::ClientContext* context) {
  context->set_deadline(
      gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                   gpr_time_from_nanos(absl::ToInt64Nanoseconds(timeout), GPR_TIMESPAN)));
}

bool MayPass(const grpc::Status& status) {
  switch (status.error_code()) {
    case grpc::StatusCode::OK:  // The other side ended a stream.
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::CANCELLED:
    case grpc::StatusCode::UNKNOWN:
    case grpc::StatusCode::INTERNAL:
    case grpc::StatusCode::ABORTED:
    case grpc::StatusCode::RESOURCE_EXHAUSTED:  // The other side's queue was full.
      return true;
    default:
      return false;
  }
}

bool MayPassOnceLetIn(const grpc::Status& status) {
  return MayPass(status) || status.error_code() == grpc::StatusCode::UNAUTHENTICATED;
}

std::string Reason(const grpc::Status& status, const net::Transport& transport) {
  if (status.ok()) return "it ended the stream";
  const std::string message = status.error_message();
  // gRPC itself reported the timeout. The coordinator's own message would name the absent
  // processes.
  const bool silent = status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED &&
                      (message.empty() || absl::StartsWithIgnoreCase(message, "deadline exceeded"));
  if (silent) return "no answer in time";
  return message.empty() ? "no reason given" : transport.Explain(message);
}

absl::Status ToStatus(const grpc::Status& status, absl::string_view context,
                      const net::Transport& transport) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      absl::StrCat(context, ": ", Reason(status, transport)));
}

absl::Status LostServer(absl::Status status, bool has_checkpoints) {
  return has_checkpoints ? RollbackError(status.message()) : std::move(status);
}

}  // namespace sluice::worker
