// CoordinatorClient: the calls of a worker to its coordinator that it waits for: Join, Leave and
// ReportCheckpoint.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/log.h"
#include "net/grpc/transport.h"
#include "protocol/exchange.h"
#include "protocol/snapshot.h"
#include "sluice/v1/coordinator.grpc.pb.h"
#include "worker/rpc/call_gate.h"

namespace sluice::worker {

class CoordinatorClient {
 public:
  struct Options {
    std::string address;
    std::shared_ptr<const net::Transport> transport = net::Transport::Plain();
    uint32_t rank = 0;
    absl::Duration backoff_min;
    absl::Duration backoff_max;
    // The coordinator says itself who never came; this is for when it says nothing.
    absl::Duration answer_grace = absl::Seconds(10);
    const Clock* clock = nullptr;
    // The coordinator has let this process in before: if it refuses its token now, the files are
    // being changed.
    bool let_in = false;
    Logger logger{"worker"};
  };
  explicit CoordinatorClient(Options options);

  // Tries for `timeout` to reach the coordinator; then waits for its answer, which may take
  // `answer_timeout`, since it waits for the others. If it takes longer, the same is asked again as
  // long as the coordinator answers others. UNAVAILABLE: it cannot be reached.
  absl::StatusOr<v1::JoinReply> Join(const v1::JoinRequest& request, absl::Duration timeout,
                                     absl::Duration answer_timeout);
  absl::StatusOr<v1::LeaveReply> Leave(const v1::LeaveRequest& request, absl::Duration timeout);
  absl::Status ReportCheckpoint(const protocol::Sender& sender,
                                const protocol::CheckpointPart& part, absl::Duration timeout);
  // Ends the calls that are under way, and every later one, with CANCELLED. Thread-safe.
  void Cancel() { gate_.Close(); }
  // False if Cancel was called before or meanwhile.
  bool SleepFor(absl::Duration duration) { return gate_.SleepFor(duration); }

 private:
  // Makes this connection that of a member, which may send more than a stranger.
  void Introduce();
  // What the job waits for, as the coordinator says.
  absl::StatusOr<std::string> WhatItWaitsFor(absl::Duration timeout);
  template <typename Request, typename Reply>
  absl::StatusOr<Reply> Call(const Request& request, absl::Duration timeout,
                             absl::Duration answer_timeout, absl::string_view what,
                             grpc::Status (v1::Coordinator::Stub::*method)(grpc::ClientContext*,
                                                                           const Request&, Reply*));
  const Options options_;
  CallGate gate_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::Coordinator::Stub> stub_;
  std::atomic<bool> let_in_;
};

}  // namespace sluice::worker
