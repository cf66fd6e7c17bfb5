#include "worker/rpc/connection.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace sluice {

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  // This one is how long a single try may take.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5000);
  // A machine that vanished closes nothing: who only waits for its answer would wait for ever.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetMaxReceiveMessageSize(kMessageBytesMax);
  arguments.SetMaxSendMessageSize(kMessageBytesMax);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

void SetDeadline(absl::Duration timeout, grpc::ClientContext* context) {
  context->set_deadline(
      gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                   gpr_time_from_nanos(absl::ToInt64Nanoseconds(timeout), GPR_TIMESPAN)));
}

bool MayPass(const grpc::Status& status) {
  switch (status.error_code()) {
    case grpc::StatusCode::OK:  // A stream that the other side ended.
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

std::string Reason(const grpc::Status& status) {
  if (status.ok()) return "it ended the stream";
  const std::string message = status.error_message();
  if (absl::StrContains(message, "Connection refused")) return "connection refused";
  if (absl::StrContains(message, "Connection reset") ||
      absl::StrContains(message, "Socket closed")) {
    return "the connection was closed";
  }
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) return "no answer in time";
  return message.empty() ? "no reason given" : message;
}

absl::Status ToStatus(const grpc::Status& status, absl::string_view context) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      absl::StrCat(context, ": ", Reason(status)));
}

}  // namespace sluice
