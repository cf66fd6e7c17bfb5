// SPDX-License-Identifier: Apache-2.0
// WeightsStream: a follower's calls to those who serve weights.
#pragma once

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
#include "base/mutex.h"
#include "compress/element_type.h"
#include "follow/model_assembly.h"
#include "follow/weights_version.h"
#include "net/grpc/transport.h"
#include "protocol/weights.h"

namespace grpc {
class ClientContext;
}

namespace sluice::follow {

// Returns the limit for the bytes of one update of a shard: an anchor is the largest.
uint64_t LargestUpdate(const ModelParts& parts, size_t shard, compress::ElementType type);

// Asks `address` for its description. Fails with UNAVAILABLE if it is not reachable or the job has
// not started; a retry may succeed. Other errors are final.
absl::StatusOr<protocol::WeightsDescription> DescribeWeights(const net::Transport& transport,
                                                             const std::string& address,
                                                             absl::Duration timeout);

// Does the same, and asks again until `patience` has passed if the server is not reachable. Fails
// with CANCELLED once `is_cancelled` returns true.
absl::StatusOr<protocol::WeightsDescription> AwaitDescription(
    const net::Transport& transport, const std::string& address, absl::Duration patience,
    const Clock* clock, const std::function<bool()>& is_cancelled);

// What a follower asks of one shard.
struct FollowQuery {
  uint64_t job_uid = 0;
  uint32_t shard = 0;
  compress::ElementType type = compress::ElementType::kBfloat16;
  std::optional<WeightsState> have{};
  uint64_t update_bytes_max = 0;  // A larger update ends the call.
};

// One call of Follow at a time.
class WeightsStream {
 public:
  // Receives one complete update. Returns false to end the call.
  using Receiver = std::function<bool(uint32_t term, std::vector<std::byte> update)>;

  // Receives updates until the call ends. Returns OK if the job has ended and all updates came;
  // CANCELLED after Cancel or if the receiver returned false. Fails with FAILED_PRECONDITION if
  // another run of the job has begun, with ABORTED if the job has failed, and with UNAVAILABLE if a
  // retry may succeed. Other errors are final.
  absl::Status Receive(const net::Transport& transport, const std::string& address,
                       const FollowQuery& query, const Receiver& receiver);
  // Ends the current call and all later ones. Thread-safe.
  void Cancel();

 private:
  Mutex mutex_;
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sluice::follow
