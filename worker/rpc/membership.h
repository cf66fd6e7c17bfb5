// Membership: what a worker is told at Join, checked and in plain types.
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
  uint64_t restore_step = 0;        // Of the job checkpoint to begin with; 0: none.
  uint32_t restore_world_size = 0;  // Ranks that wrote it.
  std::vector<protocol::CheckpointPart> restore_parts{};  // As JoinReply has them.
  bool learner = false;                                   // As JoinReply has it.
  std::vector<uint32_t> members{};                        // Likewise, ascending.
  std::vector<protocol::CompressionPlan> plans{};         // Likewise: at most one.
  uint64_t window_bytes = 0;
  absl::Duration lease;
  absl::Duration heartbeat;
  protocol::Layout layout;
  std::vector<ShardSeat> shards;  // By shard.
};

// INVALID_ARGUMENT: the reply contradicts itself or what was asked for.
absl::StatusOr<Membership> ReadJoinReply(const v1::JoinReply& reply,
                                         const protocol::TensorTable& table, uint32_t rank,
                                         uint32_t shards,
                                         const protocol::CompressionSpec& compression);

}  // namespace sluice::worker
