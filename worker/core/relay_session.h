// SPDX-License-Identifier: Apache-2.0
// RelaySession: a relay's membership of the parent job (docs/protocol.md, "Relays"). A relay
// contributes sums of its rack instead of its own gradients, and its rack follows the parent job's
// checkpoints.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "protocol/compression_plan.h"
#include "protocol/tensor_table.h"
#include "worker/core/job_client.h"
#include "worker/core/session.h"

namespace sluice::worker {

class RelaySession : public Session {
 public:
  // Sets the weight of this step's contribution to a bundle: the number of contributions that it
  // sums up. With 0, the bundle is skipped, even if gradients are submitted. Call it before the
  // last Submit of a tensor in the bundle. Applies to the open step, or to the next one if none is
  // open. The default is 1.
  virtual absl::Status SetWeight(uint32_t shard, uint32_t bundle, uint32_t contributions) = 0;
  // Divisor of the last step's mean of a bundle. Call after Wait.
  virtual uint32_t Contributions(uint32_t shard, uint32_t bundle) const = 0;
  // In lockstep modes: the plan that a result of the last step announced, two steps ahead of its
  // first step. Null if there is none. Call after Wait.
  virtual std::shared_ptr<const protocol::CompressionPlan> AnnouncedPlan() const = 0;
  // Step of the last named checkpoint, which may be a future step. 0 if no checkpoint was named.
  virtual uint64_t named_checkpoint() const = 0;
  // Step of the newest complete checkpoint that this session knows. 0 if it knows none.
  // Thread-safe.
  virtual uint64_t durable_step() const = 0;
};

struct JoinedRelay {
  JoinInfo info{};
  RelaySession* session = nullptr;  // Owned by the client.
};

class RelayClient : public JobClient {
 public:
  // As Join, but returns the session with the methods that only a relay needs.
  virtual absl::StatusOr<JoinedRelay> JoinAsRelay(const protocol::TensorTable& table,
                                                  absl::string_view parameters_sha256) = 0;
  // Ends the session without notifying the job, as if this process had crashed. Calls in progress,
  // including JoinAsRelay, return CANCELLED. Thread-safe.
  virtual void Cut() = 0;
};

}  // namespace sluice::worker
