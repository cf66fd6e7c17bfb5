// SPDX-License-Identifier: Apache-2.0
// WeightsClient: calls one server of weights, a shard or a relay, over a connection that it keeps.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "compress/element_type.h"
#include "follow/weights_version.h"
#include "net/grpc/call_gate.h"
#include "net/grpc/transport.h"
#include "protocol/weights.h"
#include "sluice/v1/weights.grpc.pb.h"

namespace grpc {
class ClientContext;
class Status;
}  // namespace grpc

namespace sluice::follow {

// What a follower asks of one shard.
struct FollowQuery {
  uint64_t job_uid = 0;
  uint32_t shard = 0;
  compress::ElementType type = compress::ElementType::kBfloat16;
  std::optional<WeightsState> have{};
  uint64_t update_bytes_max = 0;  // A larger update ends the call.
};

// Makes one call at a time.
class WeightsClient {
 public:
  // Receives one complete update. Returns false to end the call.
  using Receiver = std::function<bool(uint32_t term, std::vector<std::byte> update)>;

  // Connects with the first call.
  WeightsClient(std::shared_ptr<const net::Transport> transport, std::string address,
                const Clock* clock);

  // Fails with UNAVAILABLE if the server is not reachable or the job has not started; a retry may
  // succeed. Fails with CANCELLED after Cancel. Other errors are final.
  absl::StatusOr<protocol::WeightsDescription> Describe();
  // Does the same, and retries until `patience` has passed.
  absl::StatusOr<protocol::WeightsDescription> AwaitDescription(absl::Duration patience);
  // Receives updates until the call ends. Returns OK if the job has ended and all updates came;
  // CANCELLED after Cancel or if the receiver returned false. Fails with FAILED_PRECONDITION if
  // another run of the job has begun, with ABORTED if the job has failed, and with UNAVAILABLE if a
  // retry may succeed. Other errors are final.
  absl::Status Receive(const FollowQuery& query, const Receiver& receiver);
  // Waits before a retry, while it keeps connecting. Returns false after Cancel.
  bool Pause(absl::Duration duration);
  // Ends the current call or pause and all later ones. Thread-safe.
  void Cancel();

 private:
  // Returns the outcome of a call.
  absl::Status End(grpc::ClientContext* context, const grpc::Status& status);

  const std::shared_ptr<const net::Transport> transport_;
  const std::string address_;
  const Clock* const clock_;
  net::CallGate gate_;
  // One channel serves all calls. A channel for each attempt would be destroyed while it connects.
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::Weights::Stub> stub_;
};

}  // namespace sluice::follow
