// SPDX-License-Identifier: Apache-2.0
// CoordinatorClient: a worker's blocking calls to its coordinator: Join, Leave and
// ReportCheckpoint.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/log.h"
#include "net/grpc/call_gate.h"
#include "net/grpc/transport.h"
#include "protocol/exchange.h"
#include "protocol/snapshot.h"
#include "sluice/v1/coordinator.grpc.pb.h"

namespace sluice::worker {

class CoordinatorClient {
 public:
  struct Options {
    std::string address;
    std::shared_ptr<const net::Transport> transport = net::Transport::Plain();
    uint32_t rank = 0;
    absl::Duration backoff_min;
    absl::Duration backoff_max;
    // Extra time for an answer. The coordinator itself reports which processes are absent; this
    // limit applies when it does not answer.
    absl::Duration answer_grace = absl::Seconds(10);
    const Clock* clock = nullptr;
    // True if the coordinator admitted this process before. If it refuses the token now, an
    // operator is probably replacing the token files.
    bool let_in = false;
    Logger logger{"worker"};
  };
  explicit CoordinatorClient(Options options);

  // Tries for `timeout` to reach the coordinator. Then waits up to `answer_timeout` for its answer,
  // because the coordinator waits for the other processes. After that, Join repeats the request as
  // long as the coordinator answers a status request. Fails with UNAVAILABLE if the coordinator
  // cannot be reached.
  absl::StatusOr<v1::JoinReply> Join(const v1::JoinRequest& request, absl::Duration timeout,
                                     absl::Duration answer_timeout);
  absl::StatusOr<v1::LeaveReply> Leave(const v1::LeaveRequest& request, absl::Duration timeout);
  absl::Status ReportCheckpoint(const protocol::Sender& sender,
                                const protocol::CheckpointPart& part, absl::Duration timeout);
  // Ends the calls in progress, and every later one, with CANCELLED. Thread-safe.
  void Cancel() { gate_.Close(); }
  // Returns false if Cancel is called before or during the sleep.
  bool SleepFor(absl::Duration duration) { return gate_.SleepFor(duration); }

 private:
  // Identifies this connection as a member's, which may send more bytes than an unknown client's.
  void Introduce();
  // Returns the coordinator's description of what the job waits for.
  absl::StatusOr<std::string> WhatItWaitsFor(absl::Duration timeout);
  template <typename Request, typename Reply>
  absl::StatusOr<Reply> Call(const Request& request, absl::Duration timeout,
                             absl::Duration answer_timeout, absl::string_view what,
                             grpc::Status (v1::Coordinator::Stub::*method)(grpc::ClientContext*,
                                                                           const Request&, Reply*));
  const Options options_;
  net::CallGate gate_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::Coordinator::Stub> stub_;
  std::atomic<bool> let_in_;
};

}  // namespace sluice::worker
