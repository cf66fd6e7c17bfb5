// SPDX-License-Identifier: Apache-2.0
// Functions for every call of a worker: deadlines and readable errors.
#pragma once

#include <grpcpp/grpcpp.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "net/grpc/transport.h"

namespace sluice::worker {

// Uses the steady clock.
void SetDeadline(absl::Duration timeout, grpc::ClientContext* context);

// Returns true if the same call may succeed later: the peer was unreachable or the connection
// broke.
bool MayPass(const grpc::Status& status);

// Like MayPass, for a process that was admitted before. A refused token may be accepted later,
// because an operator is probably replacing the token files, one machine after the other.
bool MayPassOnceLetIn(const grpc::Status& status);

// Returns "connection refused", a TLS problem, or gRPC's own message.
std::string Reason(const grpc::Status& status, const net::Transport& transport);

// Returns the same code, with `context` before the message: "context: message".
absl::Status ToStatus(const grpc::Status& status, absl::string_view context,
                      const net::Transport& transport);

// Returns the error that ends a session after the loss of a server: a RollbackError in a job with
// checkpoints, because the session can then join again, otherwise `status`.
absl::Status LostServer(absl::Status status, bool has_checkpoints);

}  // namespace sluice::worker
