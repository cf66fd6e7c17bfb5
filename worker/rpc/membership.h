// SPDX-License-Identifier: Apache-2.0
// Membership: the checked contents of a JoinReply, in plain types.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "protocol/compression_plan.h"
#include "protocol/compression_spec.h"
#include "protocol/exchange.h"
#include "protocol/layout.h"
#include "protocol/snapshot.h"
#include "protocol/tensor_table.h"
#include "sluice/v1/coordinator.pb.h"

namespace sluice::worker {

struct ShardSeat {
  std::string address;
  uint64_t server_incarnation = 0;
};

struct Membership {
  protocol::Sender sender;  // Its server incarnation is the coordinator's.
  uint32_t world_size = 0;
  uint64_t first_step = 1;
  bool parameters_agree = true;
  uint64_t restore_step = 0;        // Step of the job checkpoint to restore; 0 if none.
  uint32_t restore_world_size = 0;  // Number of ranks that wrote the checkpoint.
  std::vector<protocol::CheckpointPart> restore_parts{};  // As in JoinReply.
  bool late_joiner = false;                               // As in JoinReply.
  std::vector<uint32_t> members{};                        // As in JoinReply, in ascending order.
  std::vector<protocol::CompressionPlan> plans{};         // As in JoinReply; at most one.
  uint64_t window_bytes = 0;
  absl::Duration lease;
  absl::Duration heartbeat;
  protocol::Layout layout;
  std::vector<ShardSeat> shards;  // By shard.
};

// Fails with INVALID_ARGUMENT if the reply contradicts itself or the request.
absl::StatusOr<Membership> ReadJoinReply(const v1::JoinReply& reply,
                                         const protocol::TensorTable& table, uint32_t rank,
                                         uint32_t shards,
                                         const protocol::CompressionSpec& compression);

}  // namespace sluice::worker
