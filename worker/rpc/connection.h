// What every call of a worker shares: how a channel is made, and how gRPC's errors read to a
// person.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace sluice {

inline constexpr int kMessageBytesMax = 64 << 20;

// A channel with a connection that no other channel shares. gRPC's retries are off: repeating is
// ours.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address);

// By the steady clock.
void SetDeadline(absl::Duration timeout, grpc::ClientContext* context);

// True if the same call may work later: nobody there, or the connection broke.
bool MayPass(const grpc::Status& status);

// "connection refused", or gRPC's own words.
std::string Reason(const grpc::Status& status);

// The same code, with `context` before the message: "context: message".
absl::Status ToStatus(const grpc::Status& status, absl::string_view context);

}  // namespace sluice
