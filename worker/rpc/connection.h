// What every call of a worker shares: its deadline, and how gRPC's errors read to a person.
#pragma once

#include <grpcpp/grpcpp.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "net/grpc/transport.h"

namespace sluice::worker {

// By the steady clock.
void SetDeadline(absl::Duration timeout, grpc::ClientContext* context);

// True if the same call may work later: nobody there, or the connection broke.
bool MayPass(const grpc::Status& status);

// The same for a process that was let in before: where its token is refused now, the token's files
// are being changed, on one machine after the other.
bool MayPassOnceLetIn(const grpc::Status& status);

// "connection refused", what is wrong with TLS, or gRPC's own words.
std::string Reason(const grpc::Status& status, const net::Transport& transport);

// The same code, with `context` before the message: "context: message".
absl::Status ToStatus(const grpc::Status& status, absl::string_view context,
                      const net::Transport& transport);

}  // namespace sluice::worker
